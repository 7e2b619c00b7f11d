"""Whatever is typed: an answer or the documented error, within the step limit."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from detent.domain.schedule import Schedule, ScheduleError
from detent.domain.schedule.cron import CYCLE_MONTHS, CronWalls

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
ALPHABET = "0123456789*/,-?#LWHRJANFEBMONSUTVD@~() \t=:;TZPQ.+_%&{}"
ODDITIES = ["\uff10", "٣", "²", "é", "\x00", "\u200b", "\n", "\uff19", "İ", "ß", "\u2212"]
FIELD_SEEDS = (
    ["*", "0", "59", "60", "*/5", "*/60", "5/15", "1-5", "22-2", "H", "H/15", "H(0-29)/10", "0,30", "1,,2", "-1", "1-"],
    ["*", "0", "23", "24", "*/2", "9-17", "22-4/2", "H", "7,19", "?", "0-23", "*/2,5"],
    ["*", "?", "1", "31", "32", "L", "L-3", "L-31", "15W", "LW", "L-3W", "1W,15W", "W", "WL", "28-3", "29", "30", "H"],
    ["*", "1", "12", "13", "JAN", "NOV-FEB", "2", "*/3", "JANUARY", "2,4", "H"],
    ["*", "?", "0", "7", "8", "MON", "MON-FRI", "FRI-MON", "5L", "L", "L5", "MON#1", "1#6", "MON#0", "FRIL", "SUN,7"],
)
OTHER_SEEDS = (
    "@daily",
    "@hourly",
    "@reboot",
    "@every 5m",
    "every 15m",
    "every 1h30m",
    "every 2 days",
    "2030-12-24T18:00:00+01:00",
    "2030-02-30T18:00:00Z",
    "CRON_TZ=Europe/Berlin 0 9 * * *",
    "TZ=Mars/Olympus 0 9 * * *",
    "0 10 ? * MON-FRI *",
    "cron(0 10 ? * 2 2027)",
    "rate(5 minutes)",
    "RRULE:FREQ=WEEKLY;BYDAY=MO,FR;INTERVAL=2",
    "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17",
    "DTSTART:20260101T090000\nRRULE:FREQ=DAILY;COUNT=5\nEXDATE:20260102T090000",
    "FREQ=HOURLY;INTERVAL=6;UNTIL=20300101T000000Z",
    "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29",
)


def draw_text(draw: random.Random) -> str:
    kind = draw.random()
    if kind < 0.1:
        return "".join(draw.choice(ALPHABET) for _ in range(draw.randint(0, 40)))
    if kind < 0.3:
        text = draw.choice(OTHER_SEEDS)
    else:
        fields = ["*" if draw.random() < 0.45 else draw.choice(seeds) for seeds in FIELD_SEEDS]
        if draw.random() < 0.3:
            fields.insert(0, draw.choice(FIELD_SEEDS[0]))
        if draw.random() < 0.2:
            fields.append(draw.choice(["*", "2030", "1969", "2030-2040", "2020", "2030/4", "2040-2030"]))
        text = " ".join(fields)
    for _ in range(draw.choice([0, 0, 0, 1, 1, 3])):
        text = mutate(draw, text)
    return text


def mutate(draw: random.Random, text: str) -> str:
    place = draw.randint(0, len(text))
    kind = draw.random()
    if kind < 0.4:
        return text[:place] + draw.choice(ALPHABET) + text[place:]
    if kind < 0.7:
        return text[:place] + text[place + 1 :]
    if kind < 0.75:
        return text[:place] + draw.choice(ODDITIES) + text[place:]
    if kind < 0.9:
        return text[:place] + draw.choice(ALPHABET) + text[place + 1 :]
    return text[:place] + text[draw.randint(0, len(text)) :]


def draw_options(draw: random.Random) -> dict[str, Any]:
    zones = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Santiago"]
    return {
        "timezone": "Nowhere/Land" if draw.random() < 0.03 else draw.choice(zones),
        "day_match": draw.choice(["or", "and", "or", "and", "xor"]) if draw.random() < 0.4 else None,
        "dialect": draw.choice(["quartz", "aws"]) if draw.random() < 0.2 else "unix",
        "hash_key": None if draw.random() < 0.2 else "job-1",
        "dst_gap": draw.choice(["run", "shift", "skip"]),
        "dst_overlap": draw.choice(["first", "last", "both"]),
        "anchor": NOW,
    }


class StepCounter:
    """Counts the months an expression is searched through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = 0
        original = CronWalls.month_days

        def counted(walls: CronWalls, month_index: int) -> int:
            self.steps += 1
            return original(walls, month_index)

        monkeypatch.setattr(CronWalls, "month_days", counted)


def exercise(text: str, options: dict[str, Any]) -> bool:
    """True when the text was read; then everything about the schedule must work."""
    try:
        schedule = Schedule.parse(text, **options)
    except ScheduleError as error:
        assert error.pointer.startswith("/"), (text, options)
        assert error.message.endswith((".", "?")), error.message
        assert len(error.message) > 20
        return False
    tick = schedule.next_after(NOW)
    assert tick is None or tick > NOW
    if tick is not None:
        assert schedule.latest(NOW, tick) == tick, text
        assert schedule.count_between(NOW, tick) == 1, text
    assert schedule.describe()
    schedule.preview(NOW, 3)
    stored = schedule.to_stored()
    again = Schedule.from_stored(stored)
    assert again.to_stored() == stored, text
    if schedule.kind in ("cron", "rrule"):
        assert again.next_after(NOW) == tick, text
    return True


def fuzz(count: int, seed: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    draw = random.Random(seed)
    counter = StepCounter(monkeypatch)
    read, most = 0, 0
    for _ in range(count):
        text, options = draw_text(draw), draw_options(draw)
        counter.steps = 0
        read += exercise(text, options)
        most = max(most, counter.steps)
        # One search goes through the calendar's whole cycle at most, and an input is searched a few times.
        assert counter.steps <= 8 * CYCLE_MONTHS, (text, options, counter.steps)
    return read, most


def test_five_thousand_strange_inputs_are_read_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    read, _ = fuzz(5_000, "fuzz", monkeypatch)
    assert 500 < read < 4_000


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_two_hundred_thousand_strange_inputs_are_read_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    read, _ = fuzz(200_000, "fuzz long", monkeypatch)
    assert read > 20_000


@pytest.mark.parametrize("value", [5, 5.5, True, [], ["0 9 * * *"], b"0 9 * * *", {"cron": 5}, {"cron": None}])
def test_a_schedule_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(ScheduleError) as caught:
        Schedule.parse(value)
    assert caught.value.pointer.startswith("/schedule")
