"""The schedule of a task: it never ticks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from detent.domain.misfire import split_by_day
from detent.domain.schedule import Schedule, ScheduleError
from detent.domain.schedule.explain import explain_text
from detent.domain.schedule.preview import clock_changes, clock_notes

NOW = datetime(2026, 3, 1, tzinfo=UTC)
YEAR = timedelta(days=366)


def test_a_task_has_no_tick_at_any_time() -> None:
    never = Schedule.parse(None, timezone="Europe/Berlin", anchor=NOW, hash_key="7")
    assert never.never and never.kind == "never"
    assert never.next_after(NOW) is never.first_after(NOW) is never.latest(NOW - YEAR, NOW + YEAR) is None
    assert never.count_between(NOW - YEAR, NOW + YEAR) == 0
    assert never.between(NOW, NOW + YEAR, 10) == []
    assert never.jitter(7, NOW) == timedelta(0)
    assert never.at is never.anchor is None
    assert never.anchored(NOW) is never
    assert clock_changes(never, NOW) == [] and clock_notes(never, NOW) == (None, [])
    assert len(split_by_day(never, NOW, NOW, "policy")) == 1  # of a tick that a former schedule had


def test_all_tasks_share_one_stored_schedule_which_reads_back_as_it_was() -> None:
    one, other = Schedule.parse(None, timezone="Europe/Berlin"), Schedule.parse(None)
    assert one.to_stored() == {"kind": "never"} == other.to_stored()
    assert Schedule.from_stored(one.to_stored()) == one == other
    assert hash(one) == hash(other)
    assert one != Schedule.parse("@daily")
    assert (one.timezone, other.timezone) == ("Europe/Berlin", "UTC")


def test_a_task_is_described_in_words() -> None:
    assert Schedule.parse(None).describe() == "On demand"
    answer = explain_text(None, "UTC", 5, NOW)
    assert (answer["description"], answer["ticks"]) == ("On demand", [])
    assert answer["warnings"] == ["A task has no schedule: its runs are enqueued."]


def test_the_zone_of_a_task_is_checked() -> None:
    with pytest.raises(ScheduleError, match="Europe/Berlin"):
        Schedule.parse(None, timezone="Europe/Berln")
