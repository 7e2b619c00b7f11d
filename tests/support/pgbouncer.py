"""A real PgBouncer in front of a test server: transaction pooling, a few server connections for many clients.

It listens on a socket in its own folder and accepts every client. It has few connections on purpose: another client
then soon finds what one has left behind in a session.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from detent.store import role
from detent.store.db import connect
from tests.support import guardian
from tests.support.waiting import until_sync

PORT = 6432
INSTALL = "apt-get install pgbouncer"
START_SECONDS = 20.0

CONFIG = """
[databases]
* = host={server} port={server_port}

[pgbouncer]
unix_socket_dir = {folder}
unix_socket_mode = 0777
listen_addr =
listen_port = {port}
auth_type = trust
auth_file = {folder}/users
admin_users = detent
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 1000
server_login_retry = 0.2
server_check_delay = 0
logfile = {folder}/log
pidfile = {folder}/pid
"""


class PgBouncer:
    """One that can be stopped and started again in the same place."""

    def __init__(self, folder: Path, server_url: str, user: str) -> None:
        self.folder = folder
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, server_url: str) -> str:
        """The same database, reached this way."""
        return self._url(server_url, urlsplit(server_url).path)

    def _url(self, server_url: str, path: str) -> str:
        login = urlsplit(server_url).netloc.rpartition("@")[0]  # without the server's own address, which would win
        return f"postgresql://{login}@{path}?host={self.folder}&port={PORT}"

    def start(self) -> None:
        command = ["pgbouncer", str(self.folder / "config")]
        if os.geteuid() == 0:
            command[1:1] = ["--user", self._user]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until_sync(self._is_up, START_SECONDS, "PgBouncer to listen")

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"PgBouncer ended:\n{self.log}"
        return (self.folder / f".s.PGSQL.{PORT}").exists()

    @property
    def log(self) -> str:
        file = self.folder / "log"
        return file.read_text() if file.exists() else ""

    def stop(self) -> None:
        """At once, whatever its clients are doing."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(START_SECONDS)
            self._process = None
            (self.folder / f".s.PGSQL.{PORT}").unlink(missing_ok=True)

    def restart(self) -> None:
        self.stop()
        self.start()

    async def lead_to(self, server_url: str) -> None:
        """Switch to another server, as after a fail-over. Its clients notice nothing."""
        host, port, _ = _server(server_url)
        config = self.folder / "config"
        config.write_text(re.sub(r"(?m)^\* = .*$", f"* = host={host} port={port}", config.read_text()))
        await self._console(server_url, "RELOAD")
        await self._console(server_url, "RECONNECT")

    async def reconnect(self, server_url: str) -> None:
        """Let it make the server connections of this database anew, as each of them becomes free."""
        await self._console(server_url, f"RECONNECT {urlsplit(server_url).path.lstrip('/')}")

    async def _console(self, server_url: str, command: str) -> None:
        connection = await asyncpg.connect(self._url(server_url, "/pgbouncer"), statement_cache_size=0)
        try:
            await connection.execute(command)
        finally:
            await connection.close()


@contextmanager
def running_pgbouncer(server_url: str, size: int = 4, users: Sequence[str] = ("detent",)) -> Iterator[PgBouncer]:
    """A PgBouncer in front of the server that the URL names, by its socket or by its port."""
    require_pgbouncer()
    host, port, owner = _server(server_url)
    folder = Path(tempfile.mkdtemp(prefix="detent-pgbouncer-"))
    try:
        (folder / "users").write_text("".join(f'"{user}" ""\n' for user in users))
        (folder / "config").write_text(
            CONFIG.format(server=host, server_port=port, folder=folder, port=PORT, size=size)
        )
        if os.geteuid() == 0:
            shutil.chown(folder, owner)
        folder.chmod(0o755)
        bouncer = PgBouncer(folder, server_url, owner)
        bouncer.start()
        try:
            yield bouncer
        finally:
            bouncer.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _server(url: str) -> tuple[str, int, str]:
    """Where the server is, and as which user PgBouncer may run: the owner of the socket, or the user `nobody`."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    if "host" in query:
        return query["host"][0], int(query["port"][0]), Path(query["host"][0]).owner()
    assert parts.hostname is not None
    return parts.hostname, parts.port or 5432, "nobody"


async def prepare_role(server_url: str, name: str = "detent") -> None:
    """Give the role the settings that nodes behind a pooler depend on, for this database."""
    connection = await connect(server_url, "detent")
    try:
        await role.give(connection, name, "detent")
    finally:
        await connection.close()


def require_pgbouncer() -> None:
    if shutil.which("pgbouncer"):
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        _install()
        return
    missing = f"PgBouncer is not installed, and only root can install it: {INSTALL}"
    if os.environ.get("CI") == "true":
        pytest.fail(missing)
    pytest.skip(missing)


def _install() -> None:
    with (guardian.SHARED / "detent-test-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of the parallel test processes installs, the others wait
        if not shutil.which("pgbouncer"):
            environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for command in (["apt-get", "update"], [*INSTALL.split(), "--yes"]):
                subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
