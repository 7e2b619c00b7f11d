"""Everything is down for six hours: what runs afterwards, in which order, how fast, and what is on record.

The outage is produced by setting the database's clock while no node runs. The test derives the expected fate of each
tick by applying the documented rule tick by tick; the product computes it by counting. A node decides about a job's
ticks at a moment that is not known to the millisecond: its decision must be right for some moment of a short interval.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from detent.domain.job import HttpTarget, JobSpec
from detent.domain.job_schedule import schedule_of
from detent.domain.misfire import AUTOMATIC, THRESHOLD, grace_period
from detent.domain.run import Call, Outcome, Succeeded
from detent.domain.schedule import Schedule
from detent.jobs import JobOperations
from detent.store import Store
from tests.failover.database_servers import Process, Servers, opened
from tests.failover.set_clock import Clock
from tests.support.waiting import until

OUTAGE = timedelta(hours=6)
RATE = 25.0
BURST = 0.25 * RATE + 1
EVER = 7 * 24 * 3600

SCHEDULES = (
    *("every 5s", "every 1m", "every 90s", "every 7m", "every 1h", "every 2h", "every 5h", "*/5 * * * *"),
    *("7,37 * * * *", "15 */2 * * *", "30 4 * * *", "RRULE:FREQ=HOURLY;BYMINUTE=10,50"),
)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")
MISSED = ("RUN_ONCE", "SKIP", "RUN_ALL")
GRACES: tuple[Any, ...] = ("auto", "auto", 0, 1800, 7200, EVER)
LIMITS = (1, 5, 100, 400)
OVERLAPS = ("SKIP", "SKIP", "ALLOW", "QUEUE")


def specs(count: int, seed: int = 6) -> list[JobSpec]:
    """Every policy with every schedule; random graces, limits and zones from a fixed seed."""
    chance = random.Random(seed)
    pairs = [(missed, schedule) for missed in MISSED for schedule in SCHEDULES]
    return [
        JobSpec(
            name=f"job-{number:03}",
            schedule=pairs[number % len(pairs)][1],
            timezone=chance.choice(ZONES),
            target=HttpTarget(url="http://127.0.0.1:9/"),
            missed_window=pairs[number % len(pairs)][0],  # type: ignore[arg-type]  # one of the three words
            misfire_grace_seconds=chance.choice(GRACES),
            max_missed=chance.choice(LIMITS),
            concurrent_policy=chance.choice(OVERLAPS),  # type: ignore[arg-type]  # as above
        )
        for number in range(count)
    ]


class Job(NamedTuple):
    number: int
    spec: JobSpec
    schedule: Schedule
    first: datetime
    partition: int


class Window(NamedTuple):
    """When ticks were judged, and how long afterwards everything was looked at."""

    opened: datetime
    judged: datetime
    looked: datetime


async def register(store: Store, session: Any, count: int) -> list[Job]:
    await JobOperations(store).registration.add(specs(count))
    rows = await session.fetch("SELECT * FROM jobs JOIN cursors USING (job, partition) ORDER BY job")
    return [
        Job(row["job"], spec, schedule_of(spec, row["tenant"], row["created_at"]), row["next_tick"], row["partition"])
        for row, spec in zip(rows, specs(count), strict=True)
    ]


# --- the rule, walked through ---


def fates(job: Job, now: datetime, until_: datetime) -> dict[datetime, str]:
    """What becomes of each tick up to `until_` when those before `now` are judged at `now`."""
    ticks = [job.first, *job.schedule.between(job.first, until_, 100_000)] if job.first <= until_ else []
    misfires = [tick for tick in ticks if now - tick > THRESHOLD]
    inside = [tick for tick in misfires if now - tick <= _grace(job, tick)]
    told = dict.fromkeys(ticks, "succeeded")
    match job.spec.missed_window:
        case "SKIP":
            told |= dict.fromkeys(misfires, "policy")
        case "RUN_ONCE":
            runs = misfires[-1:] if misfires and misfires[-1] in inside else []
            told |= dict.fromkeys(misfires, "merged" if runs else "grace") | dict.fromkeys(runs, "succeeded")
        case "RUN_ALL":
            told |= dict.fromkeys(misfires, "grace") | dict.fromkeys(inside, "limit")
            told |= dict.fromkeys(inside[: job.spec.max_missed], "succeeded")
    return told


def _grace(job: Job, tick: datetime) -> timedelta:
    grace = job.spec.misfire_grace_seconds
    return grace_period(AUTOMATIC if grace == "auto" else grace, tick, job.schedule.next_after(tick))


def moments(job: Job, window: Window) -> Iterator[datetime]:
    """A moment for every way in which the ticks could have been judged in the time in question."""
    edges = {window.opened, window.judged}
    near = window.opened - timedelta(days=1)
    for tick in [job.first, *job.schedule.between(job.first, window.judged, 100_000)]:
        for edge in (tick + THRESHOLD, tick + _grace(job, tick)):
            if window.opened <= edge <= window.judged and tick > near:
                edges.add(edge)
    ordered = sorted(edges)
    yield from ordered
    yield from (one + (other - one) / 2 for one, other in pairwise(ordered))


# --- what is on record ---


class Record(NamedTuple):
    fates: dict[datetime, str]
    starts: list[tuple[datetime, datetime]]


async def record_of(session: Any, job: Job) -> Record:
    """Each tick with its fate, ranges spelt out, and the runs in the order in which they started."""
    rows = await session.fetch("SELECT * FROM run_history WHERE job = $1 ORDER BY scheduled_at, serial", job.number)
    told: dict[datetime, str] = {}
    starts: list[tuple[datetime, datetime]] = []
    for row in rows:
        if row["status"] == 1:
            starts.append((row["started_at"], row["scheduled_at"]))
        fate = "succeeded" if row["status"] == 1 else row["reason"]
        ticks = [row["scheduled_at"]]
        if row["until"] is not None:
            ticks += job.schedule.between(row["scheduled_at"], row["until"], 100_000)
            assert len(ticks) == row["ticks"], "a range says how many ticks it has"
        for tick in ticks:
            assert tick not in told, f"{job.spec.name}: {tick} is on record twice"
            told[tick] = fate
    return Record(told, sorted(starts))


# --- the test ---


@pytest.fixture
def clock(folder: Path) -> Clock:
    return Clock(folder)


async def no_op(_call: Call) -> Outcome:
    return Succeeded()


@pytest.mark.parametrize(
    "count", [pytest.param(36, id="36 jobs"), pytest.param(500, id="500 jobs", marks=pytest.mark.long)]
)
@pytest.mark.timeout(900)
async def test_after_six_hours_each_policy_runs_what_it_says(servers: Servers, clock: Clock, count: int) -> None:
    server = await servers.primary(**clock.variables())
    async with opened(server.url) as store, server.session() as session:
        jobs = await register(store, session, count)
    await server.stop()
    clock.set(f"+{OUTAGE.total_seconds():.0f}s")
    await server.start()
    async with opened(server.url) as store, server.session() as session:
        opened_at = await session.fetchval("SELECT now()")
        settings = {"ttl": 5.0, "catchup_rate": RATE}
        async with Process(store, no_op, **settings), Process(store, no_op, **settings):
            judged = await until(lambda: all_judged(session, opened_at), 120, "all cursors to be live again")
            await until(lambda: made_up(session), 600, "all missed ticks to be made up for")
            await until(lambda: live_ticks(session, judged), 60, "some live ticks")
        looked = await session.fetchval("SELECT now()")
        window = Window(opened_at, judged, looked)
        records = {job.number: await record_of(session, job) for job in jobs}
        await until(lambda: clean(store, window), 30, "a clean audit")
    for job in jobs:
        judge(job, records[job.number], window)
    print(rates(jobs, records, window), lateness(records, window))  # noqa: T201 - the figures are the evidence


async def all_judged(session: Any, opened_at: datetime) -> datetime | None:
    """Now, if no cursor stands on a tick that was missed in the outage."""
    row = await session.fetchrow(
        "SELECT now() AS now, bool_and(next_tick IS NULL OR next_tick > $1::timestamptz - interval '60 s') AS live"
        " FROM cursors",
        opened_at,
    )
    return row["now"] if row["live"] else None


async def live_ticks(session: Any, judged: datetime) -> bool:
    count = await session.fetchval("SELECT count(*) FROM run_history WHERE status = 1 AND scheduled_at > $1", judged)
    return int(count) >= 5


async def made_up(session: Any) -> bool:
    return bool(
        await session.fetchval("SELECT NOT EXISTS (SELECT FROM catchups) AND NOT EXISTS (SELECT FROM live_runs)")
    )


async def clean(store: Store, window: Window) -> bool:
    behind: int | None = 0
    while behind is not None:
        found, behind = await JobOperations(store).audit.audit((window.opened - OUTAGE, window.judged), behind=behind)
        if not all(each.account.clean for each in found):
            return False
    return True


def judge(job: Job, record: Record, window: Window) -> None:
    last = max(record.fates, default=job.first)
    possible = [fates(job, moment, max(last, window.judged)) for moment in moments(job, window)]
    past = {tick: fate for tick, fate in record.fates.items() if tick <= window.judged}
    matching = [
        told for told in possible if {tick: fate for tick, fate in told.items() if tick <= window.judged} == past
    ]
    assert matching, (job.spec, past, possible[0])
    assert set(record.fates.values()) <= {"succeeded", "policy", "merged", "grace", "limit"}, "nothing was skipped"
    if job.spec.missed_window == "RUN_ALL" and job.spec.concurrent_policy != "ALLOW":
        missed = [tick for _, tick in record.starts if window.opened - tick > THRESHOLD]
        assert missed == sorted(missed), f"{job.spec.name} made up for its ticks in another order"


def rates(jobs: list[Job], records: dict[int, Record], window: Window) -> str:
    """How fast the partitions made up for what they missed: no second of any had more than the rate and a burst."""
    most: Counter[int] = Counter()
    total = 0
    by_partition: dict[int, list[datetime]] = {}
    for job in jobs:
        if job.spec.missed_window != "RUN_ALL":
            continue
        late = [start for start, tick in records[job.number].starts if window.opened - tick > THRESHOLD]
        if len(late) > 1:
            by_partition.setdefault(job.partition, []).extend(late)
            total += len(late)
    for partition, starts in by_partition.items():
        ordered = sorted(starts)
        for position, start in enumerate(ordered):
            inside = sum(other < start + timedelta(seconds=4) for other in ordered[position:])
            most[partition] = max(most[partition], inside)
    worst = max(most.values(), default=0)
    assert worst <= 4 * RATE + 2 * BURST, f"{worst} ticks in four seconds of a partition"
    return f"{total} ticks made up for, at most {worst / 4:g} per second of a partition;"


def lateness(records: dict[int, Record], window: Window) -> str:
    live = sorted(
        (start - tick).total_seconds()
        for record in records.values()
        for start, tick in record.starts
        if tick > window.judged
    )
    if not live:
        return "no live tick"
    assert live[len(live) // 2] < 1.0, "live ticks were late while others were made up for"
    return f"{len(live)} live ticks, late by {live[len(live) // 2]:.3f} s (median), {live[-1]:.3f} s (worst)"
