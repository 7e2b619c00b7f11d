"""From what a user wrote to a Schedule: which kind it is, checks of the options, and the stored form."""

from __future__ import annotations

import functools
import re
import reprlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from detent.domain.schedule.bounds import stored_bounds
from detent.domain.schedule.cron import CronWalls
from detent.domain.schedule.cron_fields import uses_hash
from detent.domain.schedule.cron_parse import DAY_MATCHES, DIALECTS, parse_cron, split_zone
from detent.domain.schedule.cron_text import canonical_cron
from detent.domain.schedule.dialects import is_aws, read_aws, refuse_aws, refuse_two_readings
from detent.domain.schedule.dst import GAP_POLICIES, OVERLAP_POLICIES, Resolver
from detent.domain.schedule.errors import ScheduleError
from detent.domain.schedule.instants import LOOKS_LIKE_INSTANT, check_range, parse_instant, to_ms
from detent.domain.schedule.interval import IntervalTicks, format_every, parse_every
from detent.domain.schedule.schedule import (
    COMBINED,
    DELAY,
    NEVER,
    DelayTicks,
    NeverTicks,
    OnceTicks,
    Schedule,
    TickSource,
    WallTicks,
)
from detent.domain.schedule.steps import Steps
from detent.domain.schedule.zones import UTC_ZONE, Zone, checked_rules, load_zone

FORMS = "{'cron': …}, {'rrule': …}, {'every': …, 'anchor': …}, {'every': …, 'after': 'finish'} or {'at': …}"
COMBINING = frozenset({"also", "exclude"})
"""May be next to any of these forms."""
LONGEST_JITTER = 86_400
PARSE_CACHE = 8_192
LONGEST_TEXT = 1_000  # of an interval or an instant
CHARACTERS_OF_A_STEP = 4  # a date of an EXDATE list is read in four microseconds


class ScheduleOptions(NamedTuple):
    """All options that decide when a schedule ticks."""

    timezone: str = "UTC"
    anchor: datetime | None = None
    hash_key: str | None = None
    dst_gap: str = "run"
    dst_overlap: str = "first"
    day_match: str | None = None
    dialect: str = "unix"
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    jitter_seconds: float = 0
    stagger_ms: int | None = None
    zone_rules: str | None = None


DEFAULTS = ScheduleOptions()


def parse_schedule(spec: str | Mapping[str, Any] | None, options: ScheduleOptions, steps: Steps, new: bool) -> Schedule:
    if spec is None:
        return _never(load_zone(options.timezone))
    if isinstance(spec, Mapping) and any(spec.get(name) for name in COMBINING):
        from detent.domain.schedule.parse_combined import parse_combined

        return parse_combined(spec, options, steps, new)
    if isinstance(spec, str):
        kind, value = read_kind(spec, options.dialect)
        pointer = "/schedule"
    else:
        kind, value, options = _explicit(spec, options)
        pointer = f"/schedule/{'every' if kind == 'delay' else kind}"
    if options.dialect == "aws" and kind == "cron" and isinstance(value, str):
        kind, value = read_aws(value)
    if kind in ("every", "delay", "at") and isinstance(value, str) and len(value) > LONGEST_TEXT:
        raise ScheduleError(f"The schedule has {len(value)} characters; at most {LONGEST_TEXT} are read.", pointer)
    try:
        if kind == "cron":
            # Most registrations have an expression that another job has too.
            text = _text(value)
            hashed = options.hash_key if uses_hash(text) else None
            return _parse_cron_cached(text, options._replace(anchor=None, hash_key=hashed))
        _check_options(options)
        if options.day_match is not None:
            raise ScheduleError("day_match is about cron expressions; take it out.", "/day_match")
        if kind == "rrule":
            return _parse_rrule(value, options, steps, new)
        return {"every": _parse_every, "delay": _parse_delay, "at": _parse_at}[kind](value, options)
    except ScheduleError as error:
        raise error.at(pointer) from None


