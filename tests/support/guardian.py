"""Nothing that a test process starts outlives it, however that process ends.

Fixtures end their servers, but not those of a process that is killed. So each test process has a folder of its own, in
which everything temporary is made and whose path its children carry: as their TMPDIR, in their command line, or as the
folder they work in. It holds a lock on that folder for as long as it lives; the kernel releases it, whatever happens.
A second process, the guardian, waits for the lock, then ends whatever carries the path and removes the folder. It is in
a session of its own, where neither Ctrl-C nor the end of a terminal reaches it. Should it be killed as well, the next
test process finds a folder that nothing locks, and does the same.

A signal on the parent's death (PR_SET_PDEATHSIG) would not do: it belongs to the thread that forked, is not inherited,
and is cleared when root starts PostgreSQL as another user; and a server that daemonises has another parent.

This file is also the guardian's program, and uses nothing but the standard library.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

PREFIX = "detent-tests-"
# A folder has this name until it is locked, so that no other process takes it for a stale one.
UNFINISHED = "detent-unlocked-"
LOCK = "lock"
ALSO = "also"
IN_MEMORY = Path("/dev/shm")
PROCESSES = Path("/proc")
# A server that is asked to stop removes its shared memory; one that does not is killed.
POLITE_SECONDS = 3.0
LONGEST_SECONDS = 30.0
PAUSE = 0.05

# Where temporary things are made on this machine, before anything below changes it.
SHARED = Path(os.environ.get("DETENT_TEST_SHARED", tempfile.gettempdir()))

_protected: list[Path] = []


def protect() -> Path:
    """Called once in each test process, before it starts anything; its folder."""
    if not _protected and PROCESSES.is_dir():  # elsewhere nothing can be found by its path
        clean_up_stale()
        folders = [_locked_folder(place) for place in _places()]
        _start_guardian(folders)
        # Pytest keeps the folders of the last three runs: they may be looked at after a failure.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(SHARED))
        os.environ["DETENT_TEST_SHARED"] = str(SHARED)
        os.environ["TMPDIR"] = tempfile.tempdir = str(folders[0])
        _protected.extend(folders)
    return _protected[0] if _protected else SHARED


def _start_guardian(folders: Sequence[Path]) -> None:
    """It inherits no open file: a process that reads from a pipe waits until every holder of its other end is gone."""
    command = [sys.executable, "-I", "-S", __file__, *map(str, folders)]
    nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    os.posix_spawn(sys.executable, command, {}, file_actions=nowhere, setsid=True)


def watch(folder: Path) -> None:
    """What carries this path is ended as well, but the folder stays."""
    for protected in _protected[:1]:
        with (protected / ALSO).open("ab") as file:
            file.write(os.fsencode(folder) + b"\n")


def folders() -> list[Path]:
    return list(_protected)


def in_memory() -> Path | None:
    """The part of this process's folder that is in memory, where there is such a thing."""
    return _protected[1] if len(_protected) > 1 else None


def _places() -> list[Path]:
    return [SHARED, IN_MEMORY] if os.access(IN_MEMORY, os.W_OK) else [SHARED]


def _locked_folder(place: Path) -> Path:
    name = secrets.token_hex(4)
    folder = place / f"{UNFINISHED}{name}"
    folder.mkdir()
    folder.chmod(0o711)  # the server's user has to get through when root runs the tests
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    held = [lock]
    os.register_at_fork(
        after_in_child=lambda: os.close(held.pop()) if held else None
    )  # a child that lives on must not hold it
    return folder.rename(place / f"{PREFIX}{name}")


def clean_up_stale() -> None:
    """What earlier processes left behind whose guardian was killed, too."""
    for place in _places():
        for folder in place.glob(f"{PREFIX}*"):
            with suppress(OSError), (folder / LOCK).open("r+b") as lock:
                if folder.stat().st_uid == os.geteuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    clean([folder])


# --- the end ---


def clean(folders: Sequence[Path]) -> None:
    began = time.monotonic()
    asked: set[int] = set()
    paths = [*map(os.fsencode, folders), *_also(folders)]
    while (left := belonging(paths)) and (waited := time.monotonic() - began) < LONGEST_SECONDS:
        for process in left:
            _end(process, asked, impatient=waited > POLITE_SECONDS)
        time.sleep(PAUSE)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _end(process: int, asked: set[int], *, impatient: bool) -> None:
    with suppress(OSError):  # it is gone
        server = _is_postgres(process)
        if impatient or not server:
            os.kill(process, signal.SIGKILL)
        elif process not in asked and not _is_postgres(_parent(process)):
            asked.add(process)
            os.kill(process, signal.SIGQUIT)
        os.kill(process, signal.SIGCONT)


def _also(folders: Sequence[Path]) -> list[bytes]:
    found: list[bytes] = []
    for folder in folders:
        with suppress(OSError):
            found += (folder / ALSO).read_bytes().splitlines()
    return found


def belonging(paths: Sequence[bytes]) -> list[int]:
    """The processes that carry one of these paths, or a path below one."""
    pattern = re.compile(rb"(?:" + b"|".join(map(re.escape, paths)) + rb")(?![\w.-])")
    return [
        int(entry.name)
        for entry in PROCESSES.iterdir()
        if entry.name.isdigit() and int(entry.name) != os.getpid() and pattern.search(_carried(entry))
    ]


def _carried(entry: Path) -> bytes:
    """Where a process works, what it was started with, and its environment as that was then."""
    carried = b""
    with suppress(OSError):
        carried += os.fsencode((entry / "cwd").readlink()) + b"\0"
    for name in ("cmdline", "environ"):
        with suppress(OSError):
            carried += (entry / name).read_bytes() + b"\0"
    return carried


def _is_postgres(process: int) -> bool:
    return (PROCESSES / str(process) / "comm").read_text().strip() == "postgres"


def _parent(process: int) -> int:
    return int((PROCESSES / str(process) / "stat").read_text().rpartition(")")[2].split()[1])


def main(folders: Sequence[Path]) -> None:
    """Wait until the process that locked these is gone, then clean up after it."""
    os.chdir("/")
    with suppress(OSError), (folders[0] / LOCK).open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    clean(folders)


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
