"""Which events a rule reports, when its messages are due, and what quiet hours hold back. No server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from detent.domain.alert_events import (
    MOST_ALERTS,
    MOST_JOBS,
    AlertEntry,
    CountedEvent,
    LockedRule,
    OpenAlert,
    OpenAlerts,
    plan_changes,
)
from detent.domain.alert_rule import AlertRuleFields, EventKind, QuietHours
from detent.domain.alerts import (
    LEAST_SPACING,
    NEVER,
    AlertState,
    JobFacts,
    Pause,
    Send,
    matches,
    message_due,
    next_step,
    quiet_until,
)

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NOTHING_OPEN = OpenAlerts([], {})
SLACK = {"type": "slack", "url": "https://hooks.example.com/x"}
PAGERDUTY = {"type": "pagerduty", "routing_key": {"secret": "key"}}


def rule(**fields: Any) -> AlertRuleFields:
    document = {"events": ["dead"], "receiver": SLACK, "group_seconds": 60, **fields}
    return msgspec.convert(document, AlertRuleFields)


def state(**fields: Any) -> AlertState:
    usual = AlertState(2, 0, None, NOW, calm=False, unrecovered=1, fresh=True)
    return usual._replace(**fields)


def event(job: int = 1, kind: EventKind = "dead", events: int = 1, **facts: Any) -> CountedEvent:
    known = JobFacts(facts.get("name", f"job-{job}"), facts.get("queue", "default"), facts.get("tags", ()))
    return CountedEvent(kind, events, NOW, NOW, 0, None, job, 1, known)


@pytest.mark.parametrize(
    ("fields", "job", "expected"),
    [
        ({}, JobFacts("a", "q", ()), True),
        ({"enabled": False}, JobFacts("a", "q", ()), False),
        ({"events": ["deadline"]}, JobFacts("a", "q", ()), False),
        ({"tags": ["x", "y"]}, JobFacts("a", "q", ("y",)), True),
        ({"tags": ["x"]}, JobFacts("a", "q", ("xx",)), False),
        ({"queues": ["mail"]}, JobFacts("a", "q", ()), False),
        ({"jobs": ["nightly-*", "a?"]}, JobFacts("a1", "q", ()), True),
        ({"jobs": ["nightly-*"]}, JobFacts("Nightly-1", "q", ()), False),
        ({"jobs": ["copy[1]-*"]}, JobFacts("copy[1]-a", "q", ()), True),
        ({"jobs": ["copy[1]-*"]}, JobFacts("copy1-a", "q", ()), False),
        ({"min_severity": "critical"}, JobFacts("a", "q", ()), False),
        ({"min_severity": "critical"}, JobFacts("a", "q", ("severity:critical",)), True),
        ({"min_severity": "warning"}, JobFacts("a", "q", ("severity:info",)), False),
        ({"min_severity": "critical"}, JobFacts("a", "q", ("severity:dreadful",)), False),
    ],
)
def test_a_rule_reports_what_all_its_filters_let_through(fields: dict[str, Any], job: JobFacts, expected: bool) -> None:
    assert matches(rule(**fields), "dead", job) is expected


def test_the_first_message_waits_for_the_group_and_later_ones_twice_as_long_up_to_an_hour() -> None:
    assert message_due(rule(), NOW, 0, None) == NOW + MINUTE
    waits = [message_due(rule(), NOW, messages, NOW) - NOW for messages in (1, 2, 3, 6, 50)]
    assert waits == [2 * MINUTE, 4 * MINUTE, 8 * MINUTE, 60 * MINUTE, 60 * MINUTE]
    assert message_due(rule(group_seconds=7200), NOW, 3, NOW) == NOW + 120 * MINUTE
    assert message_due(rule(), NOW, 1, NOW - 60 * MINUTE) == NOW + MINUTE


def test_messages_of_an_alert_have_a_least_distance_where_nothing_is_grouped() -> None:
    at_once = rule(group_seconds=0)
    assert message_due(at_once, NOW, 0, None) == NOW
    assert message_due(at_once, NOW, 1, NOW) == message_due(at_once, NOW, 9, NOW) == NOW + LEAST_SPACING
    assert message_due(at_once, NOW, 1, NOW - MINUTE) == NOW
    over = state(messages=1, last_message_at=NOW, fresh=False, unrecovered=0, flush_at=NEVER)
    assert next_step(at_once, over, NOW) == Pause(NOW + LEAST_SPACING, calm=True)
    assert next_step(at_once, over._replace(last_message_at=NOW - MINUTE), NOW) == Pause(NOW, calm=True)


def test_an_alert_opens_continues_and_recovers_after_a_calm_time() -> None:
    assert next_step(rule(), state(), NOW) == Send("opened")
    assert next_step(rule(), state(messages=1), NOW) == Send("continued")
    assert next_step(rule(), state(messages=1, fresh=False), NOW) == Pause(NEVER)
    over = state(messages=1, fresh=False, unrecovered=0, flush_at=NEVER)
    assert next_step(rule(), over, NOW) == Pause(NOW + MINUTE, calm=True)
    assert next_step(rule(), over._replace(calm=True, flush_at=NOW), NOW) == Send("recovered")


def test_what_is_over_before_its_first_message_is_one_message() -> None:
    early = state(unrecovered=0, flush_at=NOW + MINUTE)
    assert next_step(rule(), early, NOW) == Pause(NOW + MINUTE, calm=True)
    step = next_step(rule(), state(unrecovered=0), NOW)
    assert step == Send("passed") and isinstance(step, Send) and step.closes


def test_a_rule_without_recoveries_closes_silently_but_resolves_at_pagerduty() -> None:
    over = state(messages=1, fresh=False, unrecovered=0, calm=True)
    assert next_step(rule(recovered=False), over, NOW) == Send("recovered", silent=True)
    assert next_step(rule(recovered=False, receiver=PAGERDUTY), over, NOW) == Send("recovered")


def test_events_after_the_last_message_are_reported_also_without_recoveries() -> None:
    over = state(messages=1, fresh=True, unrecovered=0, calm=True)
    assert next_step(rule(recovered=False), over, NOW) == Send("recovered")


def test_quiet_hours_in_a_zone_that_is_not_known_hold_nothing_back() -> None:
    hours = QuietHours("00:00", "23:59", "Mars/Olympus")
    assert quiet_until(hours, NOW) is None
    unknown = rule(quiet_hours={"start": "00:00", "end": "23:59", "timezone": "Mars/Olympus"})
    assert next_step(unknown, state(), NOW) == Send("opened")


@pytest.mark.parametrize(
    ("moment", "until"),
    [
        ("2026-11-18T20:59:59", None),
        ("2026-11-18T21:00:00", "2026-11-19T06:00:00"),
        ("2026-11-19T05:59:59", "2026-11-19T06:00:00"),
        ("2026-11-19T06:00:00", None),
        # The night in which clocks are set forward, and the one in which they are set back.
        ("2026-03-28T22:00:00", "2026-03-29T05:00:00"),
        ("2026-10-24T22:00:00", "2026-10-25T06:00:00"),
    ],
)
def test_quiet_hours_end_at_their_local_time(moment: str, until: str | None) -> None:
    hours = QuietHours("22:00", "07:00", "Europe/Berlin")
    expected = None if until is None else datetime.fromisoformat(until).replace(tzinfo=UTC)
    assert quiet_until(hours, datetime.fromisoformat(moment).replace(tzinfo=UTC)) == expected


def test_quiet_hours_within_a_day_and_at_an_hour_that_comes_twice() -> None:
    assert quiet_until(QuietHours("11:00", "13:00"), NOW) == NOW + timedelta(hours=1)
    assert quiet_until(QuietHours("13:00", "14:00"), NOW) is None
    twice = QuietHours("01:00", "02:30", "Europe/Berlin")
    for minute in range(0, 240, 7):
        moment = datetime(2026, 10, 24, 23, 0, tzinfo=UTC) + minute * MINUTE
        end = quiet_until(twice, moment)
        assert end is None or moment < end <= moment + timedelta(hours=3)


def test_messages_wait_in_quiet_hours_and_critical_ones_do_not() -> None:
    quiet = rule(quiet_hours={"start": "11:00", "end": "13:00"})
    end = NOW + timedelta(hours=1)
    assert next_step(quiet, state(), NOW) == Pause(end)
    assert next_step(quiet, state(severity=3), NOW) == Send("opened")
    strict = rule(quiet_hours={"start": "11:00", "end": "13:00", "critical": False})
    assert next_step(strict, state(severity=3), NOW) == Pause(end)
    over = state(unrecovered=0, messages=0)
    assert next_step(quiet, over, NOW) == Pause(end, calm=True)
    assert next_step(quiet, over._replace(calm=True, flush_at=end), end) == Send("passed")


def test_an_alert_tracks_some_jobs_and_counts_the_events_of_all() -> None:
    (change,) = plan_changes(
        [LockedRule(7, 1, rule())], [event(job, events=2) for job in range(MOST_JOBS + 5)], {}, NOTHING_OPEN, NOW
    )
    assert (len(change.entries), change.events, change.untracked) == (MOST_JOBS, 2 * MOST_JOBS + 10, 10)
    full = OpenAlerts([OpenAlert(3, 7, None, 1, NOW, MOST_JOBS)], {AlertEntry(3, 1, "dead"): True})
    (change,) = plan_changes([LockedRule(7, 1, rule())], [event(1), event(2)], {}, full, NOW)
    assert (change.alert, [one.job for one in change.entries], change.untracked) == (3, [1], 1)


def test_a_rule_by_job_has_one_alert_for_each_up_to_a_number() -> None:
    each = LockedRule(7, 1, rule(group_by="job"))
    changes = plan_changes([each], [event(job) for job in range(1, MOST_ALERTS + 20)], {}, NOTHING_OPEN, NOW)
    assert len(changes) == MOST_ALERTS + 1
    assert [change.only_job for change in changes].count(None) == 1
    (shared,) = [change for change in changes if change.only_job is None]
    assert shared.events == 19 and sum(change.events for change in changes) == MOST_ALERTS + 19


def test_consecutive_failures_count_dead_runs_in_a_row() -> None:
    watching = LockedRule(7, 1, rule(events=["failures"], consecutive_failures=3))
    assert plan_changes([watching], [event(1), event(2)], {1: 2, 2: 1}, NOTHING_OPEN, NOW) == []
    (change,) = plan_changes([watching], [event(1), event(2)], {1: 3, 2: 2}, NOTHING_OPEN, NOW)
    assert [(one.job, one.kind, one.detail) for one in change.entries] == [(1, "failures", "3 or more in a row")]


def test_a_catch_up_is_large_by_the_ticks_of_all_matching_jobs_and_noted_once() -> None:
    large = LockedRule(7, 1, rule(events=["catch_up"], catch_up_ticks=100))
    ticks = [event(job, "catch_up", 40) for job in (1, 2, 3)]
    assert plan_changes([large], ticks[:2], {}, NOTHING_OPEN, NOW) == []
    (change,) = plan_changes([large], ticks, {}, NOTHING_OPEN, NOW)
    assert (change.events, change.severity) == (120, 1)
    noted = {AlertEntry(3, job, "catch_up"): job == 3 for job in (1, 2, 3)}
    known = OpenAlerts([OpenAlert(3, 7, None, 1, NOW, 3)], noted)
    (change,) = plan_changes([large], ticks, {}, known, NOW)
    assert [one.job for one in change.entries] == [3]


def test_a_catch_up_of_more_jobs_than_an_alert_has_is_counted_once() -> None:
    large = LockedRule(7, 1, rule(events=["catch_up", "dead"]))
    ticks = [event(job, "catch_up", 40) for job in range(MOST_JOBS + 5)]
    (change,) = plan_changes([large], ticks, {}, NOTHING_OPEN, NOW)
    assert (len(change.entries), change.untracked, change.events) == (MOST_JOBS, 200, 40 * MOST_JOBS + 200)
    noted = {AlertEntry(3, one.job, "catch_up"): False for one in change.entries}
    full = OpenAlerts([OpenAlert(3, 7, None, 1, NOW, MOST_JOBS)], noted)
    assert plan_changes([large], ticks, {}, full, NOW) == []
    # What happens, instead of being so, is counted in a full alert too.
    (change,) = plan_changes([large], [*ticks, event(MOST_JOBS + 1)], {}, full, NOW)
    assert (change.events, change.untracked) == (1, 1)


def test_the_rules_of_a_tenant_do_not_see_the_jobs_of_another() -> None:
    assert plan_changes([LockedRule(7, 2, rule())], [event(1)], {}, NOTHING_OPEN, NOW) == []