def read_kind(text: str, dialect: str | None) -> tuple[str, str]:
    """The kind of a schedule that is written as text, and the text of that kind. What EventBridge writes is of the kind
    cron in its own dialect."""
    if dialect == "aws" and is_aws(text):
        return "cron", text
    kind = _recognise(text)
    return kind, re.sub(r"(?i)^\s*@?every\b", "", text).strip() if kind == "every" else text


def _recognise(text: str) -> str:
    stripped = text.strip()
    if re.match(r"@?every\b", stripped, re.IGNORECASE):
        return "every"
    # The zone of a one-off without offset is the job's; '2030-12-24…' cannot be a cron field.
    if LOOKS_LIKE_INSTANT.match(stripped):
        return "at"
    from detent.domain.schedule.rrule_parse import looks_like_rrule

    if looks_like_rrule(stripped):
        return "rrule"
    refuse_aws(stripped)
    return "cron"


def _explicit(spec: Mapping[str, Any], options: ScheduleOptions) -> tuple[str, Any, ScheduleOptions]:
    if not isinstance(spec, Mapping):
        raise ScheduleError(
            f"The schedule is {reprlib.repr(spec)}; write a text such as '0 9 * * MON', or {FORMS}.", "/schedule"
        )
    kinds = [key for key in ("cron", "rrule", "every", "at") if key in spec]
    if len(kinds) != 1:
        raise ScheduleError(f"The schedule names {len(kinds)} kinds; give one of {FORMS}.", "/schedule")
    kind = kinds[0]
    allowed = {kind, "anchor", "after"} if kind == "every" else {kind}
    unknown = sorted(set(map(str, spec)) - allowed - COMBINING)
    if unknown:
        raise ScheduleError(
            f"The schedule has {unknown[0]!r} next to {kind!r}, which is not allowed there; give one of {FORMS} "
            "and put the other settings next to 'schedule'.",
            f"/schedule/{unknown[0]}",
        )
    if spec.get("after") is not None:
        _check_after(spec)
        return "delay", spec[kind], options
    if spec.get("anchor") is not None:
        options = options._replace(anchor=_explicit_anchor(spec["anchor"], options))
    return kind, spec[kind], options


def _check_after(spec: Mapping[str, Any]) -> None:
    if spec["after"] != "finish":
        raise ScheduleError(
            f"after is {reprlib.repr(spec['after'])}; write 'finish': the interval then counts from the end of the "
            "previous run.",
            "/schedule/after",
        )
    if spec.get("anchor") is not None:
        raise ScheduleError(
            "The schedule has an anchor and counts from the end of the previous run; keep one of the two.",
            "/schedule/anchor",
        )


def _explicit_anchor(value: Any, options: ScheduleOptions) -> datetime:
    try:
        return parse_instant(value, load_zone(options.timezone), options.dst_gap, options.dst_overlap)
    except ScheduleError as error:
        raise error.at("/schedule/anchor") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        given = reprlib.repr(value)  # of any size
        raise ScheduleError(f"The schedule is {given}, which is not a text; write for example '0 9 * * MON'.")
    if not value.strip():
        raise ScheduleError("The schedule is empty; write for example '0 9 * * MON', '@daily' or 'every 15m'.")
    return value


def _check_options(options: ScheduleOptions) -> None:
    if options[3:] == DEFAULTS[3:]:
        return
    for name, value, allowed in (
        ("dst_gap", options.dst_gap, GAP_POLICIES),
        ("dst_overlap", options.dst_overlap, OVERLAP_POLICIES),
        ("dialect", options.dialect, DIALECTS),
        ("day_match", options.day_match, (*DAY_MATCHES, None)),
    ):
        if value not in allowed:
            words = ", ".join(repr(word) for word in allowed if word is not None)
            raise ScheduleError(f"{name} is {value!r}; use one of {words}.", f"/{name}")
    jitter = options.jitter_seconds
    if isinstance(jitter, bool) or not isinstance(jitter, int | float) or not 0 <= jitter <= LONGEST_JITTER:
        raise ScheduleError(f"jitter_seconds is {jitter!r}; use 0 to {LONGEST_JITTER}.", "/jitter_seconds")
    _check_bounds(options)


