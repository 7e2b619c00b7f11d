"""Which zone may be meant by a name that is none: an abbreviation, an offset, a city, a misspelling."""

from __future__ import annotations

import functools
import re

# An abbreviation names an offset in a season, and several countries use the same one. The zones that are meant most
# often come first.
ABBREVIATIONS = {
    **dict.fromkeys(("CET", "CEST", "MEZ", "MESZ", "MET", "MEST"), ("Europe/Berlin", "Europe/Paris")),
    **dict.fromkeys(("WET", "WEST"), ("Europe/Lisbon",)),
    **dict.fromkeys(("EET", "EEST"), ("Europe/Athens", "Europe/Helsinki")),
    **dict.fromkeys(("GMT", "BST", "UK"), ("Europe/London",)),
    **dict.fromkeys(("EST", "EDT", "ET", "EASTERN"), ("America/New_York",)),
    **dict.fromkeys(("CST", "CDT", "CT", "CENTRAL"), ("America/Chicago", "Asia/Shanghai")),
    **dict.fromkeys(("MST", "MDT", "MT", "MOUNTAIN"), ("America/Denver",)),
    **dict.fromkeys(("PST", "PDT", "PT", "PACIFIC"), ("America/Los_Angeles",)),
    **dict.fromkeys(("AKST", "AKDT"), ("America/Anchorage",)),
    **dict.fromkeys(("HST", "HDT"), ("Pacific/Honolulu",)),
    **dict.fromkeys(("AST", "ADT"), ("America/Halifax",)),
    **dict.fromkeys(("NST", "NDT"), ("America/St_Johns",)),
    **dict.fromkeys(("AEST", "AEDT"), ("Australia/Sydney", "Australia/Brisbane")),
    **dict.fromkeys(("ACST", "ACDT"), ("Australia/Adelaide",)),
    **dict.fromkeys(("NZST", "NZDT"), ("Pacific/Auckland",)),
    "AWST": ("Australia/Perth",),
    "BRT": ("America/Sao_Paulo",),
    "HKT": ("Asia/Hong_Kong",),
    "IST": ("Asia/Kolkata", "Europe/Dublin", "Asia/Jerusalem"),
    "JST": ("Asia/Tokyo",),
    "KST": ("Asia/Seoul",),
    "MSK": ("Europe/Moscow",),
    "PKT": ("Asia/Karachi",),
    "SAST": ("Africa/Johannesburg",),
    "SGT": ("Asia/Singapore",),
    "TRT": ("Europe/Istanbul",),
    "WIB": ("Asia/Jakarta",),
    "Z": ("UTC",),
}
# Names that are zones, and never change their offset, although their abbreviation suggests a season.
FIXED = frozenset({"EST", "MST", "HST"})
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?00)?", re.IGNORECASE | re.ASCII)
MAX_SUGGESTIONS = 3


def meant(name: str, known: frozenset[str]) -> list[str]:
    """The zones that may be meant, the likeliest first. It compares the name with a few dozen cities, not with all: a
    batch may have ten thousand such names."""
    wanted = name.strip()
    if found := ABBREVIATIONS.get(wanted.upper().removesuffix(" TIME")):
        return list(found)
    if offset := _OFFSET.fullmatch(wanted):
        # The signs of these names are those of POSIX: Etc/GMT-2 is two hours ahead of UTC.
        sign, hours = "-" if offset[1] == "+" else "+", int(offset[2])
        return [zone for zone in (f"Etc/GMT{sign}{hours}",) if zone in known and hours]
    cities = _cities(known)
    region, _, city = wanted.lower().replace(" ", "_").rpartition("/")
    from difflib import get_close_matches  # loaded only for a refusal

    near = get_close_matches(city, cities.get(city[:1], {}), n=MAX_SUGGESTIONS)
    zones = [cities[one[0]][one] for one in near]
    return [zone for zone in zones if region and zone.lower().startswith(f"{region}/")] or zones


@functools.cache
def _cities(known: frozenset[str]) -> dict[str, dict[str, str]]:
    """The zone of each city, by the city's first letter."""
    found: dict[str, dict[str, str]] = {}
    for zone in sorted(known):
        city = zone.rpartition("/")[2].lower()
        found.setdefault(city[0], {})[city] = zone
    return found
