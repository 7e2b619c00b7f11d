"""Random sequences of store operations by any node, with any token that was ever granted, including stale ones.

After every step the database contains what the model says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from detent.domain.states import CODES
from detent.store import sql
from detent.store.cursors import Exceptional
from tests.stateful.protocol_model import SECOND, Job, Model, tick
from tests.stateful.run_machine import RunMachine, chosen, key_of, nodes, opened, profile
from tests.support.factories import add_job
from tests.support.ticks import advance_of

EMPTY = "DELETE FROM live_runs; DELETE FROM run_history; DELETE FROM attempts; DELETE FROM cursors; DELETE FROM nodes"
ADD_CURSOR = """
INSERT INTO cursors (job, next_tick, fire_at, queue, schedule, partition, lanes, once)
VALUES ($1, $2, $2, 1, 1, 0, $3, $4)
"""
# An error in what a node believes: mostly none.
slips = st.sampled_from([0] * 8 + [-1, 1])


class Machine(RunMachine):
    model: Model
    jobs: ClassVar[list[int]]

    @initialize()
    def begin(self) -> None:
        self.run(self.look.execute(EMPTY))
        skip, allow, once = self.jobs
        self.model = Model({skip: Job(1, False), allow: Job(3, False), once: Job(1, True)})
        for number, job in self.model.jobs.items():
            self.run(self.look.execute(ADD_CURSOR, number, tick(0), job.lanes, job.once))
        for node in (1, 2):
            self.join(node)

    @rule(node=nodes, number=chosen, hand_off=st.booleans(), careful=st.booleans(), generation=slips, ahead=slips)
    def fire(self, node: int, number: int, hand_off: bool, careful: bool, generation: int, ahead: int) -> None:
        job = self.pick(self.jobs, number)
        cursor = self.model.jobs[job]
        at = cursor.next_tick + ahead
        advance = advance_of(job, tick(at), cursor.generation + generation, tick(at + 1), None)
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

    # What random steps rarely produce: a run with an old owner and a new one, on the same node or on another.

    @precondition(lambda self: self.model.held_by_the_living())
    @rule(number=chosen, returned=st.booleans())
    def hold_again(self, number: int, returned: bool) -> None:
        run = self.pick(self.model.held_by_the_living(), number)
        assert run.owner is not None
        node = run.owner
        (self.give_back_as if returned else self.fail_as)(node, self.model.claim_of(run))
        self.claim(node, 4)

    async def _compare(self) -> None:
        live = await self.look.fetch(
            "SELECT *, started_at IS NOT NULL AS started, coalesce(lost_alone, 0) AS lost FROM live_runs"
        )
        names = ("lane", "token", "owner", "attempt", "crashes", "lost", "started", "cancel")
        found = {key_of(row): tuple(row[name] for name in names) for row in live}
        assert found == {key: run.row() for key, run in self.model.live.items()}
        past = {
            key_of(row): (row["status"], row["token"]) for row in await self.look.fetch("SELECT * FROM run_history")
        }
        assert past == {key: (CODES[status], token) for key, (status, token) in self.model.ended.items()}
        cursors = await self.look.fetch("SELECT job, next_tick, last_tick, generation FROM cursors")
        for row in cursors:
            job = self.model.jobs[row["job"]]
            assert (row["next_tick"], row["generation"]) == (tick(job.next_tick), job.generation)
            ticks = {key.scheduled_at for key in [*found, *past] if key.job == row["job"]}
            assert ticks == {tick(number) for number in range(job.next_tick)}, "a tick is lost or doubled"


@pytest.fixture
def machine(database_url: str) -> Iterator[type[Machine]]:
    async def prepare(look: Any) -> None:
        Machine.jobs = [await add_job(look, tick(0) + n * SECOND) for n in range(3)]

    with opened(Machine, database_url, prepare):
        yield Machine


def test_any_sequence_of_verbs_does_what_the_model_says(machine: type[Machine]) -> None:
    run_state_machine_as_test(machine, settings=profile(40, 50))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_long_sequences_of_verbs_do_what_the_model_says(machine: type[Machine]) -> None:
    run_state_machine_as_test(machine, settings=profile(1000, 100))
