"""The composition root of a process: database, app, API and session are joined here and nowhere else."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Protocol
from urllib.parse import urlsplit

from detent.cluster.admission import Guard, Held
from detent.domain.run import Call
from detent.errors import DetentError, UsageError
from detent.node.readiness import Readiness
from detent.node.session import Session
from detent.node.signals import Signals
from detent.runtime import failpoints
from detent.runtime.service import backoff
from detent.sdk.app import Detent
from detent.settings.settings import Settings
from detent.store import Database, Store
from detent.store.effects import EffectPool
from detent.store.limits import work_limits
from detent.targets.calls import Capacity
from detent.targets.frames import Holding
from detent.targets.guard import AddressPolicy
from detent.targets.messenger import Messenger, check_address
from detent.targets.run import Run
from detent.telemetry import tracing
from detent.telemetry.log import configure, logger
from detent.telemetry.metrics import Metrics
from detent.upkeep.notices import address_of
from detent.worker.execute import Runner

log = logger("node")

HELD_PAUSE = 2.0


class Demo(Protocol):
    """What a first look adds to a node: jobs to show, and the endpoint that one of them calls."""

    def app(self, url: str) -> Detent: ...

    def add_routes(self, app: Any) -> None: ...


def run(settings: Settings, roles: tuple[str, ...], demo: Demo | None = None) -> int:
    """Run until told to stop; the exit code."""
    configure(settings.log_format, settings.log_level)
    failpoints.arm(settings.failpoints, production=settings.production)
    collect_garbage_seldom()
    if settings.traces == "otlp":
        tracing.start(settings.trace_ratio)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(Node(settings, roles, demo).run())
    finally:
        tracing.stop()
    return 0


def collect_garbage_seldom() -> None:
    """A batch is many objects that all live until it is over; looking through them again and again took up to half of
    the time of a registration when it was measured."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class Node:
    def __init__(self, settings: Settings, roles: tuple[str, ...], demo: Demo | None) -> None:
        self._settings = settings
        self._roles = roles
        self._demo = demo
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._failure: DetentError | None = None
        self._refusals = 0
        self._session: Session | None = None
        self._store: Store | None = None
        self._announced = False
        self._held_told = False
        self._draining = False
        self._capacity = Capacity()
        self._metrics = Metrics()
        self._metrics.standing = lambda: self._session.standing() if self._session is not None else None
        self._metrics.cluster = Signals(lambda: self._store)
        self._messenger = Messenger(AddressPolicy(self._allow_private()))
        self._readiness = Readiness(roles, lambda: self._store, lambda: self._session, self._stop.is_set)

    async def run(self) -> None:
        try:
            await self._run()
        except DetentError:
            if self._failure is None:
                raise
        if self._failure is not None:
            raise self._failure

    async def _run(self) -> None:
        self._listen_to_signals()
        app = self._load_app()  # before anything is started: what cannot work is refused at once
        self._check_archive()
        self._check_outside()
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(prepared_database(self._settings, self._fail))
            store = await stack.enter_async_context(opened_store(url, self._settings))
            self._store = store
            guard = Guard(store, self._settings.clock_step_limit_seconds)
            await self._look_at_database(guard)
            listening = await self._start_api(stack, store)
            await self._start_probes(stack)
            if self._demo:
                app = self._demo.app(listening or self._settings.api_url)
            if app is not None:
                await self._register(store, app)
            if self._roles == ("api",):
                self._announce(listening)
                await self._stop.wait()
            else:
                runners = await stack.enter_async_context(self._runners(app, url))
                await self._keep_session(store, app, runners, listening, guard)

    def _fail(self, error: DetentError) -> None:
        """End the process with this error: nothing can be drained any more."""
        self._failure = error
        self._stop.set()
        self._hurry.set()

    def _check_outside(self) -> None:
        """An address that no message could ever go to would be noticed when the first one should have come."""
        for name in ("notify_url", "heartbeat_url"):
            url = getattr(self._settings, name)
            if url is not None:
                check_address(name, url)
        address_of(self._settings)

    # --- the parts ---

    async def _start_api(self, stack: AsyncExitStack, store: Store) -> str | None:
        """The API answers before the node is ready, so that /readyz can say what is missing."""
        if "api" not in self._roles:
            return None
        from detent.api.app import create_app
        from detent.dashboard.app import add_dashboard
        from detent.node.server import ApiServer

        await check_keys(self._settings, store)
        app = create_app(store, settings=self._settings, readiness=self._readiness, metrics=self._metrics)
        add_dashboard(app)
        if self._demo:
            self._demo.add_routes(app)
        server = ApiServer(app, self._settings.host, self._settings.port, seek=self._settings.seeks_port)
        await stack.enter_async_context(server)
        if server.note:
            _say(server.note)
        return server.url

    async def _start_probes(self, stack: AsyncExitStack) -> None:
        """Health and metrics on a port of their own: for processes without an API, or where only they may be seen."""
        if self._settings.metrics_port is None:
            return
        from detent.api.health import create_probes
        from detent.node.server import ApiServer

        app = create_probes(self._readiness, self._metrics)
        server = ApiServer(app, self._settings.host, self._settings.metrics_port, flag="--metrics-port")
        await stack.enter_async_context(server)
        _say(f"metrics on {server.url}/metrics")

    def _check_archive(self) -> None:
        if "scheduler" in self._roles and self._settings.archive_url is not None:
            from detent.upkeep.archive import open_archive

            open_archive(self._settings.archive_url)

    def _load_app(self) -> Detent | None:
        if self._demo and not self._settings.local:
            raise UsageError(f"--demo is for a first look on this machine, not with --host {self._settings.host}.")
        if self._settings.app is None or self._demo:
            return None
        from detent.node.apps import load_app

        return load_app(self._settings.app)

    async def _register(self, store: Store, app: Detent) -> None:
        from detent.jobs import JobOperations
        from detent.node.apps import register_jobs

        await register_jobs(store, JobOperations(store), app)

    @asynccontextmanager
    async def _runners(self, app: Detent | None, url: str) -> AsyncIterator[dict[Any, Runner]]:
        """What this process can call, each kind with what it needs open."""
        from detent.targets.http import HttpTargetRunner
        from detent.targets.processes import handler_processes
        from detent.targets.python import HandlerThread, PythonTargetRunner
        from detent.targets.shell import ShellTargetRunner

        chosen, limit = self._settings, self._settings.max_result_bytes
        http = HttpTargetRunner(AddressPolicy(self._allow_private()), max_result_bytes=limit)
        shell = ShellTargetRunner(max_result_bytes=limit)
        thread = HandlerThread(min(chosen.concurrency, 64))
        bounds = work_limits(chosen.lease_ttl_seconds)
        effects = EffectPool(url, chosen.database_schema, bounds, pooled=chosen.pooled)
        processes = None if self._demo else handler_processes(chosen, url, self._hold)
        python = PythonTargetRunner(
            app.functions if app else {}, thread, lambda call: self._make_run(call, effects),
            max_result_bytes=limit, processes=processes, isolate=chosen.isolate == "process",
        )  # fmt: skip
        self._capacity = python.capacity
        thread.start()
        await http.start()
        runners: dict[Any, Runner] = {"http": http, "python": python}
        if chosen.allow_shell:
            runners["shell"] = shell
        try:
            yield runners
        finally:
            await http.close()
            await self._messenger.close()
            await shell.close()
            if processes is not None:
                await processes.close()
            await thread.stop(effects.terminate)

    def _hold(self, call: Call) -> Holding | None:
        return None if self._session is None else self._session.holding(call)

    def _make_run(self, call: Call, effects: EffectPool) -> Run:
        assert self._session is not None
        return self._session.make_run(call, effects)

    def _allow_private(self) -> bool:
        allowed = self._settings.allow_private_targets
        return self._settings.local if allowed is None else allowed

    # --- the life of the process ---

    async def _look_at_database(self, guard: Guard) -> None:
        """Before anybody writes to it: a database that nobody has used yet becomes its own original."""
        try:
            await guard.look()
        except Held as error:
            self._tell_held(error)

    def _tell_held(self, error: Held) -> None:
        if not self._held_told:
            log.error(error.message)
            self._held_told = True

    async def _keep_session(
        self, store: Store, app: Detent | None, runners: dict[Any, Runner], listening: str | None, guard: Guard
    ) -> None:
        """Join, and join again whenever a membership was lost, until told to stop."""
        functions = list(app.functions) if app is not None else []
        while not self._stop.is_set():
            session = Session(
                store, self._settings, self._roles, runners, functions,
                address=listening and reachable(listening), metrics=self._metrics, guard=guard,
                messenger=self._messenger, draining=self._draining, capacity=self._capacity,
            )  # fmt: skip
            joined = await self._try_open(session)
            if joined is not None:  # the API answers also where nothing may fire
                self._announce_once(listening)
            if joined:
                self._session = session
                await self._until_over(session)

    async def _try_open(self, session: Session) -> bool | None:
        """None: not now. False: this database may be a copy, and somebody has to say so."""
        try:
            await session.open()
        except Held as error:
            self._tell_held(error)
            await self._pause(HELD_PAUSE)
            return False
        except DetentError as error:
            if not self._announced:
                raise
            log.warning("cannot join yet", error=str(error))
            self._refusals += 1
            await self._pause(backoff(self._refusals))
            return None
        self._held_told, self._refusals = False, 0
        return True

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    async def _until_over(self, session: Session) -> None:
        over = [asyncio.create_task(event.wait()) for event in (self._stop, session.membership.lost)]
        await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
        for task in over:
            task.cancel()
        if session.membership.lost.is_set():
            self._metrics.memberships_lost += 1
            await session.abandon()
        else:
            await self._close(session)
        self._draining = session.draining
        self._session = None

    async def _close(self, session: Session) -> None:
        """Drain, unless a second signal or the loss of the membership ends the patience."""
        closing = asyncio.create_task(session.close(self._settings.drain_seconds))
        ends = [asyncio.create_task(event.wait()) for event in (self._hurry, session.membership.lost)]
        await asyncio.wait((closing, *ends), return_when=asyncio.FIRST_COMPLETED)
        for task in ends:
            task.cancel()
        if not closing.done():
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
            await session.abandon()
        else:
            closing.result()

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    def _announce_once(self, listening: str | None) -> None:
        if not self._announced:
            self._announced = True
            self._announce(listening)

    def _announce(self, listening: str | None) -> None:
        if listening is not None:
            _say(f"listening on {listening}")
        else:
            _say(f"{' and '.join(self._roles)} ready")


