"""What a job whose delay counts from the end of the run before cannot have. No I/O.

It has one run at a time by its nature, and after an outage nothing to catch up: what would say otherwise is refused.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from detent.domain.job import JobSpec
from detent.domain.refusal import shown
from detent.domain.schedule import Schedule
from detent.domain.schedule.interval import parse_every
from detent.errors import Conflict, UsageError

LONGEST_LOOK = timedelta(hours=1)
"""So that the end of a run is seen while it is in the history."""
_NOTHING_MISSED = "a tick that counts from the end of a run is never missed"
_REFUSED = {
    "concurrent_policy": ("SKIP", "its runs do not overlap"),
    "missed_window": ("RUN_ONCE", _NOTHING_MISSED),
    "max_missed": (100, _NOTHING_MISSED),
    "misfire_grace_seconds": ("auto", _NOTHING_MISSED),
    "release": ("exact", "its delay counts from the end of a run, which differs anyway"),
    "jitter_seconds": (0, "its delay counts from the end of a run, which differs anyway"),
}


def check_delay(spec: JobSpec) -> None:
    if not isinstance(spec.schedule, dict) or spec.schedule.get("after") is None:
        return
    for name, (default, why) in _REFUSED.items():
        value = getattr(spec, name)
        if value != default:
            raise UsageError(
                f"{name} is {shown(value)}, but the schedule has after: finish, and {why}: remove {name}.", f"/{name}"
            )


def look_after(delay: timedelta) -> timedelta:
    """When to look again at a run that is unfinished: before a delay from now has passed, so that no tick is late."""
    return min(delay, LONGEST_LOOK)


def next_look(schedule: Schedule, fired: datetime) -> datetime | None:
    """The first look at a run that is fired at that time; None: no tick can come before the end of the schedule."""
    assert schedule.delay is not None
    earliest = schedule.after_end(fired)
    return None if earliest is None else earliest - schedule.delay + look_after(schedule.delay)


def earliest_tick(spec: JobSpec, look: datetime | None, last_tick: datetime | None) -> datetime | None:
    """What to show as the next tick, from where the cursor stands: a long delay has looks before its earliest tick."""
    if not isinstance(spec.schedule, dict) or spec.schedule.get("after") is None or look is None or last_tick is None:
        return look
    return max(look, last_tick + timedelta(milliseconds=parse_every(spec.schedule["every"])))


def ticks_unknown(name: str) -> Conflict:
    """The answer to a command about ticks that are not known ahead."""
    return Conflict(f"The ticks of the job {name!r} depend on the end of its runs, so none is known ahead.")
