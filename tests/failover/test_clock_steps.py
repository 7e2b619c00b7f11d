"""The database's clock steps: nothing fires because of it before an operator resumes the ticks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from detent.cluster.clock_watch import ClockWatch, steady_seconds
from detent.cluster.operations import ClusterOperations
from detent.runtime.clock import monotonic
from detent.store import Store
from tests.failover.database_servers import Process, Servers, opened
from tests.failover.set_clock import Clock
from tests.support.factories import add_job
from tests.support.fleet.servers import Server
from tests.support.waiting import until

HOLD = "SELECT held_reason FROM cluster WHERE held_at IS NOT NULL"
SECONDS_RUNS = "SELECT count(*) FROM run_history h JOIN jobs j USING (job) WHERE j.name = 'often' AND h.status = 1"
HOURLY = "SELECT count(*) FROM run_history h JOIN jobs j USING (job) WHERE j.name LIKE 'hourly%'"
YOUNG = "SELECT count(*) FROM nodes WHERE beat_at > now() - ttl AND steady_since < now() - interval '1 hour'"
STEADY = "SELECT count(*) = 1 FROM nodes WHERE steady_since < now() - interval '1 hour'"
HOURS = 8


@pytest.fixture
def clock(folder: Path) -> Clock:
    return Clock(folder)


@pytest.fixture
async def server(servers: Servers, clock: Clock) -> Server:
    return await servers.primary(**clock.variables())


async def ask(server: Server, question: str, *arguments: Any) -> Any:
    async with server.session() as session:
        return await session.fetchval(question, *arguments)


async def make_jobs(server: Server) -> None:
    """One that ticks every second, and some that tick every hour, in 20 minutes for the first time."""
    async with server.session() as session:
        now = await session.fetchval("SELECT date_trunc('second', now())")
        await add_job(session, now, every="every 1s", name="often")
        first = now.replace(second=0) + timedelta(minutes=20)
        for number in range(HOURS):
            await add_job(session, first, every=f"{first.minute} * * * *", name=f"hourly-{number}")


async def work_begins(server: Server, *processes: Process) -> None:
    await until(lambda: ask(server, f"SELECT ({SECONDS_RUNS}) > 1"), 30, "ticks to fire")
    await until(lambda: all(process.session for process in processes), 30, "all nodes to have joined")


async def has_gone_on(*processes: Process) -> None:
    """Wait until the effects of the step on memberships are over: all partitions are led, and all nodes sent a
    heartbeat."""
    begun = monotonic()

    def settled() -> bool:
        present = [process.session for process in processes if process.session]
        led = sum(len(session.leadership.terms) for session in present)
        beaten = all(session.membership.beat_at > begun for session in present)
        return led == 256 and len(present) == len(processes) and beaten

    await until(settled, 30, "the partitions to be led again")


async def test_a_clock_that_steps_forward_by_a_day_holds_all_ticks_until_an_operator_resumes(
    server: Server, clock: Clock
) -> None:
    await make_jobs(server)
    async with opened(server.url) as store, Process(store) as one, Process(store) as other:
        await work_begins(server, one, other)
        clock.set("+1d")
        reason = await until(lambda: ask(server, HOLD), 30, "the hold")
        assert "the database's clock stepped forward by" in reason
        assert await ask(server, YOUNG) == 0, "no node that was there confirms that the clock is steady"
        assert await ask(server, "SELECT held_by FROM cluster") == "clock"
        before = await ask(server, SECONDS_RUNS)
        await has_gone_on(one, other)
        assert await ask(server, HOURLY) == 0
        assert await ask(server, SECONDS_RUNS) <= before + 1, "a run that was fired before may end after"
        await ClusterOperations(store).resume_ticks()
        await until(lambda: ask(server, f"SELECT ({SECONDS_RUNS}) > {before} + 2"), 30, "ticks to fire again")
        await until(lambda: ask(server, f"SELECT ({HOURLY}) >= {HOURS}"), 30, "the hours to be accounted for")
    most = "SELECT max(n) FROM (SELECT count(*) AS n FROM ({}) r GROUP BY job) c"
    runs = "SELECT job FROM run_history JOIN jobs j USING (job) WHERE j.name LIKE 'hourly%' AND run_history.status = 1"
    assert (await ask(server, most.format(runs)) or 0) <= 1, "a day of missed hours is one run, not 24"


async def test_a_clock_that_steps_back_by_a_day_holds_all_ticks_too(server: Server, clock: Clock) -> None:
    await make_jobs(server)
    async with opened(server.url) as store, Process(store) as one:
        await work_begins(server, one)
        clock.set("-1d")
        assert "stepped back by" in await until(lambda: ask(server, HOLD), 30, "the hold")
        await has_gone_on(one)
        before = await ask(server, SECONDS_RUNS)
        await ClusterOperations(store).resume_ticks()
        clock.set("+0")  # a step again, forward this time
        await until(lambda: ask(server, HOLD), 30, "the second hold")
        await ClusterOperations(store).resume_ticks()
        await until(lambda: ask(server, f"SELECT ({SECONDS_RUNS}) > {before}"), 30, "ticks to fire again")
        assert await ask(server, HOURLY) == 0


@pytest.mark.long
async def test_a_small_step_is_taken_as_it_is(server: Server, clock: Clock) -> None:
    await make_jobs(server)
    async with opened(server.url) as store, Process(store) as one:
        await work_begins(server, one)
        clock.set("+25m")
        await until(lambda: ask(server, f"SELECT ({HOURLY}) >= {HOURS}"), 30, "the hour that came to be fired")
        clock.set("+5m")
        await has_gone_on(one)
        assert await ask(server, HOLD) is None
    assert await ask(server, HOURLY) == HOURS


@pytest.mark.long
async def test_without_a_limit_no_step_holds_anything(server: Server, clock: Clock) -> None:
    await make_jobs(server)
    async with opened(server.url) as store, Process(store, clock_step_limit_seconds=0) as one:
        await work_begins(server, one)
        clock.set("+1d")
        await until(lambda: ask(server, f"SELECT ({HOURLY}) >= {HOURS}"), 30, "the hours to be accounted for")
        assert await ask(server, HOLD) is None
        await has_gone_on(one)


async def test_a_process_that_starts_after_the_step_waits_for_those_who_saw_it(server: Server, clock: Clock) -> None:
    await make_jobs(server)
    async with opened(server.url) as store, opened(server.url) as another, Process(store) as witness:
        await work_begins(server, witness)
        clock.set("+1d")
        async with Process(another) as newcomer:
            await until(lambda: newcomer.session, 30, "the new process to join")
            assert await ask(server, HOLD), "the nodes that were there reported first"
            await has_gone_on(witness, newcomer)
            assert await ask(server, HOURLY) == 0


async def test_a_node_that_merely_slept_holds_nothing(server: Server) -> None:
    """Its own clock stood still, as that of a machine which its host had paused; others were there all the time."""
    slept = 0.0
    async with opened(server.url) as store, Process(store) as steady, Process(store) as sleeper:
        await until(lambda: steady.session and sleeper.session, 30)
        await make_jobs(server)
        sleeper.guard.watch = stubborn = ClockWatch(1800, lambda: steady_seconds() - slept)
        await lose(sleeper)
        steady.guard.watch._steady_since = await long_ago(store)  # two hours of watching, without waiting for them
        await until(lambda: ask(server, STEADY), 30, "one of them to have been steady for an hour")
        await until(lambda: not stubborn.new, 30, "a first look at the time")
        slept = 7200.0
        assert stubborn.step(await store.upkeep.now()) is not None
        await until(lambda: stubborn.step(datetime.now(UTC)) is None, 30, "the step to be looked into")
        assert await ask(server, HOLD) is None
        await until(lambda: ask(server, SECONDS_RUNS), 30, "ticks to fire")


async def lose(process: Process) -> None:
    session = process.session
    assert session is not None
    session.membership.lose("for the test")
    await until(lambda: process.session not in (None, session), 30, "it to join again")


async def long_ago(store: Store) -> datetime:
    return await store.upkeep.now() - timedelta(hours=2)


# --- the watch, without a server ---

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Hands:
    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def test_a_watch_sees_the_difference_between_two_clocks() -> None:
    hands = Hands()
    watch = ClockWatch(60, hands)
    assert watch.step(NOON) is None, "there is nothing to compare with"
    watch.observe(NOON)
    hands.seconds += 3600  # suspended for an hour: both clocks counted it
    assert watch.step(NOON + timedelta(hours=1)) is None
    assert watch.step(NOON + timedelta(hours=1, seconds=59)) is None
    assert watch.step(NOON + timedelta(hours=1, seconds=61)) == timedelta(seconds=61)
    assert watch.step(NOON) == timedelta(hours=-1)


def test_small_steps_do_not_add_up() -> None:
    hands = Hands()
    watch = ClockWatch(60, hands)
    for minute in range(100):
        assert watch.step(NOON + timedelta(seconds=50 * minute)) is None
        watch.observe(NOON + timedelta(seconds=50 * minute))


def test_after_a_step_was_examined_the_next_time_is_trusted() -> None:
    hands = Hands()
    watch = ClockWatch(60, hands)
    watch.observe(NOON)
    assert watch.expectation().steady_since == NOON
    watch.begin_again()
    assert watch.step(NOON + timedelta(days=1)) is None
    watch.observe(NOON + timedelta(days=1))
    assert watch.expectation().steady_since == NOON + timedelta(days=1)


def test_without_a_limit_nothing_is_expected() -> None:
    watch = ClockWatch(0, Hands())
    watch.observe(NOON)
    assert watch.expectation().at is None
    assert watch.step(NOON + timedelta(days=1)) is None
