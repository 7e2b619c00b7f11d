"""Create, change, delete and test alert rules."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from detent.contract.alert_rule import AlertMessage, AlertRule
from detent.domain.alert_rule import (
    MOST_RULES,
    AlertRuleFields,
    AlertRuleSpec,
    check_rule,
    check_rule_name,
    rule_references,
)
from detent.domain.alerts import quiet_until, trial_content
from detent.errors import Conflict, NotFound, UsageError
from detent.store import Store
from detent.store.alert_rules import StoredRule, UnreadableRule
from detent.store.secrets import MissingSecrets


class AlertRuleNotFound(NotFound):
    def __init__(self, name: str) -> None:
        super().__init__(f"There is no alert rule {name!r}: `detent alert-rule list` shows the existing ones.")


class AlertRuleTooNew(Conflict):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"The alert rule {name!r} was written by a newer version of detent: send the request to a node of that "
            "version, or upgrade this one."
        )


class AlertRuleCommands:
    def __init__(self, store: Store) -> None:
        self._rules = store.alert_rules

    async def create(self, spec: AlertRuleSpec, *, tenant: int, by: str | None) -> AlertRule:
        fields = AlertRuleFields(**{name: getattr(spec, name) for name in AlertRuleFields.__struct_fields__})
        check_rule_name(spec.name)
        check_rule(fields)
        if await self._rules.count(tenant=tenant) >= MOST_RULES:
            raise Conflict(f"The tenant has {MOST_RULES} alert rules, which is the limit: delete some.")
        if not await _with_secrets(fields, self._rules.add(spec.name, fields, tenant=tenant, by=by)):
            raise Conflict(f"There is an alert rule {spec.name!r} already: choose another name, or edit that one.")
        return await self.get(spec.name, tenant=tenant)

    async def edit(self, name: str, changes: Mapping[str, Any], *, tenant: int, by: str | None) -> AlertRule:
        """Replace some fields of a rule."""
        edited: list[AlertRuleFields] = []

        def edit(before: AlertRuleFields) -> AlertRuleFields:
            after = msgspec.structs.replace(before, **changes)
            check_rule(after)
            edited.append(after)
            return after

        try:
            found = await self._rules.edit(name, edit, tenant=tenant, by=by)
        except MissingSecrets as error:
            raise _missing(edited[-1], error) from error
        except UnreadableRule as error:
            raise AlertRuleTooNew(name) from error
        if not found:
            raise AlertRuleNotFound(name)
        return await self.get(name, tenant=tenant)

    async def delete(self, name: str, *, tenant: int) -> None:
        if not await self._rules.delete(name, tenant=tenant):
            raise AlertRuleNotFound(name)

    async def all(self, *, tenant: int) -> list[AlertRule]:
        """Without those that only a newer version can read."""
        rules = await self._rules.list(MOST_RULES, tenant=tenant)
        return [_shape(rule, rule.fields) for rule in rules if rule.fields is not None]

    async def get(self, name: str, *, tenant: int) -> AlertRule:
        found = await self._rules.get(name, tenant=tenant)
        if found is None:
            raise AlertRuleNotFound(name)
        if found.fields is None:
            raise AlertRuleTooNew(name)
        return _shape(found, found.fields)

    async def test(self, name: str, *, tenant: int) -> AlertMessage:
        """Make a message that tests the receiver; a scheduler sends it within seconds."""
        number = await self._rules.add_test(name, trial_content(name, datetime.now(UTC)), tenant=tenant)
        messages = () if number is None else await self.messages(name, 10, tenant=tenant)
        for message in messages:
            if message.id == number:
                return message
        raise AlertRuleNotFound(name)

    async def messages(self, name: str, limit: int, *, tenant: int) -> Sequence[AlertMessage]:
        """The last messages of a rule, the newest first."""
        found = await self._rules.messages(name, limit, tenant=tenant)
        if not found:
            await self.get(name, tenant=tenant)
        return found


async def _with_secrets(fields: AlertRuleFields, write: Awaitable[bool]) -> bool:
    try:
        return await write
    except MissingSecrets as error:
        raise _missing(fields, error) from error


def _missing(fields: AlertRuleFields, error: MissingSecrets) -> UsageError:
    pointer, name = next(found for found in rule_references(fields) if found[1] in error.names)
    return UsageError(
        f"{pointer[1:].replace('/', '.')} refers to the secret {name!r}, which does not exist: create it with `detent "
        f"secret set {name}`.",
        pointer,
    )


def _shape(rule: StoredRule, read: AlertRuleFields) -> AlertRule:
    fields = {name: getattr(read, name) for name in AlertRuleFields.__struct_fields__}
    own = {name: getattr(rule, name) for name in StoredRule._fields if name not in ("fields", "waits_until", "at")}
    return AlertRule(**fields, **own, held_until=_held_until(rule, read))


def _held_until(rule: StoredRule, fields: AlertRuleFields) -> datetime | None:
    """The end of the quiet hours, if an open alert waits for it."""
    end = None if fields.quiet_hours is None else quiet_until(fields.quiet_hours, rule.at)
    return end if end is not None and rule.waits_until is not None and rule.waits_until >= end else None
