"""Checks of this host: zone data, disk, the embedded PostgreSQL, the port."""

from __future__ import annotations

import errno
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from detent.cli.doctor.results import CheckResult, number
from detent.settings.settings import Settings
from detent.store.embedded_state import EmbeddedState, command_of

ZONE_FILES = ("/usr/share/zoneinfo/tzdata.zi", "/usr/share/zoneinfo/+VERSION")
LOW_BYTES, VERY_LOW_BYTES = 2 * 1024**3, 256 * 1024**2
LOW_SHARE = 0.05


def check_zone_data() -> CheckResult:
    from detent.domain.schedule import tzdata_version

    ours, system = tzdata_version(), system_zone_data()
    if system is None:
        return CheckResult("zone data", "ok", f"The zone data that detent ships is release {ours}.")
    text = f"The zone data that detent ships is release {ours}; the system has {system}."
    if system > ours:
        return CheckResult(
            "zone data", "warn", text, "Install the newer release for detent too: pip install --upgrade tzdata."
        )
    return CheckResult("zone data", "ok", text)


def system_zone_data() -> str | None:
    """The release of the system's own zone data, which detent does not use."""
    for name in ZONE_FILES:
        try:
            with Path(name).open(encoding="ascii") as file:
                first = file.readline()
        except (OSError, ValueError):
            continue
        return first.replace("# version", "").strip() or None
    return None


def check_disk(folder: Path) -> CheckResult:
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    usage = shutil.disk_usage(existing)
    text = f"{_size(usage.free)} of {_size(usage.total)} are free on the disk of the data folder {folder}."
    advice = "Free some space, or move the data folder with --data-dir: PostgreSQL stops when the disk is full."
    if usage.free < VERY_LOW_BYTES:
        return CheckResult("disk", "fail", text, advice)
    if usage.free < LOW_BYTES or usage.free < usage.total * LOW_SHARE:
        return CheckResult("disk", "warn", text, advice)
    return CheckResult("disk", "ok", text)


def _size(count: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"


def check_embedded(settings: Settings, state: EmbeddedState | None) -> Iterator[CheckResult]:
    if settings.database_url is not None:
        yield CheckResult("embedded", "ok", "The embedded PostgreSQL is not used: database_url is set.")
    elif state is None:
        advice = "Run the doctor as the user that runs detent, or as root."
        yield CheckResult("embedded", "fail", f"The data folder {settings.data_dir} cannot be read.", advice)
    elif state.version is None:
        text = f"There is no embedded PostgreSQL in {state.home} yet."
        yield CheckResult("embedded", "warn", text, "`detent serve` creates and starts it.")
    elif state.server is None:
        text = f"The embedded PostgreSQL {state.version} in {state.home} is not running."
        yield CheckResult("embedded", "warn", text, "`detent serve` starts it; until then the database is not checked.")
    else:
        users = ", ".join(f"{user.pid} ({user.command})" for user in state.users)
        text = f"The embedded PostgreSQL {state.version} in {state.home} runs as process {state.server}"
        if users:
            yield CheckResult("embedded", "ok", f"{text}, used by {number(len(state.users), 'process')}: {users}.")
        else:
            advice = "The process that started it was killed; the next `detent serve` takes it over."
            yield CheckResult("embedded", "warn", f"{text}, and no detent process uses it.", advice)


def check_port(settings: Settings, answers: bool) -> CheckResult:
    """`answers`: whether a detent server answers at this address."""
    where = f"{settings.host}:{settings.port}"
    try:
        _bind(settings.host, settings.port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return _taken(settings, where, answers)
        advice = "Choose another address with --host and --port."
        return CheckResult("port", "fail", f"Cannot listen on {where} ({error.strerror}).", advice)
    return CheckResult("port", "ok", f"{where} is free.")


def _taken(settings: Settings, where: str, answers: bool) -> CheckResult:
    holder = port_holder(settings.port)
    who = f"process {holder} ({command_of(holder)})" if holder else "a process of another user"
    if answers:
        return CheckResult("port", "ok", f"{where} is in use by a detent server: {who}.")
    if settings.seeks_port:
        text = f"{where} is in use by {who}, not a detent server: `detent serve` listens on the next free port."
        return CheckResult("port", "warn", text, "The command line uses port 8787 unless DETENT_API_URL is set.")
    advice = f"Stop it, or choose another port: detent serve --port {settings.port + 1}."
    return CheckResult("port", "fail", f"{where} is in use by {who}, not a detent server.", advice)


def _bind(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host.strip("[]"), port))
        probe.listen(1)


def port_holder(port: int) -> int | None:
    """The process that listens on this port, if it can be determined."""
    inodes = set(_listening(port))
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            links = [str(entry.readlink()) for entry in (folder / "fd").iterdir()]
        except OSError:
            continue
        if inodes.intersection(links):
            return int(folder.name)
    return None


def _listening(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            columns = row.split()
            if columns[3] == "0A" and int(columns[1].rpartition(":")[2], 16) == port:
                yield f"socket:[{columns[9]}]"
