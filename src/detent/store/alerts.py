"""Alerts of rules: events become alerts, jobs recover, and messages are made and sent.

Each step is one transaction, under a lock on the rules that it concerns. A node that dies leaves the step to the next
one, with all its events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from detent.domain.alert_events import (
    AlertChange,
    AlertEntry,
    CountedEvent,
    LockedRule,
    OpenAlert,
    OpenAlerts,
    plan_changes,
)
from detent.domain.alert_rule import AlertRuleFields
from detent.domain.alerts import NEVER, AlertState, JobFacts, MessageEvent, Pause, Send
from detent.store import sql
from detent.store.alert_rules import readable_rule
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row
from detent.store.statement import Statement
from detent.telemetry.log import logger

log = logger("alerts")

MOST_LASTING = 10_000
MOST_DUE = 100
PURGE_BATCH = 500
AFTER_A_FAILURE = timedelta(minutes=1)

Decide = Callable[[AlertRuleFields, AlertState, datetime], Pause | Send]
MakeContent = Callable[[str, MessageEvent, "AlertSummary"], dict[str, Any]]


class AlertSummary(NamedTuple):
    """What is known of an alert when a message is made: counts by kind, and some of its jobs (`shown`)."""

    alert: int
    opened_at: datetime
    at: datetime
    severity: int
    events: int
    untracked: int
    fresh_untracked: int
    jobs: int
    kinds: list[dict[str, Any]]
    shown: list[dict[str, Any]]


class AlertNotice(NamedTuple):
    """A message of a rule to send now. `content` is what it says."""

    notice: int
    event: MessageEvent
    tries: int
    age: timedelta
    at: datetime
    alert: int | None
    content: dict[str, Any]
    rule: str
    fields: AlertRuleFields | None
    tenant: str
    tenant_number: int


class RuleOfTenant(NamedTuple):
    tenant: int
    fields: AlertRuleFields


class AlertStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def rules(self) -> list[RuleOfTenant]:
        """Every rule that this version can read, of tenants that are not suspended."""
        rows = await self._database.fetch(PoolName.WORK, sql.alert_rule.LIST_ALL)
        found = ((row["tenant"], readable_rule(row)) for row in rows)
        return [RuleOfTenant(tenant, fields) for tenant, fields in found if fields is not None]

    async def add_events(self, limit: int) -> bool:
        """Add some of the noted events to the alerts of the rules that they match; whether there may be more."""

        async def work(connection: Connection) -> int:
            rows = await connection.fetch(sql.alert.TAKE_EVENTS.text, limit)
            await _apply(connection, [_event(row) for row in rows if row["tenant"] is not None])
            return sum(row["rows"] for row in rows)

        return await self._database.transaction(PoolName.WORK, work) == limit

    async def drop_events(self, limit: int) -> bool:
        """If no rule uses events, delete those that are left. Returns whether there may be more."""
        return len(await self._database.fetch(PoolName.WORK, sql.alert.DROP_EVENTS, limit)) == limit

    async def note_set_aside(self, tenants: Sequence[int]) -> None:
        await self._note_lasting(sql.alert.LIST_SET_ASIDE, tenants)

    async def note_catch_ups(self, tenants: Sequence[int]) -> None:
        await self._note_lasting(sql.alert.LIST_CATCH_UPS, tenants)

    async def _note_lasting(self, statement: Statement, tenants: Sequence[int]) -> None:
        async def work(connection: Connection) -> None:
            rows = await connection.fetch(statement.text, list(tenants), MOST_LASTING)
            await _apply(connection, [_event(row) for row in rows])

        await self._database.transaction(PoolName.WORK, work)

    async def check_jobs(self, limit: int, again: timedelta, expires: timedelta) -> bool:
        """Note which jobs have recovered; whether there may be more to look at."""
        return len(await self._database.fetch(PoolName.WORK, sql.alert.CHECK_JOBS, limit, again, expires)) == limit

    async def make_messages(self, decide: Decide, make: MakeContent, shown: int) -> int:
        """Make the messages that are due, and close what is over; returns how many messages were made."""

        async def work(connection: Connection) -> int:
            rules = [row["rule"] for row in await connection.fetch(sql.alert.LOCK_DUE.text, MOST_DUE)]
            made = 0
            for row in await connection.fetch(sql.alert.LIST_DUE.text, rules, MOST_DUE) if rules else ():
                made += await _serve(connection, row, decide, make, shown)
            return made

        return await self._database.transaction(PoolName.WORK, work)

    async def purge(self, days: int) -> int:
        return len(await self._database.fetch(PoolName.REQUEST, sql.alert.PURGE, days, PURGE_BATCH))

    # -- for the sender

    async def take(self, limit: int, lease: timedelta) -> list[AlertNotice]:
        """Messages that are due, which no other node takes for this long."""
        return [
            _notice(row) for row in await self._database.fetch(PoolName.WORK, sql.alert.TAKE_MESSAGES, limit, lease)
        ]


async def _apply(connection: Connection, events: Sequence[CountedEvent]) -> None:
    if not events:
        return
    tenants = sorted({event.tenant for event in events})
    rows = await connection.fetch(sql.alert_rule.LOCK_TENANTS.text, tenants)
    rules = [
        LockedRule(row["rule"], row["tenant"], fields) for row in rows if (fields := readable_rule(row)) is not None
    ]
    if rules:
        streaks = await _streaks(connection, rules, events)
        known = await _known(connection, rules, events)
        await _write(connection, plan_changes(rules, events, streaks, known, rows[0]["at"]))


async def _streaks(
    connection: Connection, rules: Sequence[LockedRule], events: Sequence[CountedEvent]
) -> dict[int, int]:
    jobs = sorted({event.job for event in events if event.kind == "dead"})
    asked = [rule.fields.consecutive_failures for rule in rules if "failures" in rule.fields.events]
    if not jobs or not asked:
        return {}
    rows = await connection.fetch(sql.alert.MEASURE_STREAKS.text, jobs, max(asked))
    return {row["job"]: row["dead"] for row in rows}


async def _known(connection: Connection, rules: Sequence[LockedRule], events: Sequence[CountedEvent]) -> OpenAlerts:
    rows = await connection.fetch(sql.alert.LIST_OPEN.text, [rule.rule for rule in rules])
    alerts = [OpenAlert(*row.values()) for row in rows]
    jobs = sorted({event.job for event in events})
    entries = await connection.fetch(sql.alert.LIST_JOBS.text, [one.alert for one in alerts], jobs) if alerts else ()
    return OpenAlerts(alerts, {AlertEntry(row["alert"], row["job"], row["kind"]): row["recovered"] for row in entries})


async def _write(connection: Connection, changes: Sequence[AlertChange]) -> None:
    new = [change for change in changes if change.alert is None]
    old = [change for change in changes if change.alert is not None]
    if new:
        columns = [(c.tenant, c.rule, c.only_job, c.severity, c.events, c.untracked, c.flush_at) for c in new]
        rows = await connection.fetch(sql.alert.ADD.text, *map(list, zip(*columns, strict=True)))
        for change, row in zip(new, rows, strict=True):
            change.alert = row["alert"]
    if old:
        counts = [(c.alert, c.severity, c.events, c.untracked, c.flush_at) for c in old]
        await connection.fetch(sql.alert.COUNT_EVENTS.text, *map(list, zip(*counts, strict=True)))
    entries = list(_entries(changes))
    if entries:
        await connection.fetch(sql.alert.ADD_JOBS.text, *map(list, zip(*entries, strict=True)))


def _entries(changes: Iterable[AlertChange]) -> Iterable[tuple[object, ...]]:
    for change in changes:
        for event in change.entries:
            yield (
                change.alert, event.job, event.kind, event.events, event.last_at, event.tick, event.serial, event.detail
            )  # fmt: skip


async def _serve(connection: Connection, row: Row, decide: Decide, make: MakeContent, shown: int) -> int:
    """How many messages were made for this alert. If that fails, only this alert is put off, because the other alerts
    of the transaction belong to other rules and tenants."""
    fields = readable_rule(row)
    if fields is not None:
        try:
            async with connection.transaction():
                return await _take_step(connection, row, decide(fields, _state(row), row["at"]), make, shown)
        except Exception:  # if the connection is lost, the next statement says so
            log.exception("no message could be made for an alert", alert=row["alert"], rule=row["name"])
    later = row["at"] + AFTER_A_FAILURE
    await connection.fetch(sql.alert.PAUSE.text, row["alert"], later, row["unrecovered"] == 0)
    return 0


async def _take_step(connection: Connection, row: Row, step: Pause | Send, make: MakeContent, shown: int) -> int:
    if isinstance(step, Pause):
        until = None if step.until == NEVER else step.until
        await connection.fetch(sql.alert.PAUSE.text, row["alert"], until, step.calm)
        return 0
    if not step.silent:
        summary = await _summary(connection, row, shown)
        content = msgspec.json.encode(make(row["name"], step.event, summary)).decode()
        await connection.fetch(sql.alert.ADD_MESSAGE.text, row["rule"], row["alert"], step.event, content)
        await connection.fetch(sql.alert.REPORT_JOBS.text, row["alert"])
    if step.closes:
        await connection.fetch(sql.alert.CLOSE.text, row["alert"])
    return 0 if step.silent else 1


async def _summary(connection: Connection, row: Row, shown: int) -> AlertSummary:
    (found,) = await connection.fetch(sql.alert.READ_CONTENT.text, row["alert"], shown)
    values = dict(found)
    kinds, jobs = (msgspec.json.decode(values.pop(name) or "[]") for name in ("kinds", "shown"))
    for job in jobs:  # JSON of PostgreSQL writes the offset +00:00; all other times of a message end with Z
        job["scheduled_at"] = datetime.fromisoformat(job["scheduled_at"]) if job["scheduled_at"] else None
    return AlertSummary(row["alert"], at=row["at"], kinds=kinds, shown=jobs, **values)


def _state(row: Row) -> AlertState:
    return AlertState(
        row["severity"], row["messages"], row["last_message_at"], row["flush_at"] or NEVER, row["calm"],
        row["unrecovered"], row["fresh"],
    )  # fmt: skip


def _event(row: Row) -> CountedEvent:
    facts = JobFacts(row["name"], row["queue"] or "", tuple(row["tags"]))
    return CountedEvent(
        row["kind"], int(row["events"]), row["last_at"], row["tick"], row["serial"], row["detail"], row["job"],
        row["tenant"], facts,
    )  # fmt: skip


def _notice(row: Row) -> AlertNotice:
    content = msgspec.json.decode(row["content"], type=dict[str, Any])
    return AlertNotice(
        row["notice"], row["event"], row["tries"], row["age"], row["at"], row["alert"], content, row["rule"],
        readable_rule(row), row["tenant"], row["tenant_number"],
    )  # fmt: skip
