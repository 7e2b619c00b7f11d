"""Alert rules of tenants, and the messages that were made for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from detent.contract.alert_rule import AlertMessage
from detent.domain.alert_rule import AlertRuleFields, stored_references
from detent.domain.alerts import WaitingAlert, due_without_quiet
from detent.domain.audit_event import NewEvent, changed
from detent.store import sql
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row
from detent.store.secrets import keep
from detent.telemetry.log import logger

log = logger("alerts")

Edit = Callable[[AlertRuleFields], AlertRuleFields]


class UnreadableRule(Exception):  # noqa: N818 - it says what the rule is
    """A newer version wrote the rule."""


class StoredRule(NamedTuple):
    """A rule as it is stored, read `at`; without `fields` if a newer version wrote it. `waits_until`: the last time for
    which one of its open alerts waits. `last_error` is of its last message; None: that was sent, or no try has
    failed."""

    name: str
    fields: AlertRuleFields | None
    created_at: datetime
    created_by: str | None
    changed_at: datetime
    changed_by: str | None
    open_alerts: int
    waits_until: datetime | None
    at: datetime
    last_sent_at: datetime | None
    last_error: str | None


class AlertRuleStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, name: str, fields: AlertRuleFields, *, tenant: int, by: str | None) -> bool:
        """False: the name is taken. MissingSecrets: the tenant does not have one that the rule refers to."""

        async def write(connection: Connection) -> bool:
            await keep(connection, tenant, stored_references(fields))
            added = await connection.fetch(sql.alert_rule.ADD.text, tenant, name, *_columns(fields), by)
            if added:
                after = _facts(fields)
                await record(connection, NewEvent("alert-rule.create", tenant, "alert-rule", name, name, after=after))
            return bool(added)

        return await self._database.transaction(PoolName.REQUEST, write)

    async def edit(self, name: str, edit: Edit, *, tenant: int, by: str | None) -> bool:
        """Change a rule to what `edit` makes of it, under a lock; False: there is none. UnreadableRule: a newer version
        wrote it."""

        async def write(connection: Connection) -> bool:
            locked = await connection.fetch(sql.alert_rule.LOCK.text, tenant, name)
            if not locked:
                return False
            before = readable_rule(locked[0])
            if before is None:
                raise UnreadableRule
            after = edit(before)
            await keep(connection, tenant, stored_references(after))
            await connection.fetch(sql.alert_rule.CHANGE.text, locked[0]["rule"], *_columns(after), by)
            if after.quiet_hours != before.quiet_hours:
                await _decide_anew(connection, locked[0]["rule"], after)
            facts = changed(_facts(before), _facts(after))
            await record(connection, NewEvent("alert-rule.change", tenant, "alert-rule", name, name, *facts))
            return True

        return await self._database.transaction(PoolName.REQUEST, write)

    async def delete(self, name: str, *, tenant: int) -> bool:
        """Delete a rule with its alerts and messages; False: there is none."""

        async def write(connection: Connection) -> bool:
            locked = await connection.fetch(sql.alert_rule.LOCK.text, tenant, name)
            if locked:
                await connection.fetch(sql.alert_rule.DELETE.text, locked[0]["rule"])
                await record(connection, NewEvent("alert-rule.delete", tenant, "alert-rule", name, name))
            return bool(locked)

        return await self._database.transaction(PoolName.REQUEST, write)

    async def add_test(self, name: str, content: dict[str, Any], *, tenant: int) -> int | None:
        """Make a message that tests the receiver; its number, or None if there is no such rule."""

        async def write(connection: Connection) -> int | None:
            locked = await connection.fetch(sql.alert_rule.LOCK.text, tenant, name)
            if not locked:
                return None
            text = msgspec.json.encode(content).decode()
            (row,) = await connection.fetch(sql.alert_rule.ADD_TEST.text, locked[0]["rule"], text)
            await record(connection, NewEvent("alert-rule.test", tenant, "alert-rule", name, name))
            return int(row["notice"])

        return await self._database.transaction(PoolName.REQUEST, write)

    async def list(self, limit: int, *, tenant: int) -> Sequence[StoredRule]:
        rows = await self._database.fetch(PoolName.REQUEST, sql.alert_rule.LIST, tenant, limit, None)
        return [_rule(row) for row in rows]

    async def get(self, name: str, *, tenant: int) -> StoredRule | None:
        rows = await self._database.fetch(PoolName.REQUEST, sql.alert_rule.LIST, tenant, 1, name)
        return _rule(rows[0]) if rows else None

    async def count(self, *, tenant: int) -> int:
        (row,) = await self._database.fetch(PoolName.REQUEST, sql.alert_rule.COUNT, tenant)
        return int(row["rules"])

    async def messages(self, name: str, limit: int, *, tenant: int) -> Sequence[AlertMessage]:
        """The last messages of a rule, the newest first."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.alert_rule.LIST_MESSAGES, tenant, name, limit)
        return [_message(row) for row in rows]


async def _decide_anew(connection: Connection, rule: int, fields: AlertRuleFields) -> None:
    """Alerts may wait for the end of quiet hours that the rule, which is locked, no longer has."""
    rows = await connection.fetch(sql.alert.LIST_WAITING.text, rule)
    due = [(row["alert"], due_without_quiet(fields, WaitingAlert(*row.values()))) for row in rows]
    if due:
        await connection.fetch(sql.alert.BRING_FORWARD.text, *map(list, zip(*due, strict=True)))


def readable_rule(row: Row) -> AlertRuleFields | None:
    """None: a node of a newer version wrote the rule, and serves it."""
    try:
        return msgspec.json.decode(row["definition"], type=AlertRuleFields)
    except msgspec.ValidationError as error:
        log.warning("alert rule not read by this version", rule=row["rule"], error=str(error))
        return None


def _columns(fields: AlertRuleFields) -> tuple[str, list[str]]:
    """The definition, and the events that the triggers of the database note for it."""
    return msgspec.json.encode(fields).decode(), list(fields.events) if fields.enabled else []


def _facts(fields: AlertRuleFields) -> dict[str, Any]:
    """Without the URL of a receiver, which may be a secret."""
    facts: dict[str, Any] = msgspec.to_builtins(fields)
    if isinstance(facts["receiver"].get("url"), str):
        facts["receiver"]["url"] = "(hidden)"
    return facts


def _rule(row: Row) -> StoredRule:
    return StoredRule(row["name"], readable_rule(row), *(row[name] for name in StoredRule._fields[2:]))


def _message(row: Row) -> AlertMessage:
    ended, error = row["ended_at"], row["error"]
    return AlertMessage(
        id=row["notice"],
        alert=row["alert"],
        event=row["event"],
        made_at=row["made_at"],
        tries=row["tries"],
        status="waiting" if ended is None else "sent" if error is None else "given_up",
        ended_at=ended,
        next_try_at=row["due_at"] if ended is None else None,
        error=error,
    )
