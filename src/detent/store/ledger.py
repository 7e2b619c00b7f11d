"""The ledger as it is read: what was expected of jobs and what is on record, in one snapshot, and their comparison.

History is read by the day, and by the hour where ticks are many, a few jobs at a time: each reading is short, and the
loop that also fires has its turn in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import chain
from typing import NamedTuple
from uuid import UUID

from detent.domain.ledger import Account, Entry, Fate, Segment, Unread, expected_ticks, fates, settle_account
from detent.domain.schedule import Schedule, tzdata_version
from detent.domain.states import CODES
from detent.store import sql
from detent.store.db import Database, PoolName, Row
from detent.store.jobs import DEFAULT_TENANT
from detent.store.runs import number_of
from detent.store.stored_schedules import UnreadableSchedule, read_schedule
from detent.telemetry.log import logger

log = logger("store")

STATUSES = {code: str(status) for status, code in CODES.items()}
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
MICROSECOND = timedelta(microseconds=1)
MOST_OF_A_DAY = 20_000
TICKS_OF_A_PAGE = 200_000
READINGS_OF_A_PAGE = 200
MOST_REMEMBERED = 2_000
WITHOUT_CURSOR = "The job has no cursor, so it does not fire: edit the job, or delete it and create it again."
RAN = frozenset({"succeeded", "dead", "cancelled"})


class Audited(NamedTuple):
    """A job with what its ticks come to."""

    id: UUID
    name: str
    account: Account


class Ticks(NamedTuple):
    """Ticks of a job with what became of them, and after which to go on; None: these were all."""

    job: int
    zone: tzinfo
    fates: list[Fate]
    following: datetime | None


class Reading(NamedTuple):
    """What one snapshot says of a job: its segments, what is on record, where its cursor stands, and the spans that
    cannot be read."""

    segments: list[Segment]
    rows: list[Row]
    entries: list[Entry]
    next_tick: datetime | None
    unread: list[Unread]


class Expectation(NamedTuple):
    """The segments whose ticks are to be expected of a job, and the tick on which its cursor stands."""

    segments: list[Segment]
    next_tick: datetime | None


class LedgerStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._schedules: dict[tuple[int, datetime | None], Schedule] = {}

    # -- all ticks, counted

    async def kept_since(self) -> datetime | None:
        """Since when history is there as a whole; None: from the beginning."""
        since: datetime | None = (await self._database.fetch(PoolName.REQUEST, sql.history.READ_KEPT_SINCE))[0]["since"]
        return since

    async def count(
        self, window: tuple[datetime, datetime], jobs: Sequence[int] | None, *, tenant: int = DEFAULT_TENANT
    ) -> int:
        """How many jobs an audit of this window looks at."""
        return int(
            (await self._database.fetch(PoolName.REQUEST, sql.ledger.COUNT_AUDITED_JOBS, tenant, *window, jobs))[0][
                "jobs"
            ]
        )

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
    ) -> tuple[list[Audited], int | None]:
        """The accounts of jobs in (after, until], and what to pass as `behind` for more (None: these were all). A page
        ends early when it has looked at very many ticks, or in very many places for them. Ticks that should have fired
        before `overdue_before` and stand under the cursor count as overdue."""
        found = await self._database.fetch(
            PoolName.REQUEST, sql.ledger.LIST_AUDITED_JOBS, tenant, *window, behind, limit + 1, jobs
        )
        audited: list[Audited] = []
        ticks = 0
        auditor = Auditor(self, window, late_after, overdue_before)
        for chunk, length in _chunks(found[:limit], window):
            accounts = await auditor.audit([row["job"] for row in chunk], length)
            audited += [Audited(row["id"], row["name"], accounts[row["job"]]) for row in chunk]
            ticks += sum(account.expected for account in accounts.values())
            if ticks >= TICKS_OF_A_PAGE or auditor.readings >= READINGS_OF_A_PAGE:
                break
        more = len(audited) < len(found)
        return audited, found[len(audited) - 1]["job"] if more else None

    async def audited_from(self, jobs: Sequence[int], after: datetime, until: datetime) -> datetime:
        """Where to begin with these jobs: an audit of the last month may be of jobs that are a minute old."""
        (row,) = await self._database.fetch(PoolName.REQUEST, sql.ledger.FIND_FIRST_AUDITED, list(jobs), after, until)
        return until if row["since"] is None else max(after, row["since"])

    # -- one tick after another

    async def ticks(
        self, job: UUID, after: datetime, until: datetime, limit: int, *, tenant: int = DEFAULT_TENANT
    ) -> Ticks:
        """What became of the ticks in (after, until], oldest first."""
        number = await number_of(self._database, job, tenant)
        rows = await self._database.fetch(
            PoolName.REQUEST, sql.ledger.LIST_AUDITED_JOBS, tenant, after, until, 0, 1, [number]
        )
        zone = _zone(rows[0]) if rows else UTC
        found: list[Fate] = []
        edge = await self._forgotten(rows[0]["created_at"], after, until) if rows else after
        slices = _slices(edge, until, _length(_density(rows[0], until))) if rows else iter(())
        for window in chain([(after, edge)] if after < edge else [], slices):
            reading = await self.read(number, window)
            if window[1] <= edge:
                reading = reading._replace(segments=[], unread=[Unread(*window, forgotten(edge))])
            (clock,) = await self._database.fetch(PoolName.REQUEST, sql.database.CLOCK)
            skips = {row["tick"] for row in await self._database.fetch(PoolName.REQUEST, sql.skip.LIST_OF_JOB, number)}
            told = fates(
                reading.segments, reading.entries, *window, reading.next_tick, clock["now"], skips, reading.unread
            )
            for fate in told:
                if len(found) == limit:
                    return Ticks(number, zone, found, _end(found[-1]))
                found.append(fate)
        return Ticks(number, zone, found, None)

    async def _forgotten(self, created_at: datetime, after: datetime, until: datetime) -> datetime:
        """Up to when nothing is known of the ticks of a job, because history is no longer kept; `after`: all is."""
        kept = await self.kept_since()
        if kept is None or created_at >= kept:
            return after
        return min(max(after, kept - MICROSECOND), until)

    # -- reading

    async def expectations(
        self, jobs: Sequence[UUID], window: tuple[datetime, datetime], *, tenant: int
    ) -> dict[UUID, Expectation]:
        """Which ticks of these jobs were and are to be expected in a window, and up to where they were fired."""
        ids = {
            row["job"]: row["id"]
            for row in await self._database.fetch(PoolName.REQUEST, sql.job.FIND_NUMBERS, jobs, tenant)
        }
        readings = {job: Reading([], [], [], None, []) for job in ids}
        for row in await self._database.fetch(PoolName.REQUEST, sql.ledger.LIST_SPANS, list(ids), *window):
            readings[row["job"]] = readings[row["job"]]._replace(next_tick=row["next_tick"])
            if row["since"] is not None:
                self._add_span(readings[row["job"]], row)
        return {ids[job]: Expectation(reading.segments, reading.next_tick) for job, reading in readings.items()}

    async def read(self, job: int, window: tuple[datetime, datetime]) -> Reading:
        return (await self.read_many([job], window))[job]

    async def read_many(self, jobs: Sequence[int], window: tuple[datetime, datetime]) -> dict[int, Reading]:
        """One snapshot, so that a change that commits meanwhile is seen as a whole or not at all."""
        async with (
            self._database.connection(PoolName.REQUEST) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            await connection.fetch(sql.database.LIMIT_READER.text)
            spans = await connection.fetch(sql.ledger.LIST_SPANS.text, list(jobs), *window)
            rows = await connection.fetch(sql.ledger.READ.text, list(jobs), *window)
        readings = {job: Reading([], [], [], None, []) for job in jobs}
        for row in spans:
            reading = readings[row["job"]]
            readings[row["job"]] = reading._replace(next_tick=row["next_tick"])
            if row["without_cursor"]:
                reading.unread.append(Unread(row["created_at"], None, WITHOUT_CURSOR))
            if row["since"] is not None:
                self._add_span(reading, row)
        for row in rows:
            readings[row["job"]].rows.append(row)
            readings[row["job"]].entries.append(entry_of(row))
        return readings

    def _add_span(self, reading: Reading, row: Row) -> None:
        paused, optional = row["opened"] == "paused", row["opened"] == "backfill"
        try:
            schedule = self._schedule(row)
        except UnreadableSchedule as error:
            log.error("a schedule cannot be read", schedule=row["stored"], error=error.message)
            reading.unread.append(Unread(row["since"], row["until"], error.message, optional))
            return
        span = Segment(row["since"], row["until"], schedule, paused, row["tzdata"], optional, row["job"])
        reading.segments.append(span)

    def _schedule(self, row: Row) -> Schedule:
        """What was once read is kept: stored schedules never change, and most jobs share a few."""
        key = row["schedule"], row["anchor"]
        found = self._schedules.get(key)
        if found is None:
            if len(self._schedules) >= MOST_REMEMBERED:
                self._schedules.clear()
            found = read_schedule(row["schedule"], row["stored"])
            if found.kind in ("interval", "once"):
                found = found.anchored(row["anchor"] or row["created_at"])
            self._schedules[key] = found
        return found


class Auditor:
    """One audit's way through a window. Jobs that share a schedule share the computation of its ticks."""

    def __init__(
        self,
        store: LedgerStore,
        window: tuple[datetime, datetime],
        late_after: timedelta,
        overdue_before: datetime | None = None,
    ) -> None:
        self._store = store
        self._window = window
        self._late_after = late_after
        self._overdue_before = overdue_before
        self.readings = 0
        self._ticks: dict[tuple[int, datetime, datetime], tuple[Schedule, list[datetime]]] = {}

    async def audit(self, jobs: Sequence[int], length: timedelta) -> dict[int, Account]:
        """The accounts of these jobs, read together in pieces of this length, from where there is anything to read."""
        accounts = {job: Account() for job in jobs}
        after, until = self._window
        for piece in _slices(await self._store.audited_from(jobs, after, until), until, length):
            self.readings += 1
            readings = await self._store.read_many(jobs, piece)
            for job, reading in readings.items():
                self._settle(accounts[job], reading, piece)
                await asyncio.sleep(0)
            self._ticks.clear()
        return accounts

    def _settle(self, account: Account, reading: Reading, piece: tuple[datetime, datetime]) -> None:
        """A job whose ticks cannot be computed is unknown in this piece, and the others are audited all the same."""
        try:
            settle_account(
                account, reading.segments, reading.entries, piece, reading.next_tick,
                expected=self._expected, zone_data=tzdata_version(), late_after=self._late_after,
                unread=reading.unread, overdue_before=self._overdue_before,
            )  # fmt: skip
        except Exception as error:
            log.exception("the ticks of a job cannot be computed")
            account.add_unknown(Unread(*piece, f"Its ticks cannot be computed: {error!r}."))

    def _expected(self, segment: Segment, after: datetime, until: datetime) -> list[datetime]:
        low, high = max(after, segment.since), until if segment.until is None else min(until, segment.until)
        key = (id(segment.schedule), low, high)
        found = self._ticks.get(key)
        if found is None:
            # With the schedule, so that its id stays its own.
            found = self._ticks[key] = segment.schedule, expected_ticks(segment, after, until)
        return found[1]


