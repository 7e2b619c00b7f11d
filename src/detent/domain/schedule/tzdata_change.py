"""What a new release of the zone data does to cursors that were computed with the old one."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from detent.domain.schedule.errors import ScheduleError
from detent.domain.schedule.schedule import Schedule
from detent.domain.schedule.zones import Zone, ZoneLoader, load_zone

Key = TypeVar("Key")


class TickChange(NamedTuple, Generic[Key]):
    """The next tick of a job by the old and by the new data; None where the schedule has ended."""

    key: Key
    old: datetime | None
    new: datetime | None


def zones_in(directory: Path) -> ZoneLoader:
    """Zones from a directory of compiled zone files, for example another release's `tzdata/zoneinfo`."""

    def load(name: str) -> Zone:
        path = directory.joinpath(*name.split("/"))
        if not path.is_file():
            raise ScheduleError(f"The time zone {name!r} is not in that copy of the zone data.", "/timezone")
        with path.open("rb") as file:
            return Zone(name, zoneinfo.ZoneInfo.from_file(file, key=name))

    return load


def changed_ticks(
    jobs: Iterable[tuple[Key, Schedule, datetime]], old: ZoneLoader, new: ZoneLoader = load_zone
) -> Iterator[TickChange[Key]]:
    """Which jobs' next ticks differ between two copies of the zone data.

    `jobs` are (key, schedule, the tick or moment to count from)."""
    zones: dict[str, tuple[Zone, Zone]] = {}
    for key, schedule, after in jobs:
        if schedule.kind not in ("cron", "rrule"):
            continue  # intervals and one-offs are instants already
        name = schedule.timezone
        if name not in zones:
            zones[name] = (old(name), new(name))
        before, now = (schedule.with_zone(zone).next_after(after) for zone in zones[name])
        if before != now:
            yield TickChange(key, before, now)


def moved_cursors(
    jobs: Iterable[tuple[Key, Schedule, datetime, datetime | None]],
) -> Iterator[TickChange[Key]]:
    """Which stored cursors are no longer what the present zone data gives.

    `jobs` are (key, schedule, the tick before the cursor, the cursor)."""
    for key, schedule, last_tick, cursor in jobs:
        if schedule.kind not in ("cron", "rrule"):
            continue
        new = schedule.next_after(last_tick)
        if new != cursor:
            yield TickChange(key, cursor, new)
