"""Zone data: where it comes from, how its changes are found, and what a new release does."""

from __future__ import annotations

import struct
import zoneinfo
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import pytest

from detent.domain.schedule import Schedule, check_timezone, tzdata_version, zones
from detent.domain.schedule.zones import Zone, load_zone

WHEEL = Path(str(resources.files("tzdata").joinpath("zoneinfo")))
NAMES = resources.files("tzdata").joinpath("zones").read_text("utf-8").split()
HORIZON = (0, int(datetime(2045, 1, 1, tzinfo=UTC).timestamp()))


def test_only_the_wheel_counts() -> None:
    assert zoneinfo.TZPATH == ()
    assert tzdata_version().startswith("20")
    assert check_timezone("Europe/Berlin").key == "Europe/Berlin"


def changes_in_file(path: Path) -> list[tuple[int, int]]:
    """(instant, new offset) as the compiled file lists them: a reader that shares nothing with the engine."""
    data = path.read_bytes()
    header = struct.Struct(">4s1s15x6l")

    def sizes(at: int) -> tuple[int, ...]:
        return header.unpack_from(data, at)[2:]

    utc, std, leap, times, types, chars = sizes(0)
    second = header.size + times * 5 + types * 6 + chars + leap * 8 + std + utc
    _, _, _, times, types, _ = sizes(second)
    at = second + header.size
    instants = struct.unpack_from(f">{times}q", data, at)
    kinds = struct.unpack_from(f">{times}B", data, at + times * 8)
    offsets = [struct.unpack_from(">lBB", data, at + times * 9 + number * 6)[0] for number in range(types)]
    changes, current = [], offsets[0]
    for instant, kind in zip(instants, kinds, strict=True):
        if offsets[kind] != current:
            changes.append((instant, offsets[kind]))
        current = offsets[kind]
    return changes


def found_changes(zone: Zone, low: int, high: int) -> list[tuple[int, int]]:
    changes = []
    segment = zone.segment(low)
    while segment.end <= high:
        segment = zone.segment(segment.end)
        if segment.offset != segment.offset_before:
            changes.append((segment.start, segment.offset))
    return changes


def check_zone(name: str) -> int:
    listed = changes_in_file(WHEEL.joinpath(*name.split("/")))
    # Beyond the last listed change a file only has a rule, which zoneinfo reads for us.
    high = min(listed[-1][0], HORIZON[1]) if listed else HORIZON[0]
    expected = [change for change in listed if HORIZON[0] < change[0] <= high]
    assert found_changes(load_zone(name), HORIZON[0], high) == expected, name
    return len(expected)


def test_every_change_since_1970_that_a_zone_file_lists_is_found() -> None:
    names = ["Africa/Casablanca", "Africa/Cairo", "Asia/Gaza", "Pacific/Apia", "America/Argentina/San_Luis"]
    assert sum(check_zone(name) for name in [*names, *NAMES[::40]]) > 500


@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_change_of_every_zone_is_found() -> None:
    assert sum(map(check_zone, NAMES)) > 15_000


def ruled_changes(name: str) -> tuple[list[int], list[int]]:
    """The changes of two years from 2100 on, found in long and in short steps."""
    zone, end = load_zone(name), zones.RULED_FROM + 2 * 366 * 86_400
    long = zone._changes(zones.RULED_FROM, end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zones, "RULED_PROBE_STEP", zones.PROBE_STEP)
        return long, zone._changes(zones.RULED_FROM, end)


def test_from_2100_on_changes_are_found_in_long_steps_too() -> None:
    names = ["Africa/Casablanca", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", *NAMES[::20]]
    found = [ruled_changes(name) for name in names]
    assert all(long == short for long, short in found)
    assert sum(len(long) for long, _ in found) > 20


@pytest.mark.long
def test_from_2100_on_every_zone_follows_its_rule() -> None:
    for name in NAMES:
        long, short = ruled_changes(name)
        assert long == short, name
        listed = changes_in_file(WHEEL.joinpath(*name.split("/")))
        assert not listed or listed[-1][0] < zones.RULED_FROM, name


def test_a_zone_remembers_a_bounded_number_of_centuries() -> None:
    zone = load_zone("Europe/Vienna")
    for year in range(1975, 9975, 100):
        zone.segment(int(datetime(year, 1, 1, tzinfo=UTC).timestamp()))
    assert len(zone._chunks) <= zones.MAX_CHUNKS


def test_the_ends_of_a_chunk_are_no_changes() -> None:
    zone = load_zone("Asia/Tokyo")
    edge = 7 << 28
    before, after = zone.segment(edge - 1), zone.segment(edge)
    assert before.end == after.start == edge
    assert before.offset == before.offset_after == after.offset == after.offset_before == 9 * 3600


def test_a_schedule_crosses_the_ends_of_chunks() -> None:
    schedule = Schedule.parse("0 9 * * *", timezone="Asia/Tokyo")
    start, end = datetime(2000, 1, 1, tzinfo=UTC), datetime(2060, 1, 1, tzinfo=UTC)
    assert schedule.count_between(start, end) == (end - start).days
    assert len(schedule.between(start, end, 100_000)) == (end - start).days
