"""Checks of this machine: zone data, disk, the embedded PostgreSQL, the port."""

from __future__ import annotations

import errno
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from detent.cli.doctor.findings import Finding, number
from detent.settings.settings import Settings
from detent.store.embedded_state import EmbeddedState, command_of

ZONE_FILES = ("/usr/share/zoneinfo/tzdata.zi", "/usr/share/zoneinfo/+VERSION")
LOW_BYTES, VERY_LOW_BYTES = 2 * 1024**3, 256 * 1024**2
LOW_SHARE = 0.05


def check_zone_data() -> Finding:
    from detent.domain.schedule import tzdata_version

    ours, system = tzdata_version(), system_zone_data()
    if system is None:
        return Finding("zone data", "ok", f"Time zones are those of release {ours}, which detent brings along.")
    told = f"Time zones are those of release {ours}, which detent brings along; the system has {system}."
    if system > ours:
        return Finding("zone data", "warn", told, "Install the newer release here too: pip install --upgrade tzdata.")
    return Finding("zone data", "ok", told)


def system_zone_data() -> str | None:
    """The release of the system's own copy, which detent does not use."""
    for name in ZONE_FILES:
        try:
            with Path(name).open(encoding="ascii") as file:
                first = file.readline()
        except (OSError, ValueError):
            continue
        return first.replace("# version", "").strip() or None
    return None


def check_disk(folder: Path) -> Finding:
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    usage = shutil.disk_usage(place)
    told = f"{_size(usage.free)} of {_size(usage.total)} are free where the data folder {folder} is."
    advice = "Make room there, or move the data folder with --data-dir: PostgreSQL stops when the disk is full."
    if usage.free < VERY_LOW_BYTES:
        return Finding("disk", "fail", told, advice)
    if usage.free < LOW_BYTES or usage.free < usage.total * LOW_SHARE:
        return Finding("disk", "warn", told, advice)
    return Finding("disk", "ok", told)


def _size(count: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"


def check_embedded(settings: Settings, state: EmbeddedState | None) -> Iterator[Finding]:
    if settings.database_url is not None:
        yield Finding("embedded", "ok", "The embedded PostgreSQL is not used: a database is named.")
    elif state is None:
        advice = "Run the doctor as the user that runs detent, or as root."
        yield Finding("embedded", "fail", f"The data folder {settings.data_dir} may not be looked into.", advice)
    elif state.version is None:
        told = f"There is no embedded PostgreSQL in {state.place} yet."
        yield Finding("embedded", "warn", told, "`detent serve` makes one and starts it.")
    elif state.server is None:
        told = f"The embedded PostgreSQL {state.version} in {state.place} is not running."
        yield Finding("embedded", "warn", told, "`detent serve` starts it; until then the database is not looked at.")
    else:
        users = ", ".join(f"{user.pid} ({user.command})" for user in state.users)
        told = f"The embedded PostgreSQL {state.version} in {state.place} runs as process {state.server}"
        if users:
            yield Finding("embedded", "ok", f"{told}, used by {number(len(state.users), 'process')}: {users}.")
        else:
            advice = "The detent that started it was killed; the next `detent serve` takes it over."
            yield Finding("embedded", "warn", f"{told}, and no detent uses it.", advice)


def check_port(settings: Settings, answers: bool) -> Finding:
    """`answers`: whether a detent server answers at this address."""
    where = f"{settings.host}:{settings.port}"
    try:
        _bind(settings.host, settings.port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return _taken(settings, where, answers)
        advice = "Choose another with --host and --port."
        return Finding("port", "fail", f"{where} cannot be listened on ({error.strerror}).", advice)
    return Finding("port", "ok", f"{where} is free.")


def _taken(settings: Settings, where: str, answers: bool) -> Finding:
    holder = port_holder(settings.port)
    who = f"process {holder} ({command_of(holder)})" if holder else "a process that cannot be seen from here"
    if answers:
        return Finding("port", "ok", f"{where} is taken by a detent server: {who}.")
    if settings.seeks_port:
        told = f"{where} is taken by {who}, which is no detent server: `detent serve` listens on the next free port."
        return Finding("port", "warn", told, "The command line asks 8787 unless DETENT_API_URL says otherwise.")
    advice = f"Stop it, or choose another port: detent serve --port {settings.port + 1}."
    return Finding("port", "fail", f"{where} is taken by {who}, which is no detent server.", advice)


def _bind(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host.strip("[]"), port))
        probe.listen(1)


def port_holder(port: int) -> int | None:
    """The process that listens on this port, where the kernel tells."""
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