def forgotten(kept: datetime) -> str:
    """Why nobody knows what became of earlier ticks."""
    return f"History before {kept + MICROSECOND:%Y-%m-%d %H:%M:%S} UTC is no longer kept (history_days)."


def entry_of(row: Row) -> Entry:
    status = row["live"] or STATUSES[row["status"]]
    ran = row["status"] is not None and status in RAN and row["attempt"] == 1
    return Entry(
        row["scheduled_at"], row["until"], row["ticks"] or 1, status, row["reason"],
        row["started_at"] if ran else None, row["live"] is not None,
    )  # fmt: skip


def _end(fate: Fate) -> datetime:
    return fate.at if fate.entry is None else max(fate.at, fate.entry.last)


def _slices(after: datetime, until: datetime, length: timedelta) -> Iterator[tuple[datetime, datetime]]:
    """The window cut at full hours or at midnights, UTC; what is at the cut itself belongs to what begins there."""
    while after < until:
        start = after.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        if length > HOUR:
            start = start.replace(hour=0)
        end = start + length - MICROSECOND
        end = min(end if end > after else end + length, until)
        yield after, end
        after = end


def _chunks(rows: Sequence[Row], window: tuple[datetime, datetime]) -> Iterator[tuple[list[Row], timedelta]]:
    """Jobs whose ticks can be read together, and in pieces of which length."""
    chunk: list[Row] = []
    total = 0
    for row in rows:
        density = _density(row, window[1])
        if chunk and total + density > MOST_OF_A_DAY:
            yield chunk, _length(total)
            chunk, total = [], 0
        chunk.append(row)
        total += density
    if chunk:
        yield chunk, _length(total)


def _length(ticks_of_a_day: int) -> timedelta:
    if ticks_of_a_day > MOST_OF_A_DAY:
        return HOUR
    return DAY if ticks_of_a_day > MOST_OF_A_DAY // 30 else 30 * DAY


def _zone(row: Row) -> tzinfo:
    try:
        return read_schedule(row["schedule"], row["stored"]).zone.info
    except UnreadableSchedule:  # which is told in UTC
        return UTC


def _density(row: Row, end: datetime) -> int:
    """Ticks of a day, about: what the schedule says now tells enough."""
    try:
        schedule = read_schedule(row["schedule"], row["stored"])
        return schedule.count_between(end - DAY, end) if schedule.kind != "once" else 1
    except Exception:  # whoever reads its spans says that they are unknown
        return 0