def _check_bounds(options: ScheduleOptions) -> None:
    for name, moment in (("starts_at", options.starts_at), ("ends_at", options.ends_at)):
        if moment is not None and moment.tzinfo is None:
            raise ScheduleError(f"{name} {moment.isoformat()} has no zone; write it with an offset or 'Z'.", f"/{name}")
        if moment is not None:
            try:
                check_range(moment)
            except ScheduleError as error:
                raise error.at(f"/{name}") from None
    if options.starts_at is not None and options.ends_at is not None and options.ends_at < options.starts_at:
        raise ScheduleError("ends_at is before starts_at; swap them, or leave one out.", "/ends_at")


def _zone_for(inner: str | None, options: ScheduleOptions, source: str) -> Zone:
    """The zone inside the text and the job's timezone must not contradict each other."""
    if inner is None or inner == options.timezone:
        return load_zone(options.timezone)
    if options.timezone != "UTC":
        raise ScheduleError(
            f"The schedule says {source}={inner} and the job says timezone {options.timezone!r}; keep one of them.",
            "/timezone",
        )
    return load_zone(inner)


def parse_cron_uncached(text: str, options: ScheduleOptions) -> Schedule:
    _check_options(options)
    inner, expression = split_zone(text)
    zone = _zone_for(inner, options, "CRON_TZ")
    if inner is not None and re.match(r"\s*@?every\b", expression, re.IGNORECASE):
        raise ScheduleError(f"{text!r} gives a zone to an interval, which has none; leave out the zone.")
    fields = parse_cron(expression, dialect=options.dialect, day_match=options.day_match, hash_key=options.hash_key)
    if options.dialect == "unix":
        refuse_two_readings(expression, fields, options.day_match, options.hash_key)
    walls = CronWalls(fields)
    walls.check_possible(expression)
    stored: dict[str, Any] = {"kind": "cron", "cron": canonical_cron(fields), "timezone": zone.name}
    if fields.day_match is not None:
        stored["day_match"] = fields.day_match
    return _wall_schedule(stored, walls, fields.real_time, zone, options)


_parse_cron_cached = functools.lru_cache(maxsize=PARSE_CACHE)(parse_cron_uncached)


def _wall_schedule(
    stored: dict[str, Any], walls: Any, real_time: bool, zone: Zone, options: ScheduleOptions
) -> Schedule:
    if not real_time:
        stored |= {"dst_gap": options.dst_gap, "dst_overlap": options.dst_overlap}
    stored |= stored_bounds(options.starts_at, options.ends_at, options.jitter_seconds, options.stagger_ms)
    if options.zone_rules is not None and zone.name != "UTC":
        stored["zone_rules"] = checked_rules(zone, options.zone_rules)
    resolver = Resolver(walls, zone, real_time=real_time, gap=options.dst_gap, overlap=options.dst_overlap)
    return Schedule(stored["kind"], WallTicks(resolver), zone, stored)


