"""The ledger compared with what was expected: the status of each tick of a job, and an audit of many jobs.

History is read by the day, or by the hour where ticks are many, a few jobs at a time: each reading is short, and it
yields to the event loop, which also fires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import chain
from typing import NamedTuple
from uuid import UUID

from detent.domain.ledger import Account, LedgerSegment, Unread, expected_ticks, settle_account
from detent.domain.ledger_ticks import TickStatus, tick_statuses
from detent.domain.schedule import Schedule, tzdata_version
from detent.runtime.arithmetic import compute
from detent.store import Store
from detent.store.db import Row
from detent.store.jobs import DEFAULT_TENANT, number_of
from detent.store.ledger import LedgerStore, Reading
from detent.store.stored_schedules import UnreadableSchedule, read_schedule
from detent.telemetry.log import logger

log = logger("jobs")

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
MICROSECOND = timedelta(microseconds=1)
MAX_OF_A_DAY = 20_000
TICKS_OF_A_PAGE = 200_000
READINGS_OF_A_PAGE = 200
MANY_ENTRIES = 1_000  # computing and comparing so many ticks takes ten milliseconds


class JobAccount(NamedTuple):
    """A job with the account of its ticks."""

    id: UUID
    name: str
    account: Account


class RecordedTicks(NamedTuple):
    """Ticks of a job with their status, and the tick to continue after; None: these were the last."""

    job: int
    zone: tzinfo
    ticks: list[TickStatus]
    following: datetime | None


class LedgerAudit:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._ledger = store.ledger

    async def audit(
        self,
        window: tuple[datetime, datetime],
        jobs: Sequence[int] | None = None,
        *,
        behind: int = 0,
        limit: int = 100,
        late_after: timedelta = timedelta(seconds=1),
        overdue_before: datetime | None = None,
        tenant: int = DEFAULT_TENANT,
    ) -> tuple[list[JobAccount], int | None]:
        """The accounts of jobs in (after, until], and the value to pass as `behind` for the next page (None: the last
        one). A page ends early after very many ticks or readings. Ticks that should have fired before `overdue_before`
        and that the cursor is still at count as overdue."""
        found = await self._ledger.audited_jobs(window, jobs, behind=behind, limit=limit + 1, tenant=tenant)
        audited: list[JobAccount] = []
        ticks = 0
        auditor = Auditor(self._ledger, window, late_after, overdue_before)
        for chunk, length in _chunks(found[:limit], window):
            accounts = await auditor.audit([row["job"] for row in chunk], length)
            audited += [JobAccount(row["id"], row["name"], accounts[row["job"]]) for row in chunk]
            ticks += sum(account.expected for account in accounts.values())
            if ticks >= TICKS_OF_A_PAGE or auditor.readings >= READINGS_OF_A_PAGE:
                break
        more = len(audited) < len(found)
        return audited, found[len(audited) - 1]["job"] if more else None

    async def ticks(
        self, job: UUID, after: datetime, until: datetime, limit: int, *, tenant: int = DEFAULT_TENANT
    ) -> RecordedTicks:
        """The status of the ticks in (after, until], oldest first."""
        number = await number_of(self._store.database, job, tenant)
        rows = await self._ledger.audited_jobs((after, until), [number], behind=0, limit=1, tenant=tenant)
        zone = _zone(rows[0]) if rows else UTC
        found: list[TickStatus] = []
        edge = await self._unknown_until(rows[0]["created_at"], after, until) if rows else after
        slices = _slices(edge, until, _length(_density(rows[0], until))) if rows else iter(())
        for window in chain([(after, edge)] if after < edge else [], slices):
            for tick in await self._statuses(number, window, edge):
                if len(found) == limit:
                    return RecordedTicks(number, zone, found, _end(found[-1]))
                found.append(tick)
        return RecordedTicks(number, zone, found, None)

    async def _statuses(self, job: int, window: tuple[datetime, datetime], edge: datetime) -> Iterator[TickStatus]:
        reading = await self._ledger.read(job, window)
        if window[1] <= edge:
            reading = reading._replace(segments=[], unread=[Unread(*window, no_longer_kept(edge))])
        now = await self._store.upkeep.now()
        skips = {skip.at for skip in await self._store.skips.list(job)}
        return tick_statuses(reading.segments, reading.entries, *window, reading.next_tick, now, skips, reading.unread)

    async def _unknown_until(self, created_at: datetime, after: datetime, until: datetime) -> datetime:
        """The time up to which the ticks of a job are unknown because history is no longer kept; `after`: none are."""
        kept = await self._ledger.kept_since()
        if kept is None or created_at >= kept:
            return after
        return min(max(after, kept - MICROSECOND), until)


class Auditor:
    """One audit of a window. The ticks of a schedule that jobs share are computed once."""

    def __init__(
        self,
        ledger: LedgerStore,
        window: tuple[datetime, datetime],
        late_after: timedelta,
        overdue_before: datetime | None = None,
    ) -> None:
        self._ledger = ledger
        self._window = window
        self._late_after = late_after
        self._overdue_before = overdue_before
        self.readings = 0
        self._ticks: dict[tuple[int, datetime, datetime], tuple[Schedule, list[datetime]]] = {}

    async def audit(self, jobs: Sequence[int], length: timedelta) -> dict[int, Account]:
        """The accounts of these jobs, read together in pieces of this length, from the first tick on."""
        accounts = {job: Account() for job in jobs}
        after, until = self._window
        for piece in _slices(await self._ledger.audited_from(jobs, after, until), until, length):
            self.readings += 1
            readings = await self._ledger.read_many(jobs, piece)
            for job, reading in readings.items():
                if len(reading.entries) > MANY_ENTRIES:
                    await compute(self._settle, accounts[job], reading, piece)
                else:
                    await asyncio.sleep(0)
                    self._settle(accounts[job], reading, piece)
            self._ticks.clear()
        return accounts

    def _settle(self, account: Account, reading: Reading, piece: tuple[datetime, datetime]) -> None:
        """A job whose ticks cannot be computed is unknown in this piece; the other jobs are still audited."""
        try:
            settle_account(
                account, reading.segments, reading.entries, piece, reading.next_tick,
                expected=self._expected, zone_data=tzdata_version(), late_after=self._late_after,
                unread=reading.unread, overdue_before=self._overdue_before,
            )  # fmt: skip
        except Exception as error:
            log.exception("the ticks of a job cannot be computed")
            account.add_unknown(Unread(*piece, f"Its ticks cannot be computed: {error!r}."))

    def _expected(self, segment: LedgerSegment, after: datetime, until: datetime) -> list[datetime]:
        low, high = max(after, segment.since), until if segment.until is None else min(until, segment.until)
        key = (id(segment.schedule), low, high)
        found = self._ticks.get(key)
        if found is None:
            # Keep the schedule too, so that no other object gets its id.
            found = self._ticks[key] = segment.schedule, expected_ticks(segment, after, until)
        return found[1]


def no_longer_kept(kept: datetime) -> str:
    """Why the status of earlier ticks is unknown."""
    return f"History before {kept + MICROSECOND:%Y-%m-%d %H:%M:%S} UTC is no longer kept (history_days)."


def _end(tick: TickStatus) -> datetime:
    return tick.at if tick.entry is None else max(tick.at, tick.entry.last)


def _slices(after: datetime, until: datetime, length: timedelta) -> Iterator[tuple[datetime, datetime]]:
    """The window cut at full hours or at midnights, UTC; a tick at the cut belongs to the piece that begins there."""
    while after < until:
        start = after.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        if length > HOUR:
            start = start.replace(hour=0)
        end = start + length - MICROSECOND
        end = min(end if end > after else end + length, until)
        yield after, end
        after = end


def _chunks(rows: Sequence[Row], window: tuple[datetime, datetime]) -> Iterator[tuple[list[Row], timedelta]]:
    """Jobs whose ticks can be read together, and the length of the pieces."""
    chunk: list[Row] = []
    total = 0
    for row in rows:
        density = _density(row, window[1])
        if chunk and total + density > MAX_OF_A_DAY:
            yield chunk, _length(total)
            chunk, total = [], 0
        chunk.append(row)
        total += density
    if chunk:
        yield chunk, _length(total)


def _length(ticks_of_a_day: int) -> timedelta:
    if ticks_of_a_day > MAX_OF_A_DAY:
        return HOUR
    return DAY if ticks_of_a_day > MAX_OF_A_DAY // 30 else 30 * DAY


def _zone(row: Row) -> tzinfo:
    try:
        return read_schedule(row["schedule"], row["stored"]).zone.info
    except UnreadableSchedule:  # its times are shown in UTC
        return UTC


def _density(row: Row, end: datetime) -> int:
    """About how many ticks a day has, by the present schedule."""
    try:
        schedule = read_schedule(row["schedule"], row["stored"])
        return schedule.count_between(end - DAY, end) if schedule.kind != "once" else 1
    except Exception:  # reading its spans reports that they are unknown
        return 0
