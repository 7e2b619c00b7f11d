"""Previews: what a user sees before a schedule is saved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from detent.domain.schedule import Schedule, ScheduleError
from detent.domain.schedule.explain import explain_text

NEW_YORK = "America/New_York"
SPRING = datetime(2027, 3, 13, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 31, tzinfo=UTC)


def test_a_time_that_does_not_exist_is_marked_and_explained() -> None:
    answer = explain_text("30 2 * * *", NEW_YORK, 3, SPRING)
    assert [change["on"] for change in answer.pop("clock_changes")] == ["2027-03-14", "2028-03-12", "2029-03-11"]
    assert answer == {
        "description": "At 02:30 every day",
        "timezone": NEW_YORK,
        "ticks": [
            {"at": "2027-03-13T07:30:00Z", "local": "2027-03-13T02:30:00-05:00", "dst": None},
            {"at": "2027-03-14T07:00:00Z", "local": "2027-03-14T03:00:00-04:00", "dst": "moved"},
            {"at": "2027-03-15T06:30:00Z", "local": "2027-03-15T02:30:00-04:00", "dst": None},
        ],
        "skipped": [],
        "warnings": ["02:30 does not exist on 2027-03-14: runs at 03:00"],
    }


def test_a_time_that_is_skipped_is_listed() -> None:
    answer = explain_text("30 2 * * *", NEW_YORK, 3, SPRING, dst_gap="skip")
    assert answer["skipped"] == [
        {"local": "2027-03-14T02:30:00", "why": "02:30 does not exist on 2027-03-14: does not run"}
    ]
    assert [tick["dst"] for tick in answer["ticks"]] == [None, None, None]


def test_a_shifted_time_is_marked_as_moved() -> None:
    answer = explain_text("30 2 * * *", NEW_YORK, 2, SPRING, dst_gap="shift")
    assert answer["ticks"][1]["local"] == "2027-03-14T03:30:00-04:00"
    assert answer["ticks"][1]["dst"] == "moved"
    assert answer["warnings"] == ["02:30 does not exist on 2027-03-14: runs at 03:30"]


def test_a_missing_time_that_falls_on_another_tick_says_which() -> None:
    answer = explain_text("0 2,3 * * *", NEW_YORK, 4, SPRING)
    assert answer["skipped"] == [
        {"local": "2027-03-14T02:00:00", "why": "02:00 does not exist on 2027-03-14: the run at 03:00 stands for it"}
    ]
    assert [tick["local"] for tick in answer["ticks"]][2] == "2027-03-14T03:00:00-04:00"


@pytest.mark.parametrize(
    ("overlap", "marks", "words"),
    [
        ("first", [None, "repeated", None], "runs once, the first time"),
        ("last", [None, "repeated", None], "runs once, the second time"),
        ("both", [None, "repeated", "repeated"], "runs twice"),
    ],
)
def test_a_repeated_time_is_marked_and_explained(overlap: str, marks: list[str | None], words: str) -> None:
    answer = explain_text("30 1 * * *", NEW_YORK, 3, AUTUMN, dst_overlap=overlap)
    assert [tick["dst"] for tick in answer["ticks"]] == marks
    assert answer["warnings"] == [f"01:30 comes twice on 2026-11-01: {words}"]


def test_an_hourly_schedule_marks_the_repeated_hour_and_warns_of_nothing() -> None:
    answer = explain_text("0 * * * *", NEW_YORK, 40, AUTUMN)
    assert [tick["local"][11:16] for tick in answer["ticks"] if tick["dst"]] == ["01:00", "01:00"]
    assert answer["warnings"] == []
    assert explain_text("0 * * * *", NEW_YORK, 60, SPRING)["warnings"] == []


def test_a_wildcard_that_loses_its_hour_says_so() -> None:
    answer = explain_text("0 */2 * * *", NEW_YORK, 20, SPRING)
    assert answer["warnings"] == ["02:00 does not exist on 2027-03-14: the clock is put forward over it"]


def test_a_day_that_does_not_exist_is_made_up_for_on_the_next() -> None:
    answer = explain_text("0 12 * * *", "Pacific/Apia", 3, datetime(2011, 12, 29, 12, tzinfo=UTC))
    assert answer["ticks"][1]["local"] == "2011-12-31T00:00:00+14:00"
    assert answer["warnings"] == ["12:00 does not exist on 2011-12-30: runs at 00:00 on 2011-12-31"]


def test_a_preview_of_an_interval_shows_local_times() -> None:
    answer = explain_text("every 90m", "Asia/Kolkata", 2, AUTUMN)
    assert answer["ticks"][0] == {"at": "2026-10-31T01:30:00Z", "local": "2026-10-31T07:00:00+05:30", "dst": None}


def test_the_first_monday_at_two_in_berlin() -> None:
    answer = explain_text("0 14 ? * MON#1", "Europe/Berlin", 10, AUTUMN)
    assert answer["description"] == "At 14:00 on the first Monday of the month"
    assert len(answer["ticks"]) == 10
    assert answer["ticks"][0] == {"at": "2026-11-02T13:00:00Z", "local": "2026-11-02T14:00:00+01:00", "dst": None}


@pytest.mark.parametrize("count", [0, -1, 1001, True, 2.5, "5"])
def test_the_number_of_ticks_is_bounded(count: object) -> None:
    with pytest.raises(ScheduleError) as caught:
        explain_text("@daily", "UTC", count, AUTUMN)  # type: ignore[arg-type]
    assert caught.value.pointer == "/count"


def test_a_thousand_ticks_can_be_seen_at_once() -> None:
    assert len(explain_text("* * * * * *", NEW_YORK, 1000, AUTUMN)["ticks"]) == 1000


def test_a_schedule_that_is_over_says_so() -> None:
    answer = explain_text("0 0 0 1 1 * 2020", "UTC", 5, AUTUMN)
    assert answer["ticks"] == []
    assert answer["warnings"] == ["This schedule has no further tick."]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("* 9 * * *", "60 times from 09:00"),
        ("* 0 9 * * *", "60 times in that minute"),
        ("*/7 * * * *", "'*/7' in the minute field starts again at 0"),
        ("0 0 */2 * *", "'*/2' in the day-of-month field starts again at 1"),
        ("0 0 31 * *", "Months without a day 31 are left out"),
        ("0 0 29 2 *", "leap years only"),
    ],
)
def test_what_is_often_not_meant_is_pointed_out(text: str, words: str) -> None:
    assert any(words in warning for warning in explain_text(text, "UTC", 1, AUTUMN)["warnings"])


@pytest.mark.parametrize("text", ["0 9 * * MON", "*/15 * * * *", "0 */6 * * *", "0 0 L * *", "0 0 28 * *", "@hourly"])
def test_an_ordinary_schedule_has_no_warnings(text: str) -> None:
    assert explain_text(text, "UTC", 5, AUTUMN)["warnings"] == []


def test_a_gap_full_of_ticks_is_not_listed_without_end() -> None:
    preview = Schedule.parse("0-59 0-59 2 * * *", timezone=NEW_YORK, dst_gap="skip").preview(
        SPRING + timedelta(hours=8), 1000
    )
    assert len(preview.skipped) <= 100
    assert len(preview.warnings) <= 30
