"""A second opinion on every tick, by brute force.

It shares no code with the engine: expressions are drawn as sets of numbers, the text is written from them, and
the ticks are found by looking at every minute (or second) of a stretch of time, one after the other.
"""

from __future__ import annotations

import calendar
import random
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1)


@dataclass
class Drawn:
    """A random expression: its text, and what it means."""

    text: str
    seconds: set[int]
    minutes: set[int]
    hours: set[int]
    days: set[int] | None
    months: set[int]
    weekdays: set[int] | None
    nth: tuple[int, int] | None
    last_day: bool
    day_match: str | None
    real_time: bool
    before_last: set[int] = field(default_factory=set)
    nearest: set[int] = field(default_factory=set)
    last_weekday: bool = False
    years: set[int] | None = None

    def day_matches(self, day: date) -> bool:
        if day.month not in self.months or (self.years is not None and day.year not in self.years):
            return False
        by_date = self.days is not None and day.day in self.days
        if self.last_day and (day + timedelta(days=1)).month != day.month:
            by_date = True
        if self.before_last or self.nearest or self.last_weekday:
            by_date |= self._is_counted_day(day)
        weekday = day.isoweekday() % 7
        by_weekday = self.weekdays is not None and weekday in self.weekdays
        if self.nth is not None and weekday == self.nth[0]:
            number = self.nth[1]
            by_weekday |= (day + timedelta(days=7)).month != day.month if number == 0 else (day.day + 6) // 7 == number
        restricts_date = self.days is not None or self.last_day
        restricts_weekday = self.weekdays is not None or self.nth is not None
        if restricts_date and restricts_weekday:
            return by_date or by_weekday if self.day_match == "or" else by_date and by_weekday
        return (by_date or not restricts_date) and (by_weekday or not restricts_weekday)

    def _is_counted_day(self, day: date) -> bool:
        month = [date(day.year, day.month, n) for n in range(1, calendar.monthrange(day.year, day.month)[1] + 1)]
        if any(len(month) - day.day == back for back in self.before_last):
            return True
        work = [each for each in month if each.isoweekday() <= 5]
        if self.last_weekday and day == work[-1]:
            return True
        return any(day.day == _nearest_to(wanted, work) for wanted in self.nearest if wanted <= len(month))


def _nearest_to(wanted: int, days: list[date]) -> int:
    return min((abs(day.day - wanted), day.day) for day in days)[1]


