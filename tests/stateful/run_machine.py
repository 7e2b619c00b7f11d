"""What every machine does: nodes that join, leave and are rescued, and the verbs of a node that holds a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from detent.domain.identity import RunKey
from detent.domain.run import Claim
from detent.domain.states import CODES, RunStatus
from detent.store import Database, Store
from detent.store.db import connect
from detent.store.limits import REQUEST_LIMITS
from tests.stateful.protocol_model import Model, tick
from tests.support.ends import ended_run, failed_run
from tests.support.factories import add_node

Result = TypeVar("Result")
NOW = tick(0)

chosen = st.integers(0, 1_000_000)  # an index into a list, modulo its length
nodes = st.integers(1, 3)


class RunMachine(RuleBasedStateMachine):
    loop: ClassVar[asyncio.AbstractEventLoop]
    store: ClassVar[Store]
    look: ClassVar[Any]
    model: Model

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(work)

    def pick(self, things: list[Result], number: int) -> Result:
        return things[number % len(things)]

    def pick_grant(self, number: int) -> tuple[int, Claim]:
        """Any grant, or one of the latest, which may still be valid, or one of a run that its node has claimed
        again."""
        grants = self.model.grants
        return self.pick([grants, grants[-3:], self.model.outlived() or grants][number % 3], number // 3)

    @precondition(lambda self: len(self.model.nodes) < 3)
    @rule(node=nodes)
    def join(self, node: int) -> None:
        if node not in self.model.nodes:
            self.run(add_node(self.look, node))
            self.model.nodes[node] = True

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
        settlement = ended_run(claim, NOW, NOW, CODES[status])
        assert self.run(self.store.live_runs.settle(node, [settlement])) == ([] if run is not None else [settlement])
        if run is not None:
            self.model.end(run, status)

    @precondition(lambda self: self.model.grants)
    @rule(number=chosen)
    def fail(self, number: int) -> None:
        self.fail_as(*self.pick_grant(number))

    def fail_as(self, node: int, claim: Claim) -> None:
        run = self.model.held(node, claim)
        failure = failed_run(claim, NOW, NOW, "failed", "no", timedelta(0))
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
        raise AssertionError("a machine says what the database should contain")

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self.run(self._tokens_rise())

    async def _tokens_rise(self) -> None:
        given: dict[RunKey, list[int]] = {}
        for _, claim in self.model.grants:
            given.setdefault(claim.key, []).append(claim.token)
        assert all(tokens == sorted(set(tokens)) for tokens in given.values())


def key_of(row: Any) -> RunKey:
    return RunKey(row["job"], row["scheduled_at"], row["serial"])


@contextmanager
def opened(machine: type[RunMachine], url: str, prepare: Callable[[Any], Awaitable[None]]) -> Iterator[None]:
    """Give the machine a store, a connection beside it, and a loop to run them in."""
    loop = asyncio.new_event_loop()

    async def open_all() -> None:
        database = Database(url)
        await database.open()
        machine.store = Store(database)
        machine.look = await connect(url, "detent", REQUEST_LIMITS)
        await prepare(machine.look)

    async def close_all() -> None:
        await machine.look.close()
        await machine.store.database.close()

    machine.loop = loop
    loop.run_until_complete(open_all())
    yield
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
