"""Finds the processes that a command has started, including those that left its process group.

A process that forks twice and opens its own session is neither the command's child nor in its group. It still has the
environment it was started with, and in it the run's id and token: no other run has both. When its parents are dead, a
process can no longer be found by its descent, so callers pass the members that they found before.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_DEAD = frozenset("ZXx")


class Member(NamedTuple):
    """A process and when it started: the number alone may be given to another process later."""

    pid: int
    started: int


class _Status(NamedTuple):
    state: str
    parent: int
    group: int
    session: int
    started: int


def can_look() -> bool:
    return (_PROC / "self" / "stat").exists()


def family(leader: int, marks: tuple[bytes, ...], known: frozenset[Member]) -> frozenset[Member]:
    """Every living process that belongs to the command whose first process is `leader`."""
    table = _processes()
    found = {
        pid
        for pid, status in table.items()
        if leader in (pid, status.group, status.session) or Member(pid, status.started) in known or _carries(pid, marks)
    }
    _add_descendants(found, table)
    found.discard(os.getpid())
    return frozenset(Member(pid, table[pid].started) for pid in found if table[pid].state not in _DEAD)


def send(leader: int, members: frozenset[Member], number: signal.Signals) -> None:
    """Signal the command's group, then the members outside it. Some may have ended."""
    for pid in [-leader, *(member.pid for member in members)]:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def _processes() -> dict[int, _Status]:
    table = {}
    for entry in os.scandir(_PROC):
        if entry.name.isdigit():
            status = _status(entry.name)
            if status is not None:
                table[int(entry.name)] = status
    return table


def _status(pid: str) -> _Status | None:
    try:
        text = (_PROC / pid / "stat").read_text(errors="replace")
    except OSError:  # it has just ended
        return None
    # The name in brackets may contain anything, brackets too.
    fields = text[text.rindex(")") + 2 :].split()
    return _Status(fields[0], int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def _carries(pid: int, marks: tuple[bytes, ...]) -> bool:
    try:
        environment = b"\0" + (_PROC / str(pid) / "environ").read_bytes()
    except OSError:  # ended, or owned by another user
        return False
    return all(b"\0" + mark + b"\0" in environment for mark in marks)


def _add_descendants(found: set[int], table: dict[int, _Status]) -> None:
    children: dict[int, list[int]] = {}
    for pid, status in table.items():
        children.setdefault(status.parent, []).append(pid)
    todo = list(found)
    while todo:
        for child in children.get(todo.pop(), []):
            if child not in found:
                found.add(child)
                todo.append(child)
