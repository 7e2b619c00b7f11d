"""Periodic housekeeping by one node for all: drop old history, correct counts, remove leftovers.

An expired partition of history goes through four states. A process may die in any of them, and the next one continues
from there:

    attached     readers and writers see it
    detaching    new transactions do not see it; the detach waits for those that do
    detached     a separate table: rows that ended lately, although their tick is old, move back into history, which
                 gets a new partition for them; then the table no longer changes and is archived, if configured
    gone         dropped, after its archive is complete
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from detent.errors import DetentError
from detent.store import Store
from detent.store.leftovers import MarkedRow, Shared, Used
from detent.store.retention import Part
from detent.telemetry.log import logger
from detent.upkeep.archive import ArchiveLocation, write

log = logger("retention")

TURN = timedelta(minutes=5)
LOOK_SECONDS = 120.0
PAGES_A_TURN = 20
REVISIONS = 100
AUDIT_DAYS = 365
# With fewer rows than this, finding the unused ones is not worth a scan of all jobs.
SPARED: dict[Shared, int] = {"schedules": 1_000, "queues": 200}
UNUSED_FOR = timedelta(days=1)
AT_ONCE = 1_000


class UpkeepTask(NamedTuple):
    name: str
    every: timedelta
    do: Callable[[], Awaitable[None]]


class TurnLost(Exception):  # noqa: N818 - it says what happened
    """The task took so long that another node continues it."""


class Keeper:
    def __init__(
        self,
        store: Store,
        node: int,
        days: int,
        archive: ArchiveLocation | None,
        present: Callable[[], datetime | None],
        revisions: int = REVISIONS,
        audit_days: int = AUDIT_DAYS,
    ) -> None:
        """`present` returns the time if the clock has been steady for a while: after a clock step nothing may expire.
        `revisions`: how many former revisions of each job are kept; `audit_days`: how long the audit log is."""
        self._audit_days = audit_days
        self._revisions = revisions
        self._store = store
        self._present = present
        self._node = node
        self._days = days
        self._archive = archive
        self._tasks = (
            UpkeepTask("history", timedelta(hours=1), self.retire_history),
            UpkeepTask("counts", timedelta(hours=6), self._correct_counts),
            UpkeepTask("reservations", timedelta(minutes=10), self._give_up_reservations),
            UpkeepTask("leftovers", timedelta(hours=1), self._purge_leftovers),
            UpkeepTask("effects", timedelta(minutes=10), self._purge_effects),
            UpkeepTask("audit log", timedelta(hours=1), self._purge_events),
            UpkeepTask("growth", timedelta(days=1), self._purge_unused),
        )

    async def tick(self) -> float:
        for task in self._tasks:
            if not await self._store.retention.take_turn(task.name, self._node, TURN, task.every):
                continue
            try:
                await task.do()
            except TurnLost:
                continue
            except DetentError as error:
                # The turn is not ended, so that the task is due again when the turn expires, not after a whole period.
                log.warning("housekeeping task failed; it is retried", task=task.name, error=str(error))
                continue
            await self._store.retention.end_turn(task.name, self._node)
        return LOOK_SECONDS

    # --- history ---

    async def retire_history(self) -> None:
        """Drop every expired partition; a failure with one does not stop the others."""
        for part in await self._store.retention.expired(self._days, self._present()):
            await self._go_on("history")
            try:
                await self._retire(part)
            except (DetentError, OSError) as error:
                log.warning("a partition of history is not dropped yet", partition=part.name, error=str(error))

    async def _retire(self, listed: Part) -> None:
        store = self._store.retention
        part = await store.reread(listed, self._days, self._present())
        if part is None:
            return
        if part.state in ("attached", "detaching"):
            await store.detach(part)
        while part.state != "gone" and await store.keep_late(part, self._days, self._present()):
            await self._go_on("history")
        if self._archive is not None and not part.archived and part.state != "gone":
            await self._put_away(part, self._archive)
        await store.drop(part)
        log.info(
            "history dropped", partition=part.name, until=part.until.isoformat(), archived=self._archive is not None
        )

    async def _put_away(self, part: Part, place: ArchiveLocation) -> None:
        """The number makes the name unique: a second partition of the same day, for late rows, gets another name."""
        done = await write(place, f"{part.parent}/{part.name}.{part.part}.jsonl.gz", self._lines(part))
        there = await self._store.retention.count(part)
        if done.rows != there:
            raise DetentError(f"The archive of {part.name} has {done.rows} rows of {there}: it is written again.")
        await self._store.retention.archived(part, *done)

    async def _lines(self, part: Part) -> AsyncIterator[list[str]]:
        pages = 0
        async for page in self._store.retention.lines(part):
            pages += 1
            if pages % PAGES_A_TURN == 0:
                await self._go_on("history")
            yield page

    async def _go_on(self, task: str) -> None:
        if not await self._store.retention.keep_turn(task, self._node, TURN):
            raise TurnLost

    # --- counts and leftovers ---

    async def _correct_counts(self) -> None:
        await self._store.tenants.recount()

    async def _give_up_reservations(self) -> None:
        jobs = await self._store.tenants.release_stale()
        if jobs:
            log.warning("quota reserved for jobs that were never registered is released", jobs=jobs)

    async def _purge_leftovers(self) -> None:
        while await self._store.retention.purge_jobs(self._days):
            await self._go_on("leftovers")
        while await self._store.retention.purge_payloads(self._days):
            await self._go_on("leftovers")
        while await self._store.retention.purge_progress():
            await self._go_on("leftovers")
        while await self._store.expectations.purge(self._days):
            await self._go_on("leftovers")
        while await self._store.alerts.purge(self._days):
            await self._go_on("leftovers")
        while await self._store.set_aside.purge():
            await self._go_on("leftovers")
        async for _ in self._store.tasks.purge_keys():
            await self._go_on("leftovers")
        await self._store.retention.purge_workers(self._days)
        await self._store.retention.purge_skips(self._days)

    async def _purge_effects(self) -> None:
        async for _ in self._store.effect_ledger.purge_steps():
            await self._go_on("effects")
        while await self._store.effect_ledger.purge_marks():
            await self._go_on("effects")

    async def _purge_events(self) -> None:
        while await self._store.audit_log.purge(self._audit_days, self._present()):
            await self._go_on("audit log")

    # --- unused rows, found by scanning all jobs ---

    async def _purge_unused(self) -> None:
        store = self._store.leftovers
        gone = {"revisions": 0, "spans": 0}
        async for count in store.purge_revisions(self._revisions):
            gone["revisions"] += count
            await self._go_on("growth")
        async for count in store.purge_segments(self._days, self._present()):
            gone["spans"] += count
            await self._go_on("growth")
        removed = await self._purge_shared()
        if any((removed | gone).values()):
            log.info("unused rows removed", **gone, **removed)

    async def _purge_shared(self) -> dict[Shared, int]:
        """An unused schedule or queue is marked, and removed a day later if it is still unused. A registration that
        uses it meanwhile removes the mark, so neither has to wait for the other."""
        known: dict[Shared, list[MarkedRow]] = {kind: await self._listed(kind) for kind in SPARED}
        many = [kind for kind, spared in SPARED.items() if len(known[kind]) > spared]
        if not many:
            return {}
        used: Used = {kind: set() for kind in SPARED}
        async for some in self._store.leftovers.used():
            for kind, numbers in some.items():
                used[kind] |= numbers
            await self._go_on("growth")
        return {kind: await self._sweep(kind, known[kind], used[kind]) for kind in many}

    async def _sweep(self, kind: Shared, known: list[MarkedRow], used: set[int]) -> int:
        store = self._store.leftovers
        gone = 0
        for part in _in_parts([one.number for one in known if one.number not in used]):
            gone += await store.purge_unused(kind, part, UNUSED_FOR, self._present())
            await self._go_on("growth")
        for part in _in_parts([one.number for one in known if not one.marked and one.number not in used]):
            await store.mark(kind, part, [])
        for part in _in_parts([one.number for one in known if one.marked and one.number in used]):
            await store.mark(kind, [], part)
        return gone

    async def _listed(self, kind: Shared) -> list[MarkedRow]:
        found: list[MarkedRow] = []
        while page := await self._store.leftovers.listed(kind, found[-1].number if found else 0):
            found += page
            await self._go_on("growth")
        return found


def _in_parts(numbers: list[int]) -> Iterator[list[int]]:
    return (numbers[start : start + AT_ONCE] for start in range(0, len(numbers), AT_ONCE))
