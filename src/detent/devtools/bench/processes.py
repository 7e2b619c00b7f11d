"""CPU and memory of processes, from /proc; 0 where it does not exist."""

from __future__ import annotations

import os
import time
from pathlib import Path

PROC = Path("/proc")
# Fields of /proc/PID/stat behind the name: state, parent, …; user and system time are the 12th and 13th of these, those
# of children that have ended the two after.
PARENT, USER, SYSTEM, CHILDREN_USER, CHILDREN_SYSTEM = 1, 11, 12, 13, 14


def own_seconds() -> float:
    """Processor time of this process."""
    return time.process_time()


def children_seconds(parent: int) -> float:
    """Processor time of a process and of all its children, including those that have ended."""
    return sum(_seconds(fields, own=True) for fields in _family(parent))


def process_seconds(pid: int) -> float:
    fields = _fields(pid)
    return 0.0 if fields is None else _seconds(fields, own=False)


def resident_bytes(pid: int) -> int:
    """The resident memory of a process."""
    try:
        pages = int((PROC / str(pid) / "statm").read_text().split()[1])
    except (OSError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _family(parent: int) -> list[list[str]]:
    found = [fields for fields in [_fields(parent)] if fields is not None]
    if PROC.is_dir():
        numbers = (int(path.name) for path in PROC.iterdir() if path.name.isdigit())
        found += [fields for number in numbers if (fields := _fields(number)) and int(fields[PARENT]) == parent]
    return found


def _fields(pid: int) -> list[str] | None:
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None


def _seconds(fields: list[str], *, own: bool) -> float:
    places = (USER, SYSTEM, CHILDREN_USER, CHILDREN_SYSTEM) if own else (USER, SYSTEM)
    return sum(int(fields[place]) for place in places) / float(os.sysconf("SC_CLK_TCK"))
