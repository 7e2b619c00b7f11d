"""Which rules an event concerns, when an alert sends its next message, and what that message is. No I/O: the time is an
argument.

An alert opens with the first event of its rule. Its first message waits `group_seconds`, so that what happens together
is reported together; every further one waits twice as long as the one before, from ten seconds to an hour. An alert
closes when all its jobs have recovered and no event came for `group_seconds`. During quiet hours it stays open and
counts on.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, time, timedelta
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from detent.domain.alert_rule import SEVERITIES, AlertRuleFields, EventKind, PagerDutyReceiver, QuietHours
from detent.domain.schedule.errors import ScheduleError
from detent.domain.schedule.zones import check_timezone

SEVERITY_OF: dict[EventKind, int] = {
    "dead": 2,
    "deadline": 2,
    "failures": 2,
    "paused": 2,
    "set_aside": 3,
    "catch_up": 1,
}
CRITICAL = 3
SEVERITY_TAG = "severity:"
"""A job with the tag `severity:critical` has that severity in all its events."""

LEAST_SPACING = timedelta(seconds=10)
"""Between two messages of an alert, however small `group_seconds` is."""
LONGEST_SPACING = timedelta(hours=1)
NEVER = datetime.max.replace(tzinfo=UTC)

MessageEvent = Literal["opened", "continued", "recovered", "passed", "test"]


class JobFacts(NamedTuple):
    """What rules know about the job of an event."""

    name: str
    queue: str
    tags: tuple[str, ...]


class AlertState(NamedTuple):
    """An open alert. `unrecovered` jobs still have the problem; `fresh`: events came after the last message."""

    severity: int
    messages: int
    last_message_at: datetime | None
    flush_at: datetime
    calm: bool
    unrecovered: int
    fresh: bool


class WaitingAlert(NamedTuple):
    """An open alert whose next look lies ahead. `fresh_at`: an event that is not reported yet; `recovered_at`: when the
    last job that has recovered did."""

    alert: int
    calm: bool
    messages: int
    last_message_at: datetime | None
    opened_at: datetime
    fresh_at: datetime | None
    recovered_at: datetime | None


class Pause(NamedTuple):
    """Look again at `until`; NEVER: when something happens."""

    until: datetime
    calm: bool = False


class Send(NamedTuple):
    """Make this message. `silent`: close the alert without one."""

    event: MessageEvent
    silent: bool = False

    @property
    def closes(self) -> bool:
        return self.event in ("recovered", "passed")


def trial_content(rule: str, at: datetime) -> dict[str, object]:
    """What a test of the receiver says."""
    return {
        "rule": rule,
        "alert": None,
        "severity": "info",
        "opened_at": at,
        "at": at,
        "counts": [],
        "events_total": 0,
        "events_of_other_jobs": 0,
        "jobs_total": 0,
        "jobs": [],
    }


def severity_of(kind: EventKind, tags: Iterable[str]) -> int:
    """The tag of the job decides, if it has one; else the kind of the event."""
    named = [tag.removeprefix(SEVERITY_TAG) for tag in tags if tag.startswith(SEVERITY_TAG)]
    known = [SEVERITIES.index(name) for name in named if name in SEVERITIES]
    return max(known, default=SEVERITY_OF[kind])


def matches(rule: AlertRuleFields, kind: EventKind, job: JobFacts) -> bool:
    """Whether the rule reports such an event of this job."""
    return (
        rule.enabled
        and kind in rule.events
        and (not rule.queues or job.queue in rule.queues)
        and (not rule.tags or not set(rule.tags).isdisjoint(job.tags))
        and (not rule.jobs or any(_is_like(job.name, pattern) for pattern in rule.jobs))
        and severity_of(kind, job.tags) >= SEVERITIES.index(rule.min_severity)
    )


def _is_like(name: str, pattern: str) -> bool:
    """Only * and ? stand for other characters: names may have brackets."""
    return fnmatchcase(name, pattern.replace("[", "[[]"))


def message_due(rule: AlertRuleFields, now: datetime, messages: int, last_message_at: datetime | None) -> datetime:
    """When an event that came now may be reported."""
    group = timedelta(seconds=rule.group_seconds)
    if last_message_at is None:
        return now + group
    spacing: timedelta = min(group * float(2 ** min(messages, 20)), max(LONGEST_SPACING, group))
    return max(now + group, last_message_at + max(spacing, LEAST_SPACING))


def due_without_quiet(rule: AlertRuleFields, alert: WaitingAlert) -> datetime:
    """When the alert is due without quiet hours. `next_step` then applies the quiet hours that its rule has now."""
    last = alert.last_message_at
    began = alert.opened_at if last is None else alert.fresh_at or last
    if alert.calm:
        return _calm_until(rule, last, alert.recovered_at or began)
    return message_due(rule, began, alert.messages, last)


def next_step(rule: AlertRuleFields, alert: AlertState, now: datetime) -> Pause | Send:
    """What to do with an alert that is due, or whose last job has recovered."""
    over = alert.unrecovered == 0
    if over and not alert.calm and (alert.flush_at > now or alert.messages):
        return Pause(_after_quiet(rule, alert.severity, _calm_until(rule, alert.last_message_at, now)), calm=True)
    open_again = _after_quiet(rule, alert.severity, now)
    if open_again > now:
        return Pause(open_again, calm=over)
    if over:
        return _close(rule, alert)
    if alert.fresh:
        return Send("continued" if alert.messages else "opened")
    return Pause(NEVER)


def _calm_until(rule: AlertRuleFields, last_message_at: datetime | None, since: datetime) -> datetime:
    """When the alert is over if no event comes until then. Its last job recovered at `since`."""
    calm = since + timedelta(seconds=rule.group_seconds)
    return calm if last_message_at is None else max(calm, last_message_at + LEAST_SPACING)


def _close(rule: AlertRuleFields, alert: AlertState) -> Send:
    if not alert.messages:
        return Send("passed")
    # PagerDuty keeps an incident open until it is resolved.
    asked = rule.recovered or isinstance(rule.receiver, PagerDutyReceiver)
    return Send("recovered", silent=not asked and not alert.fresh)


def _after_quiet(rule: AlertRuleFields, severity: int, moment: datetime) -> datetime:
    """The moment itself, or the end of the quiet hours that it is in."""
    hours = rule.quiet_hours
    if hours is None or (hours.critical and severity >= CRITICAL):
        return moment
    return quiet_until(hours, moment) or moment


def quiet_until(hours: QuietHours, moment: datetime) -> datetime | None:
    """The end of the quiet hours that contain this moment. None: there are none, or this node does not know the zone. A
    message at the wrong time is better than none."""
    try:
        zone = check_timezone(hours.timezone)
    except ScheduleError:
        return None
    local = moment.astimezone(zone)
    start, end = time.fromisoformat(hours.start), time.fromisoformat(hours.end)
    clock = local.time().replace(tzinfo=None)
    if start < end:
        quiet, days = start <= clock < end, 0
    else:
        quiet, days = clock >= start or clock < end, 1 if clock >= start else 0
    if not quiet:
        return None
    over = datetime.combine(local.date() + timedelta(days=days), end, zone)
    # Where clocks are set back, the end may come twice: then the first one may be over already.
    first, second = (over.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
    return first if first > moment else second
