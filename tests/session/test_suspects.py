"""Runs that may have ended their node are tried alone; their neighbours are not given up with them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from detent.domain.run import Call, Claim, Outcome, Succeeded
from detent.store import Store
from detent.store.db import PoolName
from detent.store.live_runs import LiveRunStore
from detent.store.nodes import CRASH_CAP
from detent.worker import suspects
from tests.support import factories
from tests.support.waiting import until

PAST = factories.LONG_AGO
CALM = 12


async def add_run(look: Any, name: str, crashes: int = 0, **columns: Any) -> int:
    tick = await look.fetchval("SELECT now() + interval '1 hour'")
    job = await factories.add_job(look, tick, name=name)
    queue = await look.fetchval("SELECT queue FROM cursors WHERE job = $1", job)
    await factories.add_live_run(look, job, PAST, queue=queue, crashes=crashes, **columns)
    return job


async def over(look: Any, count: int) -> Any:
    return await until(
        lambda: look.fetchval("SELECT count(*) >= $1 FROM run_history", count), 30, f"the end of {count} runs"
    )


async def is_alone(store: Store, job: int) -> bool | None:
    async with store.database.connection(PoolName.REQUEST) as connection:  # handlers ask beside the test
        found: bool | None = await connection.fetchval("SELECT alone FROM live_runs WHERE job = $1", job)
    return found


class Calls:
    """What runs now, and what ran beside what."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.order: list[str] = []
        self.beside: dict[str, set[str]] = {}

    async def __call__(self, call: Call) -> Outcome:
        self.order.append(call.job)
        for other in self.running:
            self.beside.setdefault(other, set()).add(call.job)
        self.beside.setdefault(call.job, set()).update(self.running)
        self.running.add(call.job)
        await asyncio.sleep(0.05)
        self.running.discard(call.job)
        return Succeeded()


async def test_suspects_run_alone_and_the_most_suspicious_first(look: Any, start: Any) -> None:
    for number, crashes in enumerate((2, 5, 3)):
        await add_run(look, f"suspect-{crashes}", crashes, priority=number)
    for number in range(6):
        await add_run(look, f"plain-{number}", number % 2)
    calls = Calls()
    await start(calls)
    await over(look, 9)
    assert [name for name in calls.order if name.startswith("suspect")] == ["suspect-5", "suspect-3", "suspect-2"]
    assert {name: calls.beside[name] for name in calls.order if name.startswith("suspect")} == {
        "suspect-5": set(), "suspect-3": set(), "suspect-2": set()
    }  # fmt: skip
    assert any(calls.beside[name] for name in calls.order if name.startswith("plain"))


async def test_what_was_lost_once_runs_beside_others(look: Any, start: Any) -> None:
    for number in range(4):
        await add_run(look, f"lost-once-{number}", 1)
    calls = Calls()
    await start(calls)
    await over(look, 4)
    assert all(calls.beside.values())


async def test_a_suspect_that_runs_on_is_accompanied_before_others_start(
    look: Any, start: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspects, "WINDOW", 0.2)
    job = await add_run(look, "suspect", 2)
    seen: dict[str, bool | None] = {}
    plain_started = asyncio.Event()

    async def run(call: Call) -> Outcome:
        seen[call.job] = await is_alone(store, job)
        if call.job == "suspect":
            await plain_started.wait()
        else:
            plain_started.set()
        return Succeeded()

    await start(run)
    await until(lambda: "suspect" in seen)
    await add_run(look, "plain")
    await over(look, 2)
    assert seen == {"suspect": True, "plain": None}


async def test_a_suspect_does_not_wait_for_ever_for_those_that_run(
    look: Any, start: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspects, "PATIENCE", 0.2)
    await add_run(look, "long")
    seen: dict[str, bool | None] = {}
    suspect_done = asyncio.Event()

    async def run(call: Call) -> Outcome:
        if call.job == "long":
            seen["long"] = True
            await suspect_done.wait()
        else:
            seen["suspect"] = await is_alone(store, job)
            suspect_done.set()
        return Succeeded()

    await start(run)
    await until(lambda: "long" in seen)
    job = await add_run(look, "suspect", 2)
    await over(look, 2)
    assert seen == {"long": True, "suspect": None}


async def test_leaving_in_good_order_counts_against_no_suspect(look: Any, start: Any, store: Store) -> None:
    started = asyncio.Event()

    async def hangs(_call: Call) -> Outcome:
        started.set()
        await asyncio.Event().wait()
        return Succeeded()

    job = await add_run(look, "suspect", 2, lost_alone=CRASH_CAP - 1)
    session = await start(hangs)
    await asyncio.wait_for(started.wait(), 10)
    assert await is_alone(store, job)
    await session.close(0)
    row = await look.fetchrow("SELECT owner, alone, lost_alone FROM live_runs")
    assert tuple(row) == (None, None, CRASH_CAP - 1)


