"""The time zone of this machine, by the name that schedules use."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError


@functools.cache
def local_zone() -> str:
    """From TZ, else from the system's configuration, else UTC."""
    for name in _candidates():
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
        return "UTC" if name in ("Etc/UTC", "Etc/UCT", "Zulu") else name
    return "UTC"


def _candidates() -> list[str]:
    found = [os.environ.get("TZ", "").removeprefix(":")]
    try:
        found.append(Path("/etc/timezone").read_text("ascii").strip())
    except (OSError, ValueError):
        pass
    try:
        _, inside, name = str(Path("/etc/localtime").resolve()).partition("/zoneinfo/")
        found.append(name if inside else "")
    except OSError:
        pass
    return [name for name in found if name]
