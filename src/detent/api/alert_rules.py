"""Routes about alert rules: which events of jobs are reported to which receiver."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from detent.api.context import PREFIX, Api
from detent.api.routing import Routes
from detent.contract.alert_rule import AlertMessage, AlertRule
from detent.contract.page import Page
from detent.domain.alert_rule import AlertReceiver, AlertRuleSpec, EventKind, GroupBy, QuietHours, Severity
from detent.domain.job import Name
from detent.jobs.alert_rules import AlertRuleCommands

routes = Routes(PREFIX)

Names = Annotated[list[Name], Meta(max_length=50)]


class AlertRulePatch(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """New values of some fields of a rule. Fields that are left out stay; `quiet_hours` null removes them."""

    events: Annotated[list[EventKind], Meta(min_length=1, max_length=10)] | UnsetType = UNSET
    receiver: AlertReceiver | UnsetType = UNSET
    tags: Names | UnsetType = UNSET
    queues: Names | UnsetType = UNSET
    jobs: Names | UnsetType = UNSET
    min_severity: Severity | UnsetType = UNSET
    consecutive_failures: Annotated[int, Meta(ge=1, le=100)] | UnsetType = UNSET
    catch_up_ticks: Annotated[int, Meta(ge=1, le=1_000_000_000)] | UnsetType = UNSET
    group_seconds: Annotated[float, Meta(ge=0, le=86_400)] | UnsetType = UNSET
    group_by: GroupBy | UnsetType = UNSET
    quiet_hours: QuietHours | UnsetType | None = UNSET
    recovered: bool | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET


class MessageQuery(Struct, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


@routes.post("/alert-rules", status=201, scope="write")
async def create_alert_rule(api: Api, body: AlertRuleSpec) -> AlertRule:
    """Create a rule: events of jobs that match it are reported to its receiver."""
    return await AlertRuleCommands(api.store).create(body, tenant=api.tenant, by=api.by)


@routes.get("/alert-rules")
async def list_alert_rules(api: Api) -> Page[AlertRule]:
    """List the alert rules by name."""
    return Page(await AlertRuleCommands(api.store).all(tenant=api.tenant), None)


@routes.get("/alert-rules/{name}")
async def get_alert_rule(api: Api, name: str) -> AlertRule:
    """Get a rule, with its open alerts and the error of its last message."""
    return await AlertRuleCommands(api.store).get(name, tenant=api.tenant)


@routes.patch("/alert-rules/{name}", scope="write")
async def change_alert_rule(api: Api, name: str, body: AlertRulePatch) -> AlertRule:
    """Change some fields of a rule. Its open alerts stay open until their jobs have recovered."""
    changes = {field: value for field, value in msgspec.structs.asdict(body).items() if value is not UNSET}
    return await AlertRuleCommands(api.store).edit(name, changes, tenant=api.tenant, by=api.by)


@routes.delete("/alert-rules/{name}", scope="write")
async def delete_alert_rule(api: Api, name: str) -> None:
    """Delete a rule with its alerts; messages that wait are not sent."""
    await AlertRuleCommands(api.store).delete(name, tenant=api.tenant)


@routes.post("/alert-rules/{name}/test", status=202, scope="write")
async def test_alert_rule(api: Api, name: str) -> AlertMessage:
    """Send a test message to the receiver of a rule; its messages show what became of it."""
    return await AlertRuleCommands(api.store).test(name, tenant=api.tenant)


@routes.get("/alert-rules/{name}/messages")
async def list_alert_messages(api: Api, name: str, query: MessageQuery) -> Page[AlertMessage]:
    """List the last messages of a rule, the newest first, with what kept them from being delivered."""
    return Page(list(await AlertRuleCommands(api.store).messages(name, query.limit, tenant=api.tenant)), None)
