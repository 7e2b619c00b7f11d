"""From events of jobs to changes of alerts: which rules they match, and which alert of each rule counts them. No I/O.

Events are counted; what is true of a job for a while (its ticks are set aside, or wait to be caught up) is noted once,
until the job has recovered. Such jobs beyond the most that an alert has are counted when it fills up, and not again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from detent.domain.alert_rule import AlertRuleFields, EventKind
from detent.domain.alerts import JobFacts, matches, message_due, severity_of

MOST_JOBS = 1_000
"""Whose recovery one alert waits for. Events of further jobs are counted without their names."""
MOST_ALERTS = 100
"""Of a rule that has one for each job; further jobs share one."""

LASTING: frozenset[EventKind] = frozenset({"set_aside", "catch_up"})


class CountedEvent(NamedTuple):
    """So many events of one kind of one job. `tick`, `serial` and `detail` are those of the last one."""

    kind: EventKind
    events: int
    last_at: datetime
    tick: datetime | None
    serial: int | None
    detail: str | None
    job: int
    tenant: int
    facts: JobFacts


class LockedRule(NamedTuple):
    rule: int
    tenant: int
    fields: AlertRuleFields


class OpenAlert(NamedTuple):
    """`jobs`: how many entries it has, at most one for each job and kind."""

    alert: int
    rule: int
    only_job: int | None
    messages: int
    last_message_at: datetime | None
    jobs: int


class AlertEntry(NamedTuple):
    """A job in an alert."""

    alert: int
    job: int
    kind: str


@dataclass
class AlertChange:
    """What is added to an alert; `alert` None: it is new."""

    rule: int
    tenant: int
    only_job: int | None
    alert: int | None
    flush_at: datetime
    severity: int = 0
    events: int = 0
    untracked: int = 0
    entries: list[CountedEvent] = field(default_factory=list)


class OpenAlerts:
    """The open alerts of some rules, and the entries that some jobs have in them: `recovered` or not."""

    def __init__(self, alerts: Iterable[OpenAlert], entries: Mapping[AlertEntry, bool]) -> None:
        self._alerts = {(one.rule, one.only_job): one for one in alerts}
        self._entries = entries
        self._of_rule = Counter(rule for rule, _ in self._alerts)

    def get(self, rule: int, only_job: int | None) -> OpenAlert | None:
        return self._alerts.get((rule, only_job))

    def subject(self, rule: LockedRule, job: int, added: int) -> int | None:
        """The job that its alert is about alone, or None where jobs share one. `added`: alerts that are being added."""
        if rule.fields.group_by == "rule":
            return None
        if (rule.rule, job) in self._alerts or self._of_rule[rule.rule] + added < MOST_ALERTS:
            return job
        return None

    def has(self, alert: int, event: CountedEvent) -> bool:
        return AlertEntry(alert, event.job, event.kind) in self._entries

    def is_noted(self, alert: OpenAlert, event: CountedEvent) -> bool:
        """Whether this lasting state of the job was counted already. If it has no entry in a full alert, the pass that
        filled the alert counted it."""
        recovered = self._entries.get(AlertEntry(alert.alert, event.job, event.kind))
        return alert.jobs >= MOST_JOBS if recovered is None else not recovered


def plan_changes(
    rules: Sequence[LockedRule],
    events: Sequence[CountedEvent],
    streaks: Mapping[int, int],
    known: OpenAlerts,
    now: datetime,
) -> list[AlertChange]:
    """`streaks`: how many of the last runs of a job were dead, one after the other."""
    of_tenant: dict[int, list[CountedEvent]] = defaultdict(list)
    for event in events:
        of_tenant[event.tenant].append(event)
    changes: list[AlertChange] = []
    for rule in rules:
        changes += _of_rule(rule, list(_matching(rule.fields, of_tenant[rule.tenant], streaks)), known, now)
    return changes


def _matching(
    rule: AlertRuleFields, events: Sequence[CountedEvent], streaks: Mapping[int, int]
) -> Iterator[CountedEvent]:
    for event in events:
        if event.kind != "catch_up" and matches(rule, event.kind, event.facts):
            yield event
        if event.kind == "dead" and streaks.get(event.job, 0) >= rule.consecutive_failures:
            streak = event._replace(kind="failures", detail=f"{rule.consecutive_failures} or more in a row")
            if matches(rule, "failures", event.facts):
                yield streak
    late = [event for event in events if event.kind == "catch_up" and matches(rule, "catch_up", event.facts)]
    if sum(event.events for event in late) >= rule.catch_up_ticks:
        yield from late


def _of_rule(rule: LockedRule, events: Sequence[CountedEvent], known: OpenAlerts, now: datetime) -> list[AlertChange]:
    changes: dict[int | None, AlertChange] = {}
    for event in events:
        subject = known.subject(rule, event.job, sum(change.alert is None for change in changes.values()))
        alert = known.get(rule.rule, subject)
        if alert is not None and event.kind in LASTING and known.is_noted(alert, event):
            continue
        if subject not in changes:
            changes[subject] = _new_change(rule, subject, alert, now)
        _add(changes[subject], event, alert, known)
    return list(changes.values())


def _new_change(rule: LockedRule, subject: int | None, alert: OpenAlert | None, now: datetime) -> AlertChange:
    messages, last = (0, None) if alert is None else (alert.messages, alert.last_message_at)
    due = message_due(rule.fields, now, messages, last)
    return AlertChange(rule.rule, rule.tenant, subject, None if alert is None else alert.alert, due)


def _add(change: AlertChange, event: CountedEvent, alert: OpenAlert | None, known: OpenAlerts) -> None:
    change.severity = max(change.severity, severity_of(event.kind, event.facts.tags))
    change.events += event.events
    present = alert is not None and known.has(alert.alert, event)
    if present or (0 if alert is None else alert.jobs) + len(change.entries) < MOST_JOBS:
        change.entries.append(event)
    else:
        change.untracked += event.events
