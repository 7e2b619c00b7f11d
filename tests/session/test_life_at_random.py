"""People edit, pause, resume, skip and delete jobs at random, around the very instants at which these tick, while two
nodes fire them. Afterwards the ledger is compared with the schedules: nothing fired by being edited, nothing after a
pause or a deletion was acknowledged, no tick is lost, none is doubled.

Half of the jobs are changed by one person at a time, whose acknowledgements are kept and checked; the others by all
at once, so that changes race each other, too."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from detent.contract.job import OnResume
from detent.domain.identity import RunKey, decode_run_id
from detent.domain.job import HttpTarget, JobSpec
from detent.domain.run import Call, Outcome, Succeeded
from detent.errors import Conflict, NotFound, UsageError
from detent.jobs import JobOperations
from detent.store import Store
from tests.support.waiting import until

HTTP = HttpTarget(url="http://127.0.0.1:9/")
SCHEDULES: tuple[dict[str, Any], ...] = (
    {"schedule": "every 1s"},
    {"schedule": "* * * * * *"},
    {"schedule": "*/2 * * * * *", "timezone": "Europe/Berlin"},
    {"schedule": "* * * * * *", "timezone": "Asia/Kathmandu"},
    {"schedule": "every 1500ms"},
)
JOBS = 12
PEOPLE = 8
SECOND = timedelta(seconds=1)


@dataclass
class Watched:
    """A job that one person at a time changes, and from when to when nothing of it may tick."""

    id: UUID
    alone: asyncio.Lock | None
    silent: list[tuple[datetime, datetime]] = field(default_factory=list)
    since: datetime | None = None


class World:
    def __init__(self, store: Store, look: Any, seed: int) -> None:
        self.store = store
        self.look = look
        self.chance = random.Random(seed)
        self.jobs: list[Watched] = []
        self.deleted: list[Watched] = []
        self.calls: Counter[str] = Counter()
        self.ticks: set[RunKey] = set()
        self.done: Counter[str] = Counter()
        self._looking = asyncio.Lock()

    async def runner(self, call: Call) -> Outcome:
        self.calls[call.idempotency_key] += 1
        key = decode_run_id(UUID(call.run_id))
        assert key is not None
        self.ticks.add(key)
        return Succeeded()

    async def now(self) -> datetime:
        async with self._looking:
            moment: datetime = await self.look.fetchval("SELECT clock_timestamp()")
            return moment

    async def make(self) -> Watched:
        fields = self.chance.choice(SCHEDULES)
        (job,) = await JobOperations(self.store).registration.add(
            [JobSpec(target=HTTP, concurrent_policy="ALLOW", **fields)], by="maker"
        )
        watched = Watched(job.id, asyncio.Lock() if self.chance.random() < 0.5 else None)
        self.jobs.append(watched)
        return watched

    async def near_a_tick(self) -> None:
        """Most ticks are on full seconds: come some milliseconds before or after one."""
        now = await self.now()
        ahead = 1 - now.microsecond / 1_000_000
        await asyncio.sleep(max(ahead + self.chance.gauss(0, 0.02), 0))

    async def live(self, operations: int) -> None:
        for _ in range(operations):
            await self.near_a_tick()
            job = self.chance.choice(self.jobs)
            async with job.alone or contextlib.nullcontext():
                if job in self.jobs:
                    await self.change(job)

    async def change(self, job: Watched) -> None:
        name = self.chance.choice(("edit", "edit", "touch", "pause", "pause", "resume", "resume", "skip", "delete"))
        before = await self.now()
        try:
            await getattr(self, name)(job)
        except (Conflict, NotFound, UsageError):  # another person was faster, or the tick is past
            return
        self.done[name] += 1
        self.note(job, name, before, await self.now())

    def note(self, job: Watched, name: str, before: datetime, after: datetime) -> None:
        """From the acknowledgement of a pause to the request that ends it nothing may tick."""
        if job.alone is None:
            return
        if name in ("pause", "delete") and job.since is None:
            job.since = after
        elif name == "resume" and job.since is not None:
            job.silent.append((job.since, before))
            job.since = None

    async def edit(self, job: Watched) -> None:
        await JobOperations(self.store).registration.patch(job.id, self.chance.choice(SCHEDULES), by="editor")

    async def touch(self, job: Watched) -> None:
        await JobOperations(self.store).registration.patch(job.id, {"payload": self.chance.random()})

    async def pause(self, job: Watched) -> None:
        await JobOperations(self.store).lifecycle.pause(job.id, "at random")

    async def resume(self, job: Watched) -> None:
        choices: tuple[OnResume, ...] = ("skip", "once", "all")
        on_resume = self.chance.choice(choices) if job.alone is None else "skip"
        await JobOperations(self.store).lifecycle.resume(job.id, on_resume=on_resume)

    async def skip(self, job: Watched) -> None:
        found = await self.store.jobs.get(job.id)
        if found is not None and found.next_run_at is not None and found.next_run_at > await self.now():
            await JobOperations(self.store).lifecycle.skip(job.id, found.next_run_at)

    async def delete(self, job: Watched) -> None:
        await JobOperations(self.store).lifecycle.delete(job.id)
        self.jobs.remove(job)
        self.deleted.append(job)
        await self.make()

    # --- what must hold ---

    async def nothing_in_silence(self) -> None:
        end = await self.now()
        for job in [*self.jobs, *self.deleted]:
            number = await self.store.jobs.number(job.id)
            silences = [*job.silent, *([(job.since, end)] if job.since is not None else [])]
            heard = [key for key in self.ticks if key.job == number and not key.manual]
            for since, to in silences:
                assert not [key for key in heard if since < key.scheduled_at <= to], (job, since, to)

    async def every_tick_accounted_for(self, start: datetime) -> Counter[str]:
        window = (start, await self.now())
        found, following = await JobOperations(self.store).audit.audit(window, limit=100_000)
        while following is not None:
            more, following = await JobOperations(self.store).audit.audit(window, behind=following, limit=100_000)
            found += more
        total: Counter[str] = Counter()
        for _, name, account in found:
            assert account.clean, (name, account)
            total.update(account.accounted)
        return total


@pytest.mark.parametrize(
    "operations", [60, pytest.param(2_000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])], ids=["some", "many"]
)
async def test_jobs_that_are_changed_around_their_ticks_lose_none_and_double_none(
    store: Store, look: Any, start: Any, operations: int
) -> None:
    world = World(store, look, seed=operations)
    began = await world.now()
    for _ in range(JOBS):
        await world.make()
    for _ in range(2):
        await start(world.runner, concurrency=50)
    await asyncio.gather(*(world.live(operations // PEOPLE + 1) for _ in range(PEOPLE)))
    for job in world.jobs:
        await JobOperations(store).lifecycle.pause(job.id)

    async def settled() -> bool:
        return not await look.fetchval("SELECT EXISTS (SELECT FROM live_runs)")

    await until(settled, 30, "runs to end")
    await world.nothing_in_silence()
    assert max(world.calls.values()) == 1
    total = await world.every_tick_accounted_for(began)
    assert total["succeeded"] == len([key for key in world.ticks if not key.manual])
    assert total["skipped: paused"] > 0
    assert sum(world.done.values()) >= operations / 2
