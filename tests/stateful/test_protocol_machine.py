"""Random sequences of store operations by any node, with any token that was ever granted, including stale ones.

After every step the database contains what the model says."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from detent.domain.identity import RunKey
from detent.domain.run import Claim
from detent.domain.states import CODES, RunStatus
from detent.store import Database, Store, sql
from detent.store.cursors import Advance, Exceptional
from detent.store.db import connect
from detent.store.limits import REQUEST_LIMITS
from detent.store.live_runs import Retry, Settlement
from tests.stateful.protocol_model import SECOND, Job, Model, tick
from tests.support.factories import add_job, add_node

Result = TypeVar("Result")
NOW = tick(0)
EMPTY = "DELETE FROM live_runs; DELETE FROM run_history; DELETE FROM attempts; DELETE FROM cursors; DELETE FROM nodes"
ADD_CURSOR = """
INSERT INTO cursors (job, next_tick, fire_at, queue, schedule, partition, lanes, once)
VALUES ($1, $2, $2, 1, 1, 0, $3, $4)
"""

chosen = st.integers(0, 1_000_000)  # an index into a list, modulo its length
nodes = st.integers(1, 3)
# An error in what a node believes: mostly none.
slips = st.sampled_from([0] * 8 + [-1, 1])


class Machine(RuleBasedStateMachine):
    loop: ClassVar[asyncio.AbstractEventLoop]
    store: ClassVar[Store]
    look: ClassVar[Any]
    jobs: ClassVar[list[int]]

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(work)

    def pick(self, things: list[Result], number: int) -> Result:
        return things[number % len(things)]

    def pick_grant(self, number: int) -> tuple[int, Claim]:
        """Any grant, or one of the latest, which may still be valid, or one of a run that its node has claimed
        again."""
        grants = self.model.grants
        return self.pick([grants, grants[-3:], self.model.outlived() or grants][number % 3], number // 3)

    @initialize()
    def begin(self) -> None:
        self.run(self.look.execute(EMPTY))
        skip, allow, once = self.jobs
        self.model = Model({skip: Job(1, False), allow: Job(3, False), once: Job(1, True)})
        for number, job in self.model.jobs.items():
            self.run(self.look.execute(ADD_CURSOR, number, tick(0), job.lanes, job.once))
        for node in (1, 2):
            self.join(node)

    @precondition(lambda self: len(self.model.nodes) < 3)
    @rule(node=nodes)
    def join(self, node: int) -> None:
        if node not in self.model.nodes:
            self.run(add_node(self.look, node))
            self.model.nodes[node] = True

    @rule(node=nodes, number=chosen, hand_off=st.booleans(), careful=st.booleans(), generation=slips, ahead=slips)
    def fire(self, node: int, number: int, hand_off: bool, careful: bool, generation: int, ahead: int) -> None:
        job = self.pick(self.jobs, number)
        cursor = self.model.jobs[job]
        at = cursor.next_tick + ahead
        advance = Advance(job, tick(at), cursor.generation + generation, tick(at + 1), None)
        expected = [Exceptional(job, None, "refused")]
        if self.model.alive(node) and not generation and not ahead:
            lane, why = self.model.fire(node, job, hand_off)
            expected = [] if lane == 0 else [Exceptional(job, lane, why)]
        assert self.run(self.store.cursors.fire(node, 1, hand_off, [advance], careful=careful)) == expected

    @rule(node=nodes, limit=st.integers(1, 4))
    def claim(self, node: int, limit: int) -> None:
        ready = self.model.claimable() if self.model.alive(node) else []
        claims = self.run(self.store.live_runs.claim(node, 1, [1], limit))
        assert len(claims) == min(limit, len(ready))
        for claim in claims:
            assert claim == self.model.claim(node, claim.key)

    @precondition(lambda self: self.model.grants)
    @rule(number=chosen, alone=st.booleans())
    def start(self, number: int, alone: bool) -> None:
        self.start_as(*self.pick_grant(number), alone)

    def start_as(self, node: int, claim: Claim, alone: bool = False) -> None:
        verdict = self.model.start(node, claim, alone)
        expected = {} if verdict is None else {(claim.job, claim.lane): verdict}
        assert self.run(self.store.live_runs.start(node, [claim], [alone])) == expected

    @precondition(lambda self: self.model.grants)
    @rule(number=chosen, status=st.sampled_from([RunStatus.SUCCEEDED, RunStatus.DEAD, RunStatus.CANCELLED]))
    def settle(self, number: int, status: RunStatus) -> None:
        node, claim = self.pick_grant(number)
        run = self.model.held(node, claim)
        settlement = Settlement(claim, NOW, NOW, CODES[status])
        assert self.run(self.store.live_runs.settle(node, [settlement])) == ([] if run is not None else [settlement])
        if run is not None:
            self.model.end(run, status)

    @precondition(lambda self: self.model.grants)
    @rule(number=chosen)
    def fail(self, number: int) -> None:
        self.fail_as(*self.pick_grant(number))

    def fail_as(self, node: int, claim: Claim) -> None:
        run = self.model.held(node, claim)
        failure = Retry(claim, NOW, NOW, "failed", "no", timedelta(0))
        assert self.run(self.store.live_runs.retry(node, [failure])) == ([] if run is not None else [failure])
        if run is not None:
            self.model.retry(run)

    @precondition(lambda self: self.model.grants)
    @rule(number=chosen)
    def give_back(self, number: int) -> None:
        self.give_back_as(*self.pick_grant(number))

    def give_back_as(self, node: int, claim: Claim) -> None:
        run = self.model.held(node, claim)
        given = self.run(self.store.live_runs.give_back(node, [claim]))
        assert given == ({(claim.job, claim.lane)} if run is not None else set())
        if run is not None:
            self.model.give_back(run)

    @precondition(lambda self: self.model.live or self.model.ended)
    @rule(number=chosen)
    def cancel(self, number: int) -> None:
        live = list(self.model.live)
        key = self.pick(live if live and number % 4 else [*live, *self.model.ended], number)
        expected = {key: self.model.cancel(key)} if key in self.model.live else {}
        assert self.run(self.store.live_runs.cancel([key])) == expected

    @rule(number=chosen)
    def edit(self, number: int) -> None:
        """The same next tick with a new generation, which an old entry of the wheel must not fire."""
        job = self.pick(self.jobs, number)
        cursor = self.model.jobs[job]
        last = tick(cursor.next_tick - 1) if cursor.next_tick else None
        at = tick(cursor.next_tick)
        places = ([job], [cursor.generation], [last], [at], [at], [False], [None], ["active"])
        nothing = [tick(-1)]
        spans = ([1], nothing, ["edited"], nothing, ["edited"], [None], [None], None)
        assert self.run(self.look.fetch(sql.cursor.MOVE.text, *places, *spans, [], [], [], [], []))
        cursor.generation += 1

    @precondition(lambda self: any(self.model.nodes.values()))
    @rule(node=nodes)
    def leave(self, node: int) -> None:
        self.run(self.store.nodes.leave(node))
        if node in self.model.nodes:
            self.model.nodes[node] = False

    @precondition(lambda self: self.model.live)
    @rule(node=nodes)
    def rescue(self, node: int) -> None:
        lanes = {key: run.lane for key, run in self.model.live.items()}
        expected = {(key.job, lanes[key]) for key in self.model.rescue(node)}
        assert {(run.job, run.lane) for run in self.run(self.store.nodes.rescue(node))} == expected

    @precondition(lambda self: not all(self.model.nodes.values()))
    @rule(node=nodes)
    def forget(self, node: int) -> None:
        expected = self.model.forgettable(node)
        assert self.run(self.store.nodes.delete(node)) == expected
        if expected:
            del self.model.nodes[node]

    # What random steps rarely produce: a run with an old owner and a new one, on the same node or on another.

    @precondition(lambda self: self.model.held_by_the_living())
    @rule(number=chosen, returned=st.booleans())
    def hold_again(self, number: int, returned: bool) -> None:
        run = self.pick(self.model.held_by_the_living(), number)
        assert run.owner is not None
        node = run.owner
        (self.give_back_as if returned else self.fail_as)(node, self.model.claim_of(run))
        self.claim(node, 4)

    @precondition(lambda self: self.model.held_by_the_living())
    @rule(number=chosen, start=st.booleans(), alone=st.booleans())
    def crash(self, number: int, start: bool, alone: bool) -> None:
        run = self.pick(self.model.held_by_the_living(), number)
        assert run.owner is not None
        if start:
            self.start_as(run.owner, self.model.claim_of(run), alone)
        node = run.owner
        self.leave(node)
        self.rescue(node)

    @invariant()
    def the_database_is_as_the_model_says(self) -> None:
        if hasattr(self, "model"):
            self.run(self._compare())

    async def _compare(self) -> None:
        live = await self.look.fetch(
            "SELECT *, started_at IS NOT NULL AS started, coalesce(lost_alone, 0) AS lost FROM live_runs"
        )
        names = ("lane", "token", "owner", "attempt", "crashes", "lost", "started", "cancel")
        found = {_key(row): tuple(row[name] for name in names) for row in live}
        assert found == {key: run.row() for key, run in self.model.live.items()}
        past = {_key(row): (row["status"], row["token"]) for row in await self.look.fetch("SELECT * FROM run_history")}
        assert past == {key: (CODES[status], token) for key, (status, token) in self.model.ended.items()}
        cursors = await self.look.fetch("SELECT job, next_tick, last_tick, generation FROM cursors")
        for row in cursors:
            job = self.model.jobs[row["job"]]
            assert (row["next_tick"], row["generation"]) == (tick(job.next_tick), job.generation)
            ticks = {key.scheduled_at for key in [*found, *past] if key.job == row["job"]}
            assert ticks == {tick(number) for number in range(job.next_tick)}, "a tick is lost or doubled"

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self.run(self._tokens_rise())

    async def _tokens_rise(self) -> None:
        given: dict[RunKey, list[int]] = {}
        for _, claim in self.model.grants:
            given.setdefault(claim.key, []).append(claim.token)
        assert all(tokens == sorted(set(tokens)) for tokens in given.values())


def _key(row: Any) -> RunKey:
    return RunKey(row["job"], row["scheduled_at"], row["serial"])


@pytest.fixture
def machine(database_url: str) -> Iterator[type[Machine]]:
    loop = asyncio.new_event_loop()

    async def open_all() -> None:
        database = Database(database_url)
        await database.open()
        Machine.store = Store(database)
        Machine.look = await connect(database_url, "detent", REQUEST_LIMITS)
        Machine.jobs = [await add_job(Machine.look, tick(0) + n * SECOND) for n in range(3)]

    async def close_all() -> None:
        await Machine.look.close()
        await Machine.store.database.close()

    Machine.loop = loop
    loop.run_until_complete(open_all())
    yield Machine
    loop.run_until_complete(close_all())
    loop.close()


def profile(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


def test_any_sequence_of_verbs_does_what_the_model_says(machine: type[Machine]) -> None:
    run_state_machine_as_test(machine, settings=profile(40, 50))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_long_sequences_of_verbs_do_what_the_model_says(machine: type[Machine]) -> None:
    run_state_machine_as_test(machine, settings=profile(1000, 100))
