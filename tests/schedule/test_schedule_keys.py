"""Idempotency key templates."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from detent.domain.schedule import Schedule, ScheduleError
from detent.domain.schedule.keys import check_key_template, render_key

NOW = datetime(2026, 10, 15, 12, tzinfo=UTC)


def render(template: str, scheduled_at: datetime, timezone: str = "Europe/Berlin") -> str:
    return render_key(template, job_id=42, job="nightly", scheduled_at=scheduled_at, timezone=timezone)


def warnings(template: str, spec: str, timezone: str = "UTC", **options: str) -> list[str]:
    schedule = Schedule.parse(spec, timezone=timezone, anchor=NOW, **options)  # type: ignore[arg-type]
    return check_key_template(template, schedule, timezone, NOW)


def test_every_field_is_filled_in() -> None:
    tick = datetime(2026, 12, 31, 23, 30, tzinfo=UTC)
    template = "{{job_id}}/{{job}}/{{scheduled_at}}/{{ scheduled_at_unix }}/{{date}}/{{week}}/{{month}}/{{hour}}"
    assert render(template, tick) == (
        "42/nightly/2026-12-31T23:30:00Z/1798759800/2027-01-01/2026-W53/2027-01/2027-01-01T00"
    )


def test_dates_are_those_of_the_zone_of_the_job() -> None:
    tick = datetime(2026, 11, 15, 23, 30, tzinfo=UTC)
    assert render("{{date}}", tick, "UTC") == "2026-11-15"
    assert render("{{date}}", tick, "Asia/Tokyo") == "2026-11-16"


def test_a_value_that_looks_like_a_field_is_left_alone() -> None:
    assert render_key("{{job}}", job_id=1, job="{{date}}", scheduled_at=NOW, timezone="UTC") == "{{date}}"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{jobb}}", "{{jobb}}, which is not known"),
        ("{{}}", "not known"),
        ("{{job}", "braces"),
        ("job}}", "braces"),
        ("", "0 characters"),
        ("   ", "characters"),
        ("x" * 201, "201 characters"),
        ("{{date}}\r\nX-Evil: 1", "header"),
        ("{{date}} é", "header"),
    ],
)
def test_a_template_that_cannot_be_read_is_refused(template: str, words: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        warnings(template, "@daily")
    assert words in caught.value.message
    assert caught.value.pointer == "/idempotency_key_template"


@pytest.mark.parametrize(
    ("template", "spec"),
    [
        ("{{job}}-{{scheduled_at}}", "* * * * * *"),
        ("{{scheduled_at_unix}}", "every 1s"),
        ("{{date}}", "@daily"),
        ("{{hour}}", "@hourly"),
        ("{{week}}", "0 9 * * MON"),
        ("{{month}}", "0 0 L * *"),
        ("fixed", "2030-01-01T00:00:00Z"),
    ],
)
def test_a_template_that_tells_ticks_apart_has_no_warning(template: str, spec: str) -> None:
    assert warnings(template, spec) == []


@pytest.mark.parametrize(
    ("template", "spec"),
    [
        ("{{date}}", "0 */6 * * *"),
        ("{{month}}", "0 9 * * MON"),
        ("{{week}}", "@daily"),
        ("{{hour}}", "every 20m"),
        ("{{month}}", "0 0 1,31 * *"),
    ],
)
def test_two_ticks_that_would_share_a_key_are_named(template: str, spec: str) -> None:
    (warning,) = warnings(template, spec)
    assert "the same key" in warning
    assert "{{scheduled_at}}" in warning


def test_a_template_without_a_time_gives_every_tick_the_same_key() -> None:
    (warning,) = warnings("{{job}}", "@daily")
    assert "every tick has the same key" in warning


def test_an_hour_that_the_clock_repeats_is_found_ahead_of_time() -> None:
    (warning,) = warnings("{{hour}}", "@hourly", "America/New_York")
    assert "2026-11-01T01" in warning


def test_a_daily_job_that_runs_twice_on_a_long_day_is_found_ahead_of_time() -> None:
    assert warnings("{{date}}", "30 1 * * *", "America/New_York") == []
    (warning,) = warnings("{{date}}", "30 1 * * *", "America/New_York", dst_overlap="both")
    assert "2026-11-01" in warning
