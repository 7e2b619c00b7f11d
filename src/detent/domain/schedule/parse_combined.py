"""From a schedule with `also` and `exclude` to one Schedule: its members, its exclusions, and the stored form."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from detent.domain.schedule.bounds import stored_bounds
from detent.domain.schedule.combined import CombinedTicks
from detent.domain.schedule.cron import CronWalls
from detent.domain.schedule.cron_parse import parse_cron, split_zone
from detent.domain.schedule.cron_text import canonical_cron
from detent.domain.schedule.dialects import is_aws, read_aws, refuse_aws, refuse_two_readings
from detent.domain.schedule.errors import ScheduleError
from detent.domain.schedule.exclusions import (
    DAY_SECONDS,
    EverythingExcluded,
    Exclusion,
    Exclusions,
    MatchedStretches,
    WallRange,
    unit_of,
)
from detent.domain.schedule.instants import LOWEST_MS, format_instant, to_ms
from detent.domain.schedule.parse import ScheduleOptions, parse_schedule
from detent.domain.schedule.rrule_parse import RecurrenceRule, find_zone, looks_like_rrule, parse_rrule
from detent.domain.schedule.schedule import COMBINED, Schedule, WallTicks
from detent.domain.schedule.steps import Steps
from detent.domain.schedule.zones import Zone, checked_rules

MAX_ALSO = 20
MAX_EXCLUSIONS = 200
DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
LOCAL_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?", re.ASCII)
EXCLUSION_FORMS = (
    "a day '2030-12-24', days '2030-12-24/2031-01-01', local times '2030-12-24T12:00/2030-12-27T08:00', a cron "
    "expression such as '* * * * SAT,SUN', or a rule such as 'RRULE:FREQ=MONTHLY;BYMONTHDAY=1'"
)
Found = tuple[Exclusion, str | dict[str, str]]
"""An exclusion with its stored form."""


def parse_combined(spec: Mapping[str, Any], options: ScheduleOptions, steps: Steps, new: bool) -> Schedule:
    first = {key: value for key, value in spec.items() if key not in ("also", "exclude")}
    also, exclude = _items(spec, "also", MAX_ALSO), _items(spec, "exclude", MAX_EXCLUSIONS)
    written = [("/schedule", first), *((f"/schedule/also/{number}", item) for number, item in enumerate(also))]
    members = _distinct([_member(item, pointer, options, steps, new) for pointer, item in written])
    zone = _one_zone(members)
    options = options._replace(timezone=zone.name)
    found = [
        _exclusion(item, f"/schedule/exclude/{number}", options, zone, steps) for number, item in enumerate(exclude)
    ]
    _check_day_match(members, found, options)
    return _schedule(members, found, zone, options, steps, new)


def combined_from_stored(stored: Mapping[str, Any], options: ScheduleOptions) -> Schedule:
    first, *also = stored["members"]
    spec = {**first, "also": also, "exclude": stored.get("exclude", [])}
    return parse_combined(spec, options, Steps(), new=False)


def _items(spec: Mapping[str, Any], name: str, most: int) -> list[Any]:
    items = spec.get(name) or []
    if not isinstance(items, list | tuple):
        raise ScheduleError(
            f"{name} is {reprlib.repr(items)}, which is not a list; write for example [{reprlib.repr(items)}].",
            f"/schedule/{name}",
        )
    if len(items) > most:
        advice = "exclude ranges of days instead" if name == "exclude" else "make several jobs of it"
        raise ScheduleError(
            f"{name} has {len(items)} items; at most {most} are read, so {advice}.", f"/schedule/{name}"
        )
    return list(items)


def _member(item: Any, pointer: str, options: ScheduleOptions, steps: Steps, new: bool) -> Schedule:
    if isinstance(item, Mapping) and ("also" in item or "exclude" in item):
        raise ScheduleError("A schedule in 'also' has no 'also' and no 'exclude' of its own: write them once.", pointer)
    if item is None:
        raise ScheduleError("A schedule in 'also' is null; write for example '0 9 * * MON' or 'every 6h'.", pointer)
    if not _is_cron(item, options.dialect):
        options = options._replace(day_match=None)
    try:
        member = parse_schedule(item, options, steps, new)
    except ScheduleError as error:
        if error.pointer.startswith("/schedule"):
            raise ScheduleError(error.message, pointer + error.pointer.removeprefix("/schedule")) from None
        raise
    if member.delay is not None:
        raise ScheduleError(
            "A delay that counts from the end of the previous run goes with no other schedule and no exclusion; remove "
            "'also' and 'exclude', or remove 'after'.",
            pointer,
        )
    if member.kind == "interval" and member.anchor is None:
        raise ScheduleError("The interval counts from the creation of its job: give it an 'anchor'.", pointer)
    return member


def _is_cron(item: Any, dialect: str) -> bool:
    text = item.get("cron") if isinstance(item, Mapping) else item
    if dialect == "aws" and isinstance(text, str) and is_aws(text):
        return read_aws(text)[0] == "cron"
    if isinstance(item, Mapping):
        return "cron" in item
    return (
        isinstance(item, str)
        and not re.match(r"\s*(@?every\b|\d{4}-|\d{8}T)", item, re.I)
        and not looks_like_rrule(item)
    )


def _distinct(members: list[Schedule]) -> list[Schedule]:
    """Each schedule once: of two equal ones the second adds no tick."""
    distinct: list[Schedule] = []
    for member in members:
        if member not in distinct:
            distinct.append(member)
    return distinct


def _one_zone(members: list[Schedule]) -> Zone:
    names = sorted({member.zone.name for member in members})
    if len(names) > 1:
        raise ScheduleError(
            f"The schedules of this job are in the time zones {' and '.join(names)}; a job has one: give it as "
            "'timezone', and take CRON_TZ and TZID out of the schedules.",
            "/timezone",
        )
    return members[0].zone


def _check_day_match(members: list[Schedule], found: list[Found], options: ScheduleOptions) -> None:
    crons = [member for member in members if member.kind == "cron"]
    if options.day_match is not None and not crons and not any("cron" in form for _, form in found):
        raise ScheduleError("day_match is about cron expressions; take it out.", "/day_match")


def _schedule(
    members: list[Schedule], found: list[Found], zone: Zone, options: ScheduleOptions, steps: Steps, new: bool
) -> Schedule:
    stored: dict[str, Any] = {"kind": COMBINED, "members": [_stored_member(member) for member in members]}
    if found:
        stored["exclude"] = [form for _, form in found]
    stored |= {"timezone": zone.name, "dst_gap": options.dst_gap, "dst_overlap": options.dst_overlap}
    if options.day_match is not None:
        stored["day_match"] = options.day_match
    stored |= stored_bounds(options.starts_at, options.ends_at, options.jitter_seconds, options.stagger_ms)
    if options.zone_rules is not None and zone.name != "UTC":
        stored["zone_rules"] = checked_rules(zone, options.zone_rules)
    ticks = CombinedTicks(members, Exclusions([part for part, _ in found], zone, _crons(members)), steps)
    schedule = Schedule(COMBINED, ticks, zone, stored)
    if new:
        _check_possible(ticks, options)
    return schedule


def _crons(members: list[Schedule]) -> list[CronWalls] | None:
    """The expressions of all members; None: one is something else."""
    walls = [each.ticks.resolver.source if isinstance(each.ticks, WallTicks) else None for each in members]
    crons = [each for each in walls if isinstance(each, CronWalls)]
    return crons if len(crons) == len(members) else None


def _check_possible(ticks: CombinedTicks, options: ScheduleOptions) -> None:
    """Refuses exclusions that leave no tick from the start of the job on."""
    known = [to_ms(moment) - 1 for moment in (options.starts_at, options.anchor) if moment is not None]
    since = max(known, default=LOWEST_MS)
    try:
        tick = ticks.next(since)
    except EverythingExcluded as error:
        raise ScheduleError(error.message, error.pointer) from None
    if tick is None and ticks.next_of_any(since) is not None:
        raise ScheduleError(
            "All ticks of the schedule are excluded, or all of the next decades: remove an exclusion.",
            "/schedule/exclude",
        )


def _stored_member(member: Schedule) -> dict[str, str]:
    stored = member.to_stored()
    if member.at is not None:
        return {"at": format_instant(member.at)}
    if member.anchor is not None:
        return {"every": stored["every"], "anchor": format_instant(member.anchor)}
    return {member.kind: stored[member.kind]}


# --- exclusions ---


def _exclusion(item: Any, pointer: str, options: ScheduleOptions, zone: Zone, steps: Steps) -> Found:
    kind, text = _kind_of(item, pointer)
    try:
        if kind == "dates":
            return _range(text)
        return _cron(text, options, zone) if kind == "cron" else _rule(text, options, zone, steps)
    except ScheduleError as error:
        raise ScheduleError(error.message, pointer if error.pointer in ("", "/schedule") else error.pointer) from None


def _kind_of(item: Any, pointer: str) -> tuple[str, str]:
    if isinstance(item, Mapping) and len(item) == 1:
        kind, text = next(iter(item.items()))
    else:
        kind, text = "", item
    if not isinstance(text, str) or not text.strip() or kind not in ("", "cron", "rrule", "dates"):
        raise ScheduleError(f"The exclusion {reprlib.repr(item)} cannot be read; give {EXCLUSION_FORMS}.", pointer)
    text = text.strip()
    if kind:
        return str(kind), text
    if re.match(r"\d{4}-|\d{8}T", text, re.ASCII):
        return "dates", text
    if re.match(r"@?every\b", text, re.IGNORECASE):
        raise ScheduleError(f"{text!r} is an interval, which excludes single moments; give {EXCLUSION_FORMS}.", pointer)
    return "rrule" if looks_like_rrule(text) else "cron", text


def _range(text: str) -> Found:
    first, slash, last = (part.strip() for part in text.partition("/"))
    if DAY.fullmatch(first) and (not slash or DAY.fullmatch(last)):
        start = _wall(first)
        end = (_wall(last) if slash else start) + timedelta(days=1)
    elif slash and LOCAL_TIME.fullmatch(first) and LOCAL_TIME.fullmatch(last):
        start, end = _wall(first), _wall(last)
    else:
        raise _unclear_range(text, first)
    if end <= start or (slash and DAY.fullmatch(last) and _wall(last) < start):
        raise ScheduleError(f"The exclusion {text!r} ends before it starts; swap the two.")
    canonical = re.sub(r"\s*/\s*", "/", text).replace(" ", "T")
    return WallRange(start, end, text), canonical


def _unclear_range(text: str, first: str) -> ScheduleError:
    if re.search(r"(Z|[+-]\d\d:?\d\d)\s*(/|$)", text.partition("T")[2] or "", re.IGNORECASE):
        return ScheduleError(
            f"The exclusion {text!r} has an offset; exclusions are local times of the job's timezone: leave it out."
        )
    if "/" not in text and LOCAL_TIME.fullmatch(first):
        return ScheduleError(
            f"The exclusion {text!r} is a single moment; write the day, {first[:10]!r}, or from when to when."
        )
    return ScheduleError(f"The exclusion {text!r} cannot be read; give {EXCLUSION_FORMS}.")


def _wall(text: str) -> datetime:
    try:
        wall = datetime.fromisoformat(text)
    except ValueError as error:
        raise ScheduleError(f"The exclusion has {text!r}, which does not exist ({error}); correct it.") from None
    if not 1971 <= wall.year <= 9000:
        raise ScheduleError(f"The exclusion has {text!r}; years 1971 to 9000 are read.")
    return wall


def _check_zone(inner: str | None, zone: Zone) -> None:
    if inner is not None and inner != zone.name:
        raise ScheduleError(
            f"The exclusion names the time zone {inner}, and the schedule is in {zone.name}; leave it out: exclusions "
            "are in the zone of the job."
        )


def _cron(text: str, options: ScheduleOptions, zone: Zone) -> Found:
    inner, expression = split_zone(_bare_cron(text, options.dialect))
    _check_zone(inner, zone)
    if expression.strip().startswith("@"):
        raise ScheduleError(
            f"{text!r} excludes one minute; write the minutes, hours or days in full, such as '* * 1 * *' for the "
            "first day of each month."
        )
    fields = parse_cron(expression, dialect=options.dialect, day_match=options.day_match, hash_key=options.hash_key)
    if options.dialect == "unix":
        refuse_two_readings(expression, fields, options.day_match, options.hash_key)
    walls = CronWalls(fields)
    walls.check_possible(expression)
    return MatchedStretches(walls, unit_of(fields), text), {"cron": canonical_cron(fields)}


def _bare_cron(text: str, dialect: str) -> str:
    """The fields in `cron(…)`, which only the dialect aws has."""
    if dialect != "aws":
        refuse_aws(text)
        return text
    kind, bare = read_aws(text)
    if kind != "cron":
        raise ScheduleError(f"{text!r} excludes single moments; give {EXCLUSION_FORMS}.")
    return bare


def _rule(text: str, options: ScheduleOptions, zone: Zone, steps: Steps) -> Found:
    from detent.domain.schedule.rrule import RuleWalls

    _check_zone(find_zone(text), zone)
    steps.spend(1 + len(text) // 4)

    def to_wall(moment: datetime) -> datetime:
        return moment.astimezone(zone.info).replace(tzinfo=None)

    rule = parse_rrule(text, to_wall, options.anchor)
    if not re.search(r"DTSTART", text, re.IGNORECASE):
        rule = replace(rule, start=rule.start.replace(hour=0, minute=0, second=0))
    _check_days_only(rule)
    walls = RuleWalls(rule, steps)
    walls.check_possible()
    return MatchedStretches(walls, DAY_SECONDS, text), {"rrule": rule.text()}


def _check_days_only(rule: RecurrenceRule) -> None:
    times = [rule.numbers(name) for name in ("BYHOUR", "BYMINUTE", "BYSECOND")]
    moments = (rule.start, *rule.include, *rule.exclude)
    midnight = all((wall.hour, wall.minute, wall.second) == (0, 0, 0) for wall in moments)
    if rule.freq in ("HOURLY", "MINUTELY") or not midnight or any(numbers != (0,) for numbers in times):
        raise ScheduleError(
            "A rule in 'exclude' names whole days, and this one names times of the day; leave out BYHOUR, BYMINUTE and "
            "BYSECOND and write DTSTART as a date, 'DTSTART:20300101', or use a cron expression such as '* 2-4 * * *'."
        )
