"""Time zones, read from the tzdata wheel only.

`zoneinfo` prefers the operating system's copy of the zone data, and two hosts of one fleet rarely have the
same copy. Two nodes that disagree about a zone disagree about a tick, so the search path is emptied here and
every node that has the same wheel computes the same ticks.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import zoneinfo
from bisect import bisect_right
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

from detent.domain.schedule.errors import ScheduleError

zoneinfo.reset_tzpath(to=[])

CHUNK_BITS = 28
"""Segments are worked out 2**28 seconds (eight and a half years) at a time."""

PROBE_STEP = 2 * 86_400
"""No zone has ever changed its offset and changed it back within two days (checked by a test)."""

RULED_FROM = 4_102_444_800
RULED_PROBE_STEP = 14 * 86_400
"""From 2100 on every zone follows a rule with at most two changes a year, months apart (checked by a test)."""

MAX_CHUNKS = 32
"""Chunks kept for each zone: a preview may ask for any century, and its chunks must not stay in memory for ever."""

FIRST_INSTANT = -62_000_000_000
LAST_INSTANT = 253_300_000_000
"""What datetime can hold, with some days to spare at either end: year 5 to year 9996."""

LONGEST_NAME = 100
"""A longer name cannot be a zone: it is neither shown in full nor compared with the names of zones."""


class OffsetSegment(NamedTuple):
    """A stretch of time with one offset from UTC; all five in seconds."""

    start: int
    end: int
    offset: int
    offset_before: int
    offset_after: int


class Zone:
    """A time zone as a sequence of segments, found by asking its tzinfo and remembered."""

    __slots__ = ("_chunks", "info", "name")

    def __init__(self, name: str, info: tzinfo) -> None:
        self.name = name
        self.info = info
        self._chunks: dict[int, tuple[list[int], list[OffsetSegment]]] = {}

    def __repr__(self) -> str:
        return f"Zone({self.name!r})"

    def offset(self, instant: int) -> int:
        delta = datetime.fromtimestamp(instant, self.info).utcoffset()
        if delta is None:  # only a naive tzinfo answers None
            return 0
        return delta.days * 86_400 + delta.seconds

    def segment(self, instant: int) -> OffsetSegment:
        """The segment that holds `instant`. A segment may also end at the end of a chunk: then the offset before and
        after is the same, and no tick is moved or repeated there."""
        chunk = self._chunks.get(instant >> CHUNK_BITS)
        if chunk is None:
            chunk = self._load(instant >> CHUNK_BITS)
        starts, segments = chunk
        return segments[bisect_right(starts, instant) - 1]

    def local(self, instant: int) -> int:
        """The wall clock at `instant`, as seconds since 1970-01-01T00:00 on that wall."""
        return instant + self.segment(instant).offset

    def _load(self, index: int) -> tuple[list[int], list[OffsetSegment]]:
        low = max(index << CHUNK_BITS, FIRST_INSTANT)
        high = min((index + 1) << CHUNK_BITS, LAST_INSTANT)
        starts = [low, *self._changes(low, high)]
        ends = [*starts[1:], high]
        segments = [
            OffsetSegment(start, end, self.offset(start), self.offset(start - 1), self.offset(end))
            for start, end in zip(starts, ends, strict=True)
        ]
        if len(self._chunks) >= MAX_CHUNKS:
            self._chunks.clear()
        self._chunks[index] = (starts, segments)
        return starts, segments

    def _changes(self, low: int, high: int) -> list[int]:
        """Every instant in (low, high) at which the offset changes."""
        changes: list[int] = []
        left, left_offset = low, self.offset(low)
        step = PROBE_STEP if low < RULED_FROM else RULED_PROBE_STEP
        while left < high - 1:
            right = min(left + step, high - 1)
            right_offset = self.offset(right)
            if right_offset != left_offset:
                changes.append(self._bisect(left, left_offset, right))
            left, left_offset = right, right_offset
        return changes

    def _bisect(self, left: int, left_offset: int, right: int) -> int:
        while right - left > 1:
            middle = (left + right) // 2
            if self.offset(middle) == left_offset:
                left = middle
            else:
                right = middle
        return right


@functools.lru_cache(maxsize=1024)
def load_zone(name: str) -> Zone:
    """The zone of that name, or a ScheduleError that names its nearest neighbours."""
    return Zone(name, check_timezone(name))


def check_timezone(name: str) -> zoneinfo.ZoneInfo:
    """The ZoneInfo of an IANA name, from the tzdata wheel."""
    if not isinstance(name, str) or not name.strip():
        raise ScheduleError("The time zone is empty; give an IANA name such as 'UTC' or 'Europe/Berlin'.", "/timezone")
    if name in _zone_names():
        return zoneinfo.ZoneInfo(name)
    raise ScheduleError(f"The time zone {_shortened(name)!r} is not known; {_suggest(name)}", "/timezone")


@functools.cache
def _zone_names() -> frozenset[str]:
    # Not available_timezones(): that opens every file. The wheel carries its own list.
    from importlib import resources

    text = resources.files("tzdata").joinpath("zones").read_text("utf-8")
    return frozenset(text.split())


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"


def _suggest(name: str) -> str:
    from detent.domain.schedule.zone_names import meant

    near = meant(name, _zone_names()) if len(name) <= LONGEST_NAME else []
    if not near:
        return "give an IANA name such as 'Europe/Berlin', 'America/New_York' or 'UTC'."
    return f"did you mean {' or '.join(map(repr, near))}?"


def tzdata_version() -> str:
    """The IANA release that counts, for example '2026f'."""
    return str(importlib.import_module("tzdata").IANA_VERSION)


OUR_RULES = "ours"
RULES_FROM, RULES_UNTIL = 1_767_225_600, 2_398_377_600
"""What counts as the rules of a zone: its offsets from 2026 to 2045, and from there on by the rule that ends them."""


class OtherZoneRules(ScheduleError):  # noqa: N818 - it says what is wrong
    """A job whose ticks were computed by other rules of its zone than those of this process, and which refuses them."""


def checked_rules(zone: Zone, pinned: str) -> str:
    """The rules of a zone, as a release of the zone data and a digest; `pinned` are those that they have to be,
    whatever the release is. OtherZoneRules: they are others."""
    ours = zone_rules(zone.name)
    if pinned == OUR_RULES:
        return ours
    if has_rules(zone.name, pinned):
        return pinned
    raise OtherZoneRules(
        f"Its ticks were computed by zone data {pinned.partition(':')[0]}, and zone data {tzdata_version()} has other "
        f"rules for {zone.name}, which the job refuses: set its tzdata_policy to recompute to accept them, or install "
        "the release by which it was computed.",
        "/tzdata_policy",
    )


def has_rules(name: str, pinned: str) -> bool:
    """Whether the zone of this name has these rules in this process."""
    return zone_rules(name).partition(":")[2] == pinned.partition(":")[2]


@functools.lru_cache(maxsize=1024)
def zone_rules(name: str) -> str:
    zone = load_zone(name)
    parts: list[str] = []
    at, offset = RULES_FROM, None
    while at < RULES_UNTIL:
        segment = zone.segment(at)
        if segment.offset != offset:  # a segment may also end where nothing changes
            offset = segment.offset
            parts.append(f"{at}:{offset}")
        at = segment.end
    return f"{tzdata_version()}:{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:16]}"


UTC_ZONE = Zone("UTC", UTC)