async def test_the_loss_of_a_node_counts_against_the_suspect_that_it_tried_alone(
    look: Any, start: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that is lost writes nothing, also while it does not know yet that it is."""
    started, written = asyncio.Event(), []
    monkeypatch.setattr(LiveRunStore, "accompany", lambda *arguments: written.append(arguments))

    async def hangs(_call: Call) -> Outcome:
        started.set()
        await asyncio.Event().wait()
        return Succeeded()

    job = await add_run(look, "suspect", 2)
    session = await start(hangs)
    await asyncio.wait_for(started.wait(), 10)
    assert await is_alone(store, job)
    await store.nodes.leave(session.membership.node)
    await session.abandon()
    while await store.nodes.rescue(session.membership.node):
        pass
    row = await look.fetchrow("SELECT owner, crashes, lost_alone FROM live_runs")
    assert (tuple(row), written) == ((None, 3, 1), [])


async def test_what_waits_behind_a_long_trial_is_given_back_to_others(
    look: Any, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspects, "SHORT", 0.1)
    monkeypatch.setattr(suspects, "WINDOW", 60.0)
    seen: list[str] = []
    done = asyncio.Event()

    async def hangs(call: Call) -> Outcome:
        seen.append(call.job)
        if call.job == "suspect":
            await done.wait()
        return Succeeded()

    await add_run(look, "suspect", 2)
    await add_run(look, "plain")
    first = await start(hangs)
    await until(lambda: seen == ["suspect"])
    await until(
        lambda: look.fetchval("SELECT owner IS NULL FROM live_runs WHERE crashes = 0"), what="the plain run back"
    )
    assert first.worker.free_capacity == 0
    second = await start(hangs)
    await over(look, 1)
    assert await look.fetchval("SELECT node FROM run_history") == second.membership.node
    done.set()
    await over(look, 2)


@pytest.mark.parametrize(("late", "losses"), [(False, 4), (True, 5)], ids=["at once", "after a while"])
async def test_a_run_that_ends_its_node_is_given_up_and_its_neighbours_are_not(
    look: Any, start: Any, store: Store, monkeypatch: pytest.MonkeyPatch, late: bool, losses: int
) -> None:
    """A crash is an eviction here: from that moment on its node writes nothing, and what ran there has no outcome. The
    first two losses make the run a suspect, and two losses alone make it dead. One that ends its node late does so
    after the others may start, until its window is long enough: that loss does not count."""
    monkeypatch.setattr(suspects, "PATIENCE", 60.0)
    monkeypatch.setattr(suspects, "WINDOW", 0.1 if late else 60.0)
    monkeypatch.setattr(suspects, "doubled", lambda seconds, claim: seconds * 1000.0 ** (claim.crashes - 2))
    poison = await add_run(look, "poison")
    for number in range(CALM):
        await add_run(look, f"calm-{number}")
    session: Any = None
    opened, crashed = asyncio.Event(), asyncio.Event()
    crashes = 0

    async def run(call: Call) -> Outcome:
        if call.job != "poison":
            await asyncio.sleep(0.3)
            return Succeeded()
        await opened.wait()
        if late and crashes == 2:
            await until(lambda: _accompanied(store, poison), 60, "the others to be about to start")
        session.membership.lose("its process crashed")
        await store.nodes.leave(session.membership.node)
        crashed.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def decided() -> bool:
        return crashed.is_set() or bool(await look.fetchval("SELECT count(*) > $1 FROM run_history", CALM))

    while True:
        opened.clear()
        crashed.clear()
        session = await start(run, concurrency=20)
        opened.set()
        await until(decided, 60)
        if not crashed.is_set():
            break
        crashes += 1
        assert crashes <= losses
        await session.abandon()
    rows = await look.fetch("SELECT name, h.status, h.reason FROM run_history h JOIN jobs USING (job)")
    found = {row["name"]: (row["status"], row["reason"]) for row in rows}
    assert found.pop("poison") == (2, "lost")
    assert found == {f"calm-{number}": (1, None) for number in range(CALM)}
    assert crashes == losses


async def _accompanied(store: Store, job: int) -> bool:
    return not await is_alone(store, job)


async def test_other_runs_go_on_between_trials(look: Any, start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "MAX_HELD", 0.1)
    monkeypatch.setattr(suspects, "WINDOW", 0.2)
    monkeypatch.setattr(suspects, "PATIENCE", 0.2)
    for number in range(5):
        await add_run(look, f"suspect-{number}", 2)
    await add_run(look, "plain")
    order: list[str] = []
    plain_done = asyncio.Event()

    async def run(call: Call) -> Outcome:
        order.append(call.job)
        if call.job == "plain":
            plain_done.set()
        await plain_done.wait()
        return Succeeded()

    await start(run)
    await over(look, 6)
    assert order.index("plain") < 3


def test_patience_and_window_double_with_every_loss() -> None:
    claims = [Claim(1, 0, PAST + timedelta(0), 0, 1, 1, crashes=crashes) for crashes in (2, 3, 4, 30_000)]
    assert [suspects.doubled(5.0, claim) for claim in claims[:3]] == [5.0, 10.0, 20.0]
    assert suspects.doubled(5.0, claims[3]) == 5.0 * 2**suspects.MAX_DOUBLINGS
