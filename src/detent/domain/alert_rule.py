"""Alert rules: which events of jobs are reported, to which receiver, and when. No I/O.

A rule belongs to a tenant. Its receiver obeys the same address rules as the HTTP targets of that tenant, and refers to
secrets instead of containing them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from detent.domain.job import Name
from detent.domain.refusal import pointer_to, shown
from detent.domain.schedule.errors import ScheduleError
from detent.domain.schedule.zones import check_timezone
from detent.domain.secret_ref import SecretRef, provider_of
from detent.domain.target_url import TargetError, check_url
from detent.errors import UsageError

EventKind = Literal["dead", "deadline", "failures", "paused", "set_aside", "catch_up"]
EVENT_KINDS: tuple[EventKind, ...] = get_args(EventKind)

Severity = Literal["info", "warning", "error", "critical"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

GroupBy = Literal["rule", "job"]

PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"
SMTP_PORTS = {"starttls": 587, "implicit": 465, "none": 25}
MOST_RULES = 100
"""Of one tenant."""

RuleName = Annotated[str, Meta(min_length=1, max_length=100)]
ReceiverUrl = Annotated[str, Meta(min_length=1, max_length=2048)]
Address = Annotated[str, Meta(max_length=254)]
ClockTime = Annotated[str, Meta(max_length=5)]

# One address without a display name. Whether the domain exists, its server decides.
_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CLOCK_TIME = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[?[0-9A-Fa-f:.]+\]?")


class WebhookReceiver(
    Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type", tag="webhook"
):
    """A POST with a JSON document, signed by the key of `signing`."""

    url: ReceiverUrl | SecretRef
    signing: SecretRef | None = None


class SlackReceiver(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type", tag="slack"):
    """An incoming webhook of Slack, or of Mattermost and others that accept the same text."""

    url: ReceiverUrl | SecretRef


class EmailReceiver(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type", tag="email"):
    """A mail over SMTP. `port` is 587 for starttls, 465 for implicit and 25 for none unless it is given. `ca`: the
    authorities of the server in PEM form, instead of those that the system trusts."""

    host: Annotated[str, Meta(min_length=1, max_length=253)]
    sender: Address
    to: Annotated[list[Address], Meta(min_length=1, max_length=20)]
    port: Annotated[int, Meta(ge=1, le=65_535)] | None = None
    tls: Literal["starttls", "implicit", "none"] = "starttls"
    username: Annotated[str, Meta(min_length=1, max_length=320)] | None = None
    password: SecretRef | None = None
    ca: Annotated[str, Meta(max_length=65_536)] | SecretRef | None = None

    @property
    def server_port(self) -> int:
        return SMTP_PORTS[self.tls] if self.port is None else self.port


class PagerDutyReceiver(
    Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type", tag="pagerduty"
):
    """PagerDuty Events API v2. `routing_key` is a secret with the integration key of the service."""

    routing_key: SecretRef
    url: ReceiverUrl = PAGERDUTY_URL


AlertReceiver = WebhookReceiver | SlackReceiver | EmailReceiver | PagerDutyReceiver


class QuietHours(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """From `start` to `end` of every day in `timezone`, messages wait; afterwards one message reports what happened.
    `critical`: whether critical alerts are sent at once."""

    start: ClockTime
    end: ClockTime
    timezone: Annotated[str, Meta(min_length=1, max_length=100)] = "UTC"
    critical: bool = True


class AlertRuleFields(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a rule reports, and to whom. Empty filters match every job."""

    events: Annotated[list[EventKind], Meta(min_length=1, max_length=10)]
    receiver: AlertReceiver
    tags: Annotated[list[Name], Meta(max_length=50)] = []
    queues: Annotated[list[Name], Meta(max_length=50)] = []
    jobs: Annotated[list[Name], Meta(max_length=50)] = []
    min_severity: Severity = "info"
    consecutive_failures: Annotated[int, Meta(ge=1, le=100)] = 3
    catch_up_ticks: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 100
    group_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 30
    group_by: GroupBy = "rule"
    quiet_hours: QuietHours | None = None
    recovered: bool = True
    enabled: bool = True


class AlertRuleSpec(AlertRuleFields, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A rule to create: which `events` of the jobs with one of the `tags`, in one of the `queues` or with a name like
    one of `jobs` (with * and ?) are reported to `receiver`, from `min_severity` on."""

    name: RuleName


def rule_references(fields: AlertRuleFields) -> Iterator[tuple[str, str]]:
    """The secrets of a rule: pointer and name."""
    for name in fields.receiver.__struct_fields__:
        value = getattr(fields.receiver, name)
        if isinstance(value, SecretRef):
            yield pointer_to("receiver", name), value.secret


def stored_references(fields: AlertRuleFields) -> list[str]:
    """Those that the tenant has to have."""
    return sorted({name for _, name in rule_references(fields) if provider_of(name)[0] == "stored"})


def check_rule_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"name is {shown(name)}: use letters, digits, dots, hyphens and underscores, such as payments.", "/name"
        )


def check_rule(fields: AlertRuleFields) -> None:
    """Refuse what the types alone allow."""
    match fields.receiver:
        case WebhookReceiver(url=url) | SlackReceiver(url=url) | PagerDutyReceiver(url=url):
            _check_url(url)
        case EmailReceiver():
            _check_email(fields.receiver)
    if fields.quiet_hours is not None:
        _check_quiet_hours(fields.quiet_hours)


def _check_url(url: str | SecretRef) -> None:
    if isinstance(url, SecretRef):
        return
    try:
        check_url(url)
    except TargetError as error:
        raise UsageError(error.message, "/receiver/url") from error


def _check_email(receiver: EmailReceiver) -> None:
    for pointer, address in (("sender", receiver.sender), *((f"to/{n}", one) for n, one in enumerate(receiver.to))):
        if not _ADDRESS.fullmatch(address) or ".." in address:
            raise UsageError(
                f"receiver.{pointer.replace('/', '[') + (']' if '/' in pointer else '')} is {shown(address)}: give an "
                "address such as ops@example.com.",
                f"/receiver/{pointer}",
            )
    if not _HOST.fullmatch(receiver.host):
        raise UsageError(
            f"receiver.host is {shown(receiver.host)}: give the name or address of the SMTP server alone, such as "
            "smtp.example.com, and its port in receiver.port.",
            "/receiver/host",
        )
    if (receiver.username is None) != (receiver.password is None):
        missing = "username" if receiver.username is None else "password"
        raise UsageError(
            f"receiver.{missing} is missing: give username and password, or neither.", f"/receiver/{missing}"
        )
    if receiver.tls == "none" and receiver.password is not None:
        raise UsageError(
            "receiver.tls is none, and a password must not be sent without TLS: use starttls or implicit.",
            "/receiver/tls",
        )


def _check_quiet_hours(hours: QuietHours) -> None:
    for field in ("start", "end"):
        if not _CLOCK_TIME.fullmatch(text := getattr(hours, field)):
            raise UsageError(
                f"quiet_hours.{field} is {shown(text)}: give hours and minutes, such as 22:00.", f"/quiet_hours/{field}"
            )
    try:
        check_timezone(hours.timezone)
    except ScheduleError as error:
        raise UsageError(str(error), "/quiet_hours/timezone") from error
    if hours.start == hours.end:
        raise UsageError(
            f"quiet_hours.end is {hours.end}, as start: give different times, or set enabled to false.",
            "/quiet_hours/end",
        )