@asynccontextmanager
async def prepared_database(
    settings: Settings, failed: Callable[[DetentError], None] | None = None
) -> AsyncIterator[str]:
    """The URL of the database that the settings name, or of the embedded one, which runs for as long as this does.
    With `failed` it is watched and started again, and that is called once it cannot be."""
    if settings.database_url is not None:
        await prepare_database(
            settings.database_url, settings.database_schema, migrate=settings.migrate, pooled=settings.pooled
        )
        yield settings.database_url
        return
    from detent.store.embedded import EmbeddedServer
    from detent.store.embedded_watch import watched

    server = EmbeddedServer(settings.data_dir)
    async with server:
        if server.note:
            _say(server.note)
        await prepare_database(server.url, settings.database_schema, migrate=True)
        async with watched(server, failed):
            yield server.url


@asynccontextmanager
async def opened_store(url: str, settings: Settings) -> AsyncIterator[Store]:
    database = Database(url, settings.database_schema, pooled=settings.pooled, ttl=settings.lease_ttl_seconds)
    await database.open()
    try:
        yield Store(database)
    finally:
        await database.close()


async def prepare_database(url: str, schema: str, *, migrate: bool, pooled: bool = False) -> None:
    """A database that this version can work with, or one sentence that says what to do."""
    from detent.store import migrate as migrations
    from detent.store import role
    from detent.store.db import connect

    connection = await connect(url, schema, pooled=pooled)
    try:
        if pooled:
            await role.verify(connection, url, schema)
            if migrate and await migrations.pending(connection):
                raise role.needs_server(url)
        if migrate:
            for name in await migrations.migrate(connection):
                log.info("migrated", migration=name)
        else:
            await migrations.check(connection)
    finally:
        await connection.close()


async def check_keys(settings: Settings, store: Store) -> None:
    """A server that others can reach asks for keys, so there must be one with which somebody can come in."""
    if not settings.local and not await store.keys.exists():
        raise UsageError(
            f"--host {settings.host} is more than this machine, and there is no API key yet: make the first one with "
            "`detent key create --local --scope admin`, or listen on 127.0.0.1."
        )


def reachable(url: str) -> str:
    """An address as others may use it: of a server that listens everywhere, by the name of its machine."""
    parts = urlsplit(url)
    if parts.hostname not in ("0.0.0.0", "::"):  # noqa: S104 - looked for, not listened on
        return url
    return f"{parts.scheme}://{socket.gethostname()}:{parts.port}"


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
