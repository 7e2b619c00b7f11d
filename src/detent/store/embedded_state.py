"""The state of an embedded PostgreSQL: where it is, whether it runs, and which processes use it. Read-only."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import NamedTuple

from detent.store import embedded_host as host
from detent.store.embedded_roles import url_of
from detent.store.servers import note_embedded

_LOCK = re.compile(r"\d+: FLOCK\s+ADVISORY\s+READ\s+(?P<pid>\d+)\s+\S+:(?P<inode>\d+)\s")


class ServerProcess(NamedTuple):
    pid: int
    command: str


class EmbeddedState(NamedTuple):
    """`version` None: there is no cluster yet. `server` None: it is not running. `url` works for users
    that may enter the socket's folder."""

    home: Path
    version: str | None
    server: int | None
    url: str | None
    users: list[ServerProcess]


def embedded_state(data_dir: Path, system_dir: Path = host.SYSTEM_DIR) -> EmbeddedState:
    """Raises PermissionError if the folder belongs to another user and this one may not enter it."""
    data_dir = data_dir.absolute()
    aside = host.home_aside(data_dir, system_dir)
    home = aside if not (data_dir / "postgres").exists() and (aside / "postgres").exists() else data_dir
    version = _text(home / "postgres" / "PG_VERSION")
    server, url = _running(home / "postgres" / "postmaster.pid")
    if url is not None:
        note_embedded(url, home, home / "postgres.log")
    return EmbeddedState(home, version, server, url, users_of(home / "users.lock") if version else [])


def _running(file: Path) -> tuple[int | None, str | None]:
    lines = (_text(file) or "").splitlines()
    if len(lines) < 5 or not lines[0].isdecimal() or not _alive(int(lines[0])):
        return None, None
    return int(lines[0]), url_of(lines[4], lines[3]) if lines[4] else None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs, as another user
        return True
    return True


def users_of(lock: Path) -> list[ServerProcess]:
    """The processes that hold users.lock; empty if the kernel does not list locks."""
    try:
        inode = str(lock.stat().st_ino)
        held = Path("/proc/locks").read_text()
    except OSError:
        return []
    pids = [int(found["pid"]) for found in _LOCK.finditer(held) if found["inode"] == inode]
    return [ServerProcess(pid, command_of(pid)) for pid in sorted(set(pids))]


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return " ".join(word.decode("utf-8", "replace") for word in words if word)
    return ""


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
