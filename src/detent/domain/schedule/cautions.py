"""Warnings about schedules that are valid but often not intended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detent.domain.schedule.combined import CombinedTicks
from detent.domain.schedule.cron import CronWalls
from detent.domain.schedule.cron_fields import DAY, HOUR, MINUTE, MONTH, SECOND, CronField, FieldSpec
from detent.domain.schedule.cron_parse import CronFields
from detent.domain.schedule.english import bits
from detent.domain.schedule.exclusions import Exclusion, MatchedStretches
from detent.domain.schedule.zone_names import ABBREVIATIONS, FIXED

if TYPE_CHECKING:
    from detent.domain.schedule.schedule import Schedule


def cautions(schedule: Schedule) -> list[str]:
    """Sentences for a user who checks a schedule before saving it."""
    found = _fixed_zone(schedule.zone.name)
    if isinstance(schedule.ticks, CombinedTicks):
        for member in schedule.ticks.members:
            found += _of_cron(member)
        for part in schedule.ticks.exclusions.parts:
            found += _of_exclusion(part)
        return list(dict.fromkeys(found))
    return [*found, *_of_cron(schedule)]


def _fixed_zone(zone: str) -> list[str]:
    if zone not in FIXED:
        return []
    other = ABBREVIATIONS[zone][0]
    return [f"The zone {zone} has the same offset all year; {other!r} has its own rules for daylight saving time."]


def _of_cron(schedule: Schedule) -> list[str]:
    resolver = getattr(schedule.ticks, "resolver", None)
    if resolver is None or not isinstance(resolver.source, CronWalls):
        return []
    fields = resolver.source.fields
    return [*_often(fields), *_uneven(fields), *_short_months(fields)]


def _of_exclusion(part: Exclusion) -> list[str]:
    if not isinstance(part, MatchedStretches) or not isinstance(part.walls, CronWalls) or part.unit != 60:
        return []
    fields = part.walls.fields
    if fields.minute.mask.bit_count() * fields.hour.mask.bit_count() != 1:
        return []
    time = f"{bits(fields.hour.mask)[0]:02}:{bits(fields.minute.mask)[0]:02}"
    days = part.text.split(None, 2)[-1] if len(part.text.split()) == 5 else "…"
    return [f"The exclusion {part.text!r} excludes the minute {time} only; for whole days write '* * {days}'."]


def _often(fields: CronFields) -> list[str]:
    if len(bits(fields.hour.mask)) > 1:
        return []
    hour = bits(fields.hour.mask)[0]
    if fields.second.mask.bit_count() == 60 and fields.minute.mask.bit_count() == 1:
        return [f"'*' in the second field runs 60 times in that minute; for one run write '0 0 {hour} …'."]
    if fields.minute.star and fields.minute.mask.bit_count() == 60:
        return [f"'*' in the minute field runs 60 times from {hour:02}:00; for one run write '0 {hour} …'."]
    return []


def _uneven(fields: CronFields) -> list[str]:
    found = []
    pairs: list[tuple[CronField, FieldSpec]] = [
        (fields.second, SECOND),
        (fields.minute, MINUTE),
        (fields.hour, HOUR),
        (fields.day, DAY),
        (fields.month, MONTH),
    ]
    for field, spec in pairs:
        values = bits(field.mask)
        if not field.star or field.open or len(values) < 2:
            continue
        step, size = values[1] - values[0], spec.high - spec.low + 1
        steady = values == list(range(spec.low, spec.high + 1, step))
        if steady and (size % step or spec is DAY):
            found.append(
                f"'*/{step}' in the {spec.name} field starts again at {spec.low}, so the last step is shorter; "
                f"for a steady rhythm use an interval such as 'every …'."
            )
    return found


def _short_months(fields: CronFields) -> list[str]:
    days = fields.day
    plain = not (days.last_offsets or days.workdays or days.last_workday_offsets)
    if days.open or not plain or fields.day_match == "or":
        return []
    first = bits(days.mask)[0]
    months = bits(fields.month.mask)
    if first == 29 and months == [2]:
        return ["29 February comes in leap years only."]
    lengths = {month: 29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31 for month in months}
    missing = [month for month in months if lengths[month] < first or (month == 2 and first == 29)]
    if first >= 29 and missing:
        return [f"Months without a day {first} are left out; for the last day of every month write 'L'."]
    return []
