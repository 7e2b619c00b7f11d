"""PostgreSQL on TCP, as a cluster meets it: restarted, crashed, promoted, or with a clock that was set.

The server is a direct child of this process: a killed one whose parent is init stays a zombie for a second, and its
own pid file then says that it is alive.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import asyncpg

from detent.store import embedded_host as host
from tests.support import guardian
from tests.support.ports import free_port
from tests.support.waiting import until

USER = "detent"
DATABASE = "detent"
START_SECONDS = 60.0
OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "random_page_cost": "1.1",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "log_checkpoints": "off",
    "wal_level": "replica",
    "max_wal_senders": "4",
    "max_wal_size": "2GB",
    "hot_standby": "on",
}
SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT, "kill": signal.SIGKILL}


class Server:
    """One PostgreSQL in its own folder; `variables` go into its environment."""

    def __init__(self, folder: Path, name: str, **variables: str) -> None:
        self.folder = folder
        self.name = name
        self.data = folder / name
        self.log = folder / f"{name}.log"
        self.port = free_port()
        self.variables = variables
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self.url_at(self.port)

    @staticmethod
    def url_at(port: int) -> str:
        return f"postgresql://{USER}@127.0.0.1:{port}/{DATABASE}"

    @property
    def process(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    # --- making one ---

    async def create(self, **options: str) -> None:
        await self._prepare()
        await self._tool("initdb", "-D", self.data, "-U", USER, "--auth=trust", "--encoding=UTF8", "--locale=C")
        self._configure(options)
        with (self.data / "pg_hba.conf").open("a") as file:
            file.write("host replication all 127.0.0.1/32 trust\n")

    async def make_database(self) -> None:
        connection = await asyncpg.connect(f"postgresql://{USER}@127.0.0.1:{self.port}/postgres")
        await connection.execute(f"CREATE DATABASE {DATABASE}")
        await connection.close()

    async def copy(self, of: Server, from_port: int, **options: str) -> None:
        """A standby of another server, which it reaches on this port: the server's own, or a link that can be cut."""
        await self._prepare()
        await self._tool("pg_basebackup", "-D", self.data, "-d", f"{of._replication(of.port)}", "-c", "fast", "-R")
        self._configure({"primary_conninfo": of._replication(from_port, self.name), **options})

    def _replication(self, port: int, name: str = "copy") -> str:
        return f"host=127.0.0.1 port={port} user={USER} application_name={name} connect_timeout=2"

    async def _prepare(self) -> None:
        self.account = await host.account_for(self.data)
        self.binaries, self.version = await host.binaries_for(self.account, host.bundled_binaries(), self.folder)
        self.folder.chmod(0o711)
        self.data.mkdir(mode=0o700)
        host.give(self.account, self.data)

    async def _tool(self, name: str, *arguments: str | Path) -> str:
        code, output = await host.run(self.account, self.binaries / name, *arguments)
        assert not code, f"{name}: {output}"
        return output

    def _configure(self, options: dict[str, str]) -> None:
        settings = {
            **OPTIONS,
            "port": str(self.port),
            "unix_socket_directories": "",
            "cluster_name": self.name,
            **options,
        }
        with (self.data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    # --- its life ---

    async def start(self) -> None:
        """Until it answers; a crashed one recovers first."""
        other = {"user": self.account.uid, "group": self.account.gid, "extra_groups": []} if self.account.other else {}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [self.binaries / "postgres", "-D", self.data],
                cwd="/",
                env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC", **self.variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **other,  # type: ignore[call-overload]  # the three go together or not at all
            )
        await until(self.answers, START_SECONDS, f"{self.name} to answer")

    async def answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} ended:\n{self.log.read_text()[-2000:]}"
        try:
            connection = await asyncpg.connect(f"postgresql://{USER}@127.0.0.1:{self.port}/postgres", timeout=2)
        except (OSError, TimeoutError, asyncpg.PostgresError):
            return False
        connection.terminate()
        return True

    async def stop(self, how: str = "fast") -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(SIGNALS[how])
            await asyncio.to_thread(self._process.wait, START_SECONDS)

    async def restart(self, how: str) -> None:
        await self.stop(how)
        await self.start()

    async def kill_backend(self) -> int:
        """kill -9 of one session's process: the server ends all the others and recovers. Returns which."""
        async with self.session() as session:
            pid: int = await session.fetchval(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'detent' ORDER BY random() LIMIT 1"
            )
        os.kill(pid, signal.SIGKILL)
        return pid

    async def promote(self) -> None:
        await self._tool("pg_ctl", "promote", "-s", "-w", "-D", self.data)

    def session(self) -> Session:
        return Session(self.url)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)


class Session:
    """A connection for one question, as `async with`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Any = None

    async def __aenter__(self) -> Any:
        self._connection = await asyncpg.connect(
            self._url, server_settings={"search_path": "detent", "timezone": "UTC"}
        )
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()


def faketime_library() -> Path | None:
    """Debian's libfaketime, if it is there."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    return found[0] if found else None


def install_faketime() -> Path | None:
    """As `faketime_library`, after an attempt to install it where that is possible."""
    if faketime_library() is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        with (guardian.SHARED / "detent-test-apt.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one of the parallel test processes installs, the others wait
            if faketime_library() is None:
                for command in (["apt-get", "update"], ["apt-get", "install", "-y", "faketime"]):
                    subprocess.run(command, env=environ, check=False, capture_output=True)
    return faketime_library()