def _field(draw: random.Random, low: int, high: int, star: float) -> tuple[str, set[int], bool]:
    """Text, values, and whether it was written with a star."""
    kind = draw.random()
    if kind < star:
        return "*", set(range(low, high + 1)), True
    if kind < star + 0.12:
        step = draw.randint(1, max((high - low) // 2, 1))
        return f"*/{step}", set(range(low, high + 1, step)), True
    if kind < star + 0.3:
        first, last = draw.randint(low, high), draw.randint(low, high)
        around = list(range(low, high + 1))
        values = (
            around[first - low : last - low + 1] if first <= last else around[first - low :] + around[: last - low + 1]
        )
        return f"{first}-{last}", set(values), False
    values = [draw.randint(low, high) for _ in range(draw.randint(1, 4))]
    return ",".join(map(str, values)), set(values), False


def draw_expression(draw: random.Random, *, with_seconds: bool = False) -> Drawn:
    second_text, seconds, _ = _field(draw, 0, 59, 0.1) if with_seconds else ("0", {0}, False)
    minute_text, minutes, minute_star = _field(draw, 0, 59, 0.15)
    hour_text, hours, hour_star = _field(draw, 0, 23, 0.3)
    month_text, months, _ = _field(draw, 1, 12, 0.75)
    day_text, days, last_day = "*", None, False
    weekday_text, weekdays, nth = "*", None, None
    shape = draw.random()
    if shape < 0.35 or shape > 0.9:
        if draw.random() < 0.15:
            day_text, last_day, days = "L", True, set()
        else:
            first = draw.randint(1, 28)
            days = {first, draw.randint(1, 31)}
            day_text = ",".join(map(str, sorted(days)))
    if 0.35 <= shape < 0.6 or shape > 0.9:
        if draw.random() < 0.4:
            nth = (draw.randint(0, 6), draw.randint(0, 4))
            weekday_text = f"{nth[0]}#{nth[1]}" if nth[1] else f"{nth[0]}L"
        else:
            weekdays = {draw.randint(0, 6) for _ in range(draw.randint(1, 3))}
            weekday_text = ",".join(map(str, sorted(weekdays)))
    both = day_text != "*" and weekday_text != "*"
    five = f"{minute_text} {hour_text} {day_text} {month_text} {weekday_text}"
    return Drawn(
        f"{second_text} {five}" if with_seconds else five,
        seconds,
        minutes,
        hours,
        days,
        months,
        weekdays,
        nth,
        last_day,
        draw.choice(["or", "and"]) if both else None,
        minute_star or hour_star,
    )


def draw_foreign(draw: random.Random, dialect: str) -> Drawn:
    """An expression in the numbering of Quartz and EventBridge, where Sunday is 1, with one `?` and often a year."""
    drawn = draw_expression(draw, with_seconds=dialect == "quartz")
    day_text, weekday_text = "*", "?"
    drawn.days = drawn.weekdays = drawn.nth = drawn.day_match = None
    drawn.last_day = False
    if draw.random() < 0.5:
        day_text = _draw_counted_days(draw, drawn)
    else:
        day_text, weekday_text = "?", _draw_foreign_weekday(draw, drawn)
    year_text = "*"
    if draw.random() < 0.3:
        first = draw.randint(2025, 2027)
        drawn.years, year_text = {first, first + 1}, f"{first}-{first + 1}"
    parts = drawn.text.split()
    seconds, rest = (parts[:1], parts[1:]) if dialect == "quartz" else ([], parts)
    fields = [*seconds, rest[0], rest[1], day_text, rest[3], weekday_text]
    if dialect == "aws" or drawn.years is not None:
        fields.append(year_text)
    elif drawn.seconds == {0} and draw.random() < 0.5:
        fields = fields[1:]
    drawn.text = " ".join(fields)
    return drawn


def _draw_counted_days(draw: random.Random, drawn: Drawn) -> str:
    number = draw.randint(1, 31)
    kind = draw.randrange(5)
    drawn.days = set()
    if kind == 0:
        drawn.before_last = {number % 27 + 1}
        return f"L-{number % 27 + 1}"
    if kind == 1:
        drawn.nearest = {number}
        return f"{number}W"
    if kind == 2:
        drawn.last_weekday = True
        return "LW"
    if kind == 3:
        drawn.last_day = True
        return "L"
    drawn.days = {number}
    return str(number)


def _draw_foreign_weekday(draw: random.Random, drawn: Drawn) -> str:
    """The drawn numbers are those of Quartz; what they mean is 0 = Sunday."""
    number = draw.randint(1, 7)
    kind = draw.randrange(4)
    if kind == 0:
        drawn.nth = (number - 1, draw.randint(1, 5))
        return f"{number}#{drawn.nth[1]}"
    if kind == 1:
        drawn.nth = (number - 1, 0)
        return f"{number}L"
    if kind == 2:
        drawn.weekdays = {6}
        return "L"
    last = draw.randint(number, 7)
    drawn.weekdays = set(range(number - 1, last))
    return f"{number}-{last}"


class Timeline:
    """Every `step` seconds of a stretch of time, and the wall clock at each, asked of zoneinfo once."""

    def __init__(self, zone: str, start: datetime, end: datetime, step: int) -> None:
        info = ZoneInfo(zone)
        self.step = step
        self.first = int(start.timestamp()) // step
        self.last = int(end.timestamp()) // step
        self.walls = []
        offset, until = 0, self.first
        for index in range(self.first, self.last):
            if index >= until:
                # Zone data only ever changes on a full minute, so a minute has one offset.
                moment = datetime.fromtimestamp(index * step, UTC).astimezone(info)
                offset = int(moment.utcoffset().total_seconds())
                until = index + max(60 // step, 1)
            self.walls.append(index + offset // step)
        self.places: dict[int, list[int]] = {}
        self.missing: list[tuple[int, int, int]] = []
        for place, wall in enumerate(self.walls):
            self.places.setdefault(wall, []).append(place)
            if place and wall > self.walls[place - 1] + 1:
                after = self.walls[place - 1]
                self.missing += [(gone, place, place + gone - after - 1) for gone in range(after + 1, wall)]

    def instant(self, place: int) -> datetime:
        return datetime.fromtimestamp((self.first + place) * self.step, UTC)

    def ticks(self, drawn: Drawn, gap: str, overlap: str) -> list[datetime]:
        matches = self._matching_walls(drawn)
        if drawn.real_time:
            found = {place for wall in matches & self.places.keys() for place in self.places[wall]}
        else:
            found = set()
            for wall in matches & self.places.keys():
                places = self.places[wall]
                found |= set({"first": places[:1], "last": places[-1:], "both": places}[overlap])
            for wall, at, shifted in self.missing:
                if wall in matches and gap != "skip":
                    found.add(at if gap == "run" else shifted)
        return [self.instant(place) for place in sorted(found) if place < len(self.walls)]

    def _matching_walls(self, drawn: Drawn) -> set[int]:
        """All walls between the ends of the stretch, existing or not, that match."""
        per_day = 86_400 // self.step
        times = [
            (hour * 3600 + minute * 60 + second) // self.step
            for hour in drawn.hours
            for minute in drawn.minutes
            for second in drawn.seconds
        ]
        low, high = min(self.walls) // per_day, max(self.walls) // per_day
        return {
            day * per_day + time
            for day in range(low, high + 1)
            if drawn.day_matches((EPOCH + timedelta(days=day)).date())
            for time in times
        }
