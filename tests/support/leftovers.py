"""Threads and open files that tests leave behind in their process, found before there are thousands."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.support.waiting import until_sync

# Far more than the fixtures of a whole process need, and far less than what keeps a machine busy.
MAX_THREADS = 60
MAX_FILES = 400
PATIENCE = 20.0
_FILES = Path("/proc/self/fd")


def fail_if_too_many(threads: int = MAX_THREADS, files: int = MAX_FILES, patience: float = PATIENCE) -> None:
    """What is just ending is given some time for it."""
    if _too_many_threads(threads, patience):
        names = Counter(thread.name.rstrip("0123456789-_") for thread in threading.enumerate())
        pytest.fail(f"{sum(names.values())} threads are left behind: {names.most_common(5)}")
    opened = _open_files()
    if sum(opened.values()) > files:
        pytest.fail(f"{sum(opened.values())} files are left open: {opened.most_common(5)}")


def _too_many_threads(most: int, patience: float) -> bool:
    if threading.active_count() <= most:
        return False
    try:
        until_sync(lambda: threading.active_count() <= most, patience)
    except AssertionError:
        return True
    return False


def _open_files() -> Counter[str]:
    """By what they are; nothing where the system does not tell."""
    found: Counter[str] = Counter()
    for entry in _FILES.iterdir() if _FILES.is_dir() else ():
        try:
            found[str(entry.readlink()).partition(":")[0]] += 1
        except OSError:  # it was the one that lists them
            continue
    return found
