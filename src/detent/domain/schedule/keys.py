"""Idempotency key templates: `{{job}}-{{date}}`.

By default every tick has its own key. A template lets a job say that, for example, all ticks of one day are
one piece of work for the receiver. That is rarely meant when it happens by accident, so it is checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from detent.domain.schedule.errors import ScheduleError
from detent.domain.schedule.instants import format_instant, to_ms
from detent.domain.schedule.zones import load_zone

if TYPE_CHECKING:
    from detent.domain.schedule.schedule import Schedule

POINTER = "/idempotency_key_template"
LONGEST_TEMPLATE = 200
FIELD = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
LOOKED_AT = 400  # a year of daily ticks
UNIQUE_FIELDS = {"scheduled_at", "scheduled_at_unix"}
TIME_FIELDS: dict[str, Callable[[datetime], str]] = {
    "date": lambda local: local.strftime("%Y-%m-%d"),
    "week": lambda local: f"{local.isocalendar().year}-W{local.isocalendar().week:02}",
    "month": lambda local: local.strftime("%Y-%m"),
    "hour": lambda local: local.strftime("%Y-%m-%dT%H"),
}
FIELDS = ("job_id", "job", "scheduled_at", "scheduled_at_unix", *TIME_FIELDS)


def render_key(template: str, *, job_id: object, job: str, scheduled_at: datetime, timezone: str) -> str:
    """The key of one tick; `date`, `week`, `month` and `hour` are read off the wall clock in `timezone`."""
    values = {
        "job_id": str(job_id),
        "job": job,
        "scheduled_at": format_instant(scheduled_at),
        "scheduled_at_unix": str(to_ms(scheduled_at) // 1000),
    }
    local = scheduled_at.astimezone(load_zone(timezone).info)

    def value(found: re.Match[str]) -> str:
        name = found[1]
        return values[name] if name in values else TIME_FIELDS[name](local)

    return FIELD.sub(value, template)


def check_key_template(template: str, schedule: Schedule, timezone: str, now: datetime) -> list[str]:
    """Refuses a template that cannot be read; warns when two ticks would share a key."""
    fields = _read_fields(template)
    if fields & UNIQUE_FIELDS or schedule.kind == "once":
        return []
    if not fields & set(TIME_FIELDS):
        return [
            f"idempotency_key_template {template!r} says nothing about the tick, so every tick has the same "
            "key and a receiver may drop all but the first; add {{scheduled_at}}."
        ]
    shared = _first_shared(template, schedule, timezone, now)
    if shared is None:
        return []
    first, second, key = shared
    return [
        f"idempotency_key_template {template!r} gives the ticks {format_instant(first)} and "
        f"{format_instant(second)} the same key {key!r}, so a receiver may drop the second; "
        "add {{scheduled_at}} if they are different work."
    ]


def _read_fields(template: str) -> set[str]:
    example = "write for example '{{job}}-{{scheduled_at}}'"
    if not template.strip() or len(template) > LONGEST_TEMPLATE:
        raise ScheduleError(
            f"idempotency_key_template has {len(template)} characters; 1 to {LONGEST_TEMPLATE} are allowed, {example}.",
            POINTER,
        )
    if not template.isprintable() or not template.isascii():
        raise ScheduleError(
            f"idempotency_key_template {template!r} has a character that cannot go into a header; use plain "
            f"ASCII, {example}.",
            POINTER,
        )
    fields = FIELD.findall(template)
    for name in fields:
        if name not in FIELDS:
            known = ", ".join(FIELDS)
            raise ScheduleError(
                f"idempotency_key_template has {{{{{name}}}}}, which is not known; use one of {known}.", POINTER
            )
    rest = FIELD.sub("", template)
    if "{{" in rest or "}}" in rest:
        raise ScheduleError(
            f"idempotency_key_template {template!r} has braces that do not belong together; {example}.", POINTER
        )
    return set(fields)


def _first_shared(
    template: str, schedule: Schedule, timezone: str, now: datetime
) -> tuple[datetime, datetime, str] | None:
    """Two ticks with one key: among the next ticks, or around the changes of the clock of the next year.

    Keys follow the wall clock, so ticks that share one are neighbours unless the clock was put back."""
    if schedule.kind == "interval" and schedule.anchor is None:
        schedule = schedule.anchored(now)
    zone = load_zone(timezone)
    windows = [schedule.between(now, now + timedelta(days=731), LOOKED_AT)]
    segment = zone.segment(to_ms(now) // 1000)
    while segment.end < to_ms(now) // 1000 + 366 * 86_400:
        change = now + timedelta(seconds=segment.end - to_ms(now) // 1000)
        windows.append(schedule.between(change - timedelta(hours=12), change + timedelta(hours=12), LOOKED_AT))
        segment = zone.segment(segment.end)
    for ticks in windows:
        seen: dict[str, datetime] = {}
        for tick in ticks:
            key = render_key(template, job_id="", job="", scheduled_at=tick, timezone=timezone)
            if key in seen:
                return seen[key], tick, key
            seen[key] = tick
    return None