def _parse_rrule(value: Any, options: ScheduleOptions, steps: Steps, new: bool) -> Schedule:
    from detent.domain.schedule.rrule import RuleWalls
    from detent.domain.schedule.rrule_parse import find_zone, parse_rrule

    text = _text(value)
    steps.spend(1 + len(text) // CHARACTERS_OF_A_STEP)
    zone = _zone_for(find_zone(text), options, "TZID")

    def to_wall(moment: datetime) -> datetime:
        return moment.astimezone(zone.info).replace(tzinfo=None)

    rule = parse_rrule(text, to_wall, options.anchor)
    walls = RuleWalls(rule, steps)
    if new:
        walls.check_possible()
    stored: dict[str, Any] = {"kind": "rrule", "rrule": rule.text(), "timezone": zone.name}
    return _wall_schedule(stored, walls, walls.real_time, zone, options)


def _parse_every(value: Any, options: ScheduleOptions) -> Schedule:
    every = parse_every(value)
    anchor = None if options.anchor is None else to_ms(options.anchor)
    return _interval_schedule(every, anchor, options)


def _interval_schedule(every: int, anchor: int | None, options: ScheduleOptions) -> Schedule:
    zone = load_zone(options.timezone)
    stored: dict[str, Any] = {"kind": "interval", "every": format_every(every)}
    stored |= stored_bounds(options.starts_at, options.ends_at, options.jitter_seconds, options.stagger_ms)
    return Schedule("interval", IntervalTicks(every, anchor), zone, stored)


def _parse_delay(value: Any, options: ScheduleOptions) -> Schedule:
    if options.jitter_seconds:
        raise ScheduleError("jitter_seconds does not go with after: finish; take it out.", "/jitter_seconds")
    return _delay_schedule(parse_every(value), options)


def _delay_schedule(every: int, options: ScheduleOptions) -> Schedule:
    stored: dict[str, Any] = {"kind": DELAY, "every": format_every(every)}
    stored |= stored_bounds(options.starts_at, options.ends_at, 0)
    return Schedule(DELAY, DelayTicks(every), load_zone(options.timezone), stored)


def _parse_at(value: Any, options: ScheduleOptions) -> Schedule:
    zone = load_zone(options.timezone)
    moment = parse_instant(value, zone, options.dst_gap, options.dst_overlap)
    for name, outside in (
        ("starts_at", options.starts_at is not None and moment < options.starts_at),
        ("ends_at", options.ends_at is not None and moment > options.ends_at),
    ):
        if outside:
            raise ScheduleError(f"The instant is outside {name}, so it would never come; leave out {name}.", f"/{name}")
    return Schedule("once", OnceTicks(to_ms(moment)), zone, _once_stored(options))


def _never(zone: Zone) -> Schedule:
    """A task has a zone, in which its times are shown; all tasks share one stored form."""
    return Schedule(NEVER, NeverTicks(), zone, {"kind": NEVER})


def _once_stored(options: ScheduleOptions) -> dict[str, Any]:
    # The bounds of a one-off were checked above and say nothing more.
    return {"kind": "once"} | stored_bounds(None, None, options.jitter_seconds, options.stagger_ms)


def _stored_moment(stored: Mapping[str, Any], name: str) -> datetime | None:
    return datetime.fromisoformat(stored[name]) if name in stored else None


def schedule_from_stored(stored: Mapping[str, Any]) -> Schedule:
    kind = stored["kind"]
    options = ScheduleOptions(
        timezone=stored.get("timezone", "UTC"),
        dst_gap=stored.get("dst_gap", "run"),
        dst_overlap=stored.get("dst_overlap", "first"),
        day_match=stored.get("day_match"),
        starts_at=_stored_moment(stored, "starts_at"),
        ends_at=_stored_moment(stored, "ends_at"),
        jitter_seconds=stored.get("jitter_seconds", 0),
        stagger_ms=stored.get("stagger_ms"),
        zone_rules=stored.get("zone_rules"),
    )
    if kind == "cron":
        return _parse_cron_cached(stored["cron"], options)
    if kind == "rrule":
        return _parse_rrule(stored["rrule"], options, Steps(), new=False)
    if kind == "interval":
        return _interval_schedule(parse_every(stored["every"]), None, options)
    if kind == DELAY:
        return _delay_schedule(parse_every(stored["every"]), options)
    if kind == NEVER:
        return _never(UTC_ZONE)
    if kind == COMBINED:
        from detent.domain.schedule.parse_combined import combined_from_stored

        return combined_from_stored(stored, options)
    if kind == "once":
        ticks: TickSource = OnceTicks(None)
        return Schedule("once", ticks, UTC_ZONE, _once_stored(options))
    raise ScheduleError(f"A stored schedule of the kind {kind!r} was made by another version of detent.")
