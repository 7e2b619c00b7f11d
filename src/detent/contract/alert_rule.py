"""Alert rules in the public API."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from detent.contract.page import Instant
from detent.domain.alert_rule import AlertReceiver, EventKind, GroupBy, QuietHours, Severity
from detent.domain.alerts import MessageEvent


class AlertRule(Struct, frozen=True, kw_only=True):
    """A rule that reports events of jobs. `open_alerts` are those whose jobs have not recovered. `held_until` is
    when the quiet hours end that hold messages about them; null if none is held. `last_error` is why its last message
    was not delivered."""

    name: str
    events: list[EventKind]
    receiver: AlertReceiver
    tags: list[str]
    queues: list[str]
    jobs: list[str]
    min_severity: Severity
    consecutive_failures: int
    catch_up_ticks: int
    group_seconds: float
    group_by: GroupBy
    quiet_hours: QuietHours | None
    recovered: bool
    enabled: bool
    open_alerts: int
    last_sent_at: Instant | None
    last_error: str | None
    created_at: Instant
    created_by: str | None
    changed_at: Instant
    changed_by: str | None
    held_until: Instant | None = None


class AlertMessage(Struct, frozen=True, kw_only=True):
    """A message of a rule. `alert` is its alert; a test has none. It waits until it is sent, and is given up after a
    day; `error` is why the last try failed."""

    id: int
    alert: int | None
    event: MessageEvent
    status: Literal["waiting", "sent", "given_up"]
    made_at: Instant
    tries: int
    ended_at: Instant | None
    next_try_at: Instant | None
    error: str | None
