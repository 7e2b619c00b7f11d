"""Verbs about alert rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.client.operation import Listing, Operation, Request
from detent.client.requests import PREFIX, no_content, reader
from detent.client.transport import segment
from detent.contract.alert_rule import AlertMessage, AlertRule
from detent.contract.page import Page


def create_alert_rule(name: str, fields: Mapping[str, Any]) -> Request[AlertRule]:
    """Create a rule that reports events of jobs to a receiver. `fields` are those of the API."""
    return Request("POST", f"{PREFIX}/alert-rules", reader(AlertRule), body={"name": name, **fields})


def list_alert_rules() -> Request[Page[AlertRule]]:
    """List the alert rules of your tenant by name."""
    return Request("GET", f"{PREFIX}/alert-rules", reader(Page[AlertRule]))


def get_alert_rule(name: str) -> Request[AlertRule]:
    """Get a rule, with its open alerts and the error of its last message."""
    return Request("GET", f"{PREFIX}/alert-rules/{segment(name)}", reader(AlertRule))


def change_alert_rule(name: str, fields: Mapping[str, Any]) -> Request[AlertRule]:
    """Change some fields of a rule."""
    return Request("PATCH", f"{PREFIX}/alert-rules/{segment(name)}", reader(AlertRule), body=dict(fields))


def delete_alert_rule(name: str) -> Request[None]:
    """Delete a rule with its alerts."""
    return Request("DELETE", f"{PREFIX}/alert-rules/{segment(name)}", no_content)


def test_alert_rule(name: str) -> Request[AlertMessage]:
    """Send a test message to the receiver of a rule."""
    return Request("POST", f"{PREFIX}/alert-rules/{segment(name)}/test", reader(AlertMessage))


def list_alert_messages(name: str, *, limit: int = 20) -> Request[Page[AlertMessage]]:
    """List the last messages of a rule, the newest first."""
    path = f"{PREFIX}/alert-rules/{segment(name)}/messages"
    return Request("GET", path, reader(Page[AlertMessage]), query={"limit": limit})


class AlertRuleVerbs:
    """The verbs of the clients about alert rules."""

    create_alert_rule = Operation(create_alert_rule)
    list_alert_rules = Listing(list_alert_rules)
    get_alert_rule = Operation(get_alert_rule)
    change_alert_rule = Operation(change_alert_rule)
    delete_alert_rule = Operation(delete_alert_rule)
    test_alert_rule = Operation(test_alert_rule)
    list_alert_messages = Listing(list_alert_messages)
