"""The values of a run's facts in templates. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from detent.domain.run import Call
from detent.domain.schedule import ScheduleError
from detent.domain.schedule.instants import format_instant, to_ms
from detent.domain.schedule.keys import TIME_FIELDS
from detent.domain.schedule.zones import load_zone
from detent.domain.template import TIMES, Placeholder


class FactError(ValueError):
    """A run does not have what a template names."""


_LOCAL_PARTS: dict[str, Callable[[datetime], object]] = {
    **TIME_FIELDS,  # date, week, month and hour are what they are in the templates of keys
    "time": lambda local: local.strftime("%H:%M:%S"),
    "year": lambda local: local.strftime("%Y"),
    "unix": lambda local: to_ms(local) // 1000,
    "local": lambda local: local.isoformat(timespec="milliseconds" if local.microsecond else "seconds"),
}


def fact(placeholder: Placeholder, call: Call) -> Any:
    """A value that JSON has; FactError if the run has none."""
    name = placeholder.path[0]
    if name == "payload":
        return in_payload(placeholder, call.payload)
    if name in TIMES:
        return _time(placeholder, call)
    return getattr(call, name)


def in_payload(placeholder: Placeholder, payload: Any) -> Any:
    """A step is the name of a member or the index of an item."""
    value = payload
    for depth, step in enumerate(placeholder.path[1:], 2):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif (
            isinstance(value, list) and step.isascii() and step.isdigit() and len(step) < 10 and int(step) < len(value)
        ):
            value = value[int(step)]
        else:
            missing = ".".join(placeholder.path[:depth])
            place = f", of {placeholder}," if depth < len(placeholder.path) else ""
            raise FactError(f"{missing}{place} is missing in the payload")
    return value


def _time(placeholder: Placeholder, call: Call) -> object:
    moment = call.scheduled_at
    if placeholder.path[0] != "scheduled_at":
        start = call.window_start
        if start is None:
            raise FactError(f"{placeholder.path[0]} is not known, because no tick precedes the run")
        moment = start if placeholder.path[0] == "window_start" else moment
    if len(placeholder.path) == 1 and placeholder.form is None:
        return format_instant(moment)
    try:
        local = moment.astimezone(load_zone(call.timezone).info)
    except ScheduleError as error:
        raise FactError(f"the time zone of the job is not known: {error.message}") from None
    if placeholder.form is not None:
        return local.strftime(placeholder.form)
    return _LOCAL_PARTS[placeholder.path[1]](local)
