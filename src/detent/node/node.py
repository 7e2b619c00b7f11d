"""The composition root: it joins database, app, API and session. No other module does.

What belongs to a whole process, such as signals and the log, is not here: `process.py` has it for the processes that
`detent` starts, and `hosted.py` runs a node inside a process of another program.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from detent.cluster.admission import AdmissionCheck, SuspectedCopy
from detent.domain.run import Call
from detent.errors import DetentError, UsageError
from detent.node.app_life import alive
from detent.node.apps import attach_database, detach_database
from detent.node.celery import CeleryAccess, celery_access
from detent.node.cluster_signals import CachedSignals
from detent.node.console import reachable
from detent.node.database import check_keys, opened_store, prepared_database
from detent.node.readiness import Readiness
from detent.node.reporter import Demo, Reporter
from detent.node.secrets import secret_values
from detent.node.served import served_work
from detent.node.session import Session
from detent.node.shell import ShellAccess, check_shell_user, shell_access
from detent.runtime.service import backoff
from detent.sdk.app import Detent
from detent.settings.settings import Settings
from detent.store import Store
from detent.store.effects import EffectPool
from detent.store.limits import work_limits
from detent.targets.breaker import HostBreakers
from detent.targets.calls import Capacity
from detent.targets.frames import Holding
from detent.targets.host_loads import HostLoads
from detent.targets.messenger import Messenger, check_address
from detent.targets.policies import ClusterPolicies
from detent.targets.run import HandlerRun
from detent.telemetry.capture import captured_streams
from detent.telemetry.log import captured_logging, logger
from detent.telemetry.metrics import Metrics
from detent.upkeep.notices import address_of
from detent.worker.execute import Runner
from detent.worker.output import OutputWriter
from detent.worker.secrets import SecretValues

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from detent.node.frontend import Frontend
    from detent.targets.lookup import TenantResolver

log = logger("node")

HELD_PAUSE = 2.0


class Node:
    def __init__(
        self,
        settings: Settings,
        roles: tuple[str, ...],
        reporter: Reporter,
        metrics: Metrics,
        *,
        frontend: Frontend | None = None,
        app: Detent | None = None,
        demo: Demo | None = None,
    ) -> None:
        """`frontend` serves the API; None: this node has none. `app`: instead of the one that the settings name."""
        self._settings = settings
        self._roles = roles
        self._reporter = reporter
        self._frontend = frontend
        self._app = app
        self._demo = demo
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._failure: DetentError | None = None
        self._refusals = 0
        self._session: Session | None = None
        self._store: Store | None = None
        self._announced = False
        self._hold_logged = False
        self._keys_needed = False
        self._draining = False
        self._capacity = Capacity()
        self._shell = ShellAccess()
        self._celery = CeleryAccess()
        self._secrets: SecretValues | None = None
        self._metrics = metrics
        loads = HostLoads(settings.concurrency, settings.tenant_headroom if settings.breaker_failures else 0.0)
        self._breakers = HostBreakers(
            settings.breaker_failures, settings.breaker_max_pause_seconds, metrics, loads=loads
        )
        self._metrics.gauges = lambda: self._session.gauges() if self._session is not None else None
        self._metrics.cluster = CachedSignals(lambda: self._store)
        self._readiness = Readiness(roles, lambda: self._store, lambda: self._session, self._stop.is_set)

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Drain and end. The second call ends the draining."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def run(self) -> None:
        """Until `stop`. Raises what keeps the node from starting or from going on."""
        try:
            await self._run()
        except DetentError:
            if self._failure is None:
                raise
        if self._failure is not None:
            raise self._failure

    async def _run(self) -> None:
        app = self._load_app()  # before anything is started, so that a bad setting fails at once
        self._check_archive()
        self._check_message_addresses()
        check_shell_user(self._settings, self._roles)
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(prepared_database(self._settings, self._fail, self._reporter.note))
            store = await stack.enter_async_context(opened_store(url, self._settings))
            self._store = store
            policies = ClusterPolicies(store.tenants)
            guard = AdmissionCheck(store, self._settings.clock_step_limit_seconds)
            await self._examine_database(guard)
            await check_keys(self._settings, store, serves_api="api" in self._roles)
            self._shell = await shell_access(self._settings, self._roles, store)
            self._celery = await celery_access(self._settings, self._roles, store)
            self._secrets = await secret_values(self._settings, self._roles, store)
            listening = await self._start_api(stack, store)
            await self._start_probes(stack)
            if self._demo:
                app = self._demo.app(listening or self._settings.api_url)
            if app is not None:
                attach_database(app, url, self._settings.database_schema, pooled=self._settings.pooled)
                stack.callback(detach_database, app)
                await self._register(store, app)
            if not {"scheduler", "worker"}.intersection(self._roles):
                self._reporter.started(listening, self._keys_needed)
                await self._stop.wait()
            else:
                resolver = self._resolver()
                stack.push_async_callback(resolver.close)
                runners = await stack.enter_async_context(self._runners(app, store, url, policies, resolver))
                messenger = Messenger(policies, resolver=resolver)
                stack.push_async_callback(messenger.close)
                await self._keep_session(store, app, runners, listening, guard, messenger)

    def _fail(self, error: DetentError) -> None:
        """End the process with this error, without draining."""
        self._failure = error
        self._stop.set()
        self._hurry.set()

    def _check_message_addresses(self) -> None:
        """Without this check, an unusable address would be noticed only when the first message fails."""
        for name in ("notify_url", "heartbeat_url"):
            url = getattr(self._settings, name)
            if url is not None:
                check_address(name, url)
        address_of(self._settings)

    # --- the parts ---

    async def _start_api(self, stack: AsyncExitStack, store: Store) -> str | None:
        """The API answers before the node is ready, so that /readyz can say what is missing."""
        if self._frontend is None:
            return None
        return await self._frontend.open(stack, partial(self._make_api, store))

    async def _make_api(self, store: Store) -> Starlette:
        from detent.api.app import create_app
        from detent.dashboard.app import add_dashboard

        app = create_app(store, settings=self._settings, readiness=self._readiness, metrics=self._metrics)
        # Asked before the first request: on a keyed cluster no probe then waits for the database.
        self._keys_needed = await app.state.api.authenticator.keys_needed()
        add_dashboard(app)
        if self._demo:
            self._demo.add_routes(app)
        return app

    async def _start_probes(self, stack: AsyncExitStack) -> None:
        """Health and metrics on their own port: for processes without an API, or to expose nothing else."""
        chosen = self._settings
        if chosen.metrics_port is None:
            return
        from detent.api.health import create_probes
        from detent.node.server import ApiServer

        app = create_probes(self._readiness, self._metrics)
        server = ApiServer(app, chosen.host, chosen.metrics_port, settings=chosen, flag="--metrics-port")
        await stack.enter_async_context(server)
        self._reporter.note(f"metrics on {server.url}/metrics")

    def _check_archive(self) -> None:
        if "scheduler" in self._roles and self._settings.archive_url is not None:
            from detent.upkeep.archive import open_archive

            open_archive(self._settings.archive_url)

    def _load_app(self) -> Detent | None:
        if self._demo and not self._settings.local:
            raise UsageError(f"--demo runs on this machine only: leave out --host {self._settings.host}.")
        if self._app is not None or self._settings.app is None or self._demo:
            return self._app
        from detent.node.apps import load_app

        return load_app(self._settings.app)

    async def _register(self, store: Store, app: Detent) -> None:
        from detent.jobs import JobOperations
        from detent.node.apps import register_jobs

        await register_jobs(store, JobOperations(store), app)

    def _resolver(self) -> TenantResolver:
        """One for all calls and messages of this process: tenants share its threads."""
        from detent.targets.lookup import TenantResolver

        return TenantResolver(self._settings.tenant_headroom)

    @asynccontextmanager
    async def _runners(
        self, app: Detent | None, store: Store, url: str, policies: ClusterPolicies, resolver: TenantResolver
    ) -> AsyncIterator[dict[Any, Runner]]:
        """A runner for each kind of target that this process can call."""
        from detent.sdk.serving import ServedApp
        from detent.targets.celery.runner import CeleryTargetRunner
        from detent.targets.http import HttpTargetRunner
        from detent.targets.processes import handler_processes
        from detent.targets.python import HandlerThread, PythonTargetRunner
        from detent.targets.shell import ShellTargetRunner
        from detent.targets.topics.runner import TopicTargetRunner

        chosen, limit = self._settings, self._settings.max_result_bytes
        http = HttpTargetRunner(
            policies, max_result_bytes=limit, resolver=resolver, breakers=self._breakers,
            host_concurrency=chosen.http_host_concurrency,
        )  # fmt: skip
        topic = TopicTargetRunner(policies, resolver=resolver, breakers=self._breakers)
        output = OutputWriter(store, chosen.run_log_bytes)
        shell = ShellTargetRunner(
            self._shell.tenants, user=self._shell.user, max_result_bytes=limit, output=output.begin
        )
        celery = CeleryTargetRunner(policies, self._celery.apps, max_result_bytes=limit, breakers=self._breakers)
        thread = HandlerThread(min(chosen.concurrency, 64))
        bounds = work_limits(chosen.lease_ttl_seconds)
        effects = EffectPool(url, chosen.database_schema, bounds, pooled=chosen.pooled)
        processes = None if self._demo else handler_processes(chosen, url, self._hold, output.receive)
        served = ServedApp(app) if app is not None and "worker" in self._roles else None
        python = PythonTargetRunner(
            served.functions() if served else {}, thread, lambda call: self._make_run(call, effects, output),
            max_result_bytes=limit, processes=processes, isolate=chosen.isolate == "process",
            tenant_headroom=chosen.tenant_headroom,
        )  # fmt: skip
        self._capacity = python.capacity
        self._capacity.gates.append(resolver.gate)
        thread.start()
        output.loop.start()
        runners: dict[Any, Runner] = {"http": http, "python": python, "topic": topic}
        if self._shell.tenants:
            await shell.start()
            runners["shell"] = shell
        if self._celery.installed:
            runners["celery"] = celery
        try:
            with captured_logging(), captured_streams():
                async with alive(served, thread, self._stop, self._hurry):
                    yield self._demo.reporting(runners) if self._demo and self._reporter.interactive else runners
        finally:
            await http.close()
            await topic.close()
            await shell.close()
            await celery.close()
            if processes is not None:
                await processes.close()
            await thread.stop(effects.terminate)
            await output.close()

    def _hold(self, call: Call) -> Holding | None:
        return None if self._session is None else self._session.holding(call)

    def _make_run(self, call: Call, effects: EffectPool, output: OutputWriter) -> HandlerRun:
        assert self._session is not None
        return self._session.make_run(call, effects, output)

    # --- the life of the process ---

    async def _examine_database(self, guard: AdmissionCheck) -> None:
        """Before the first write: an unused database becomes its own original."""
        try:
            await guard.examine()
        except SuspectedCopy as error:
            self._log_hold(error)

    def _log_hold(self, error: SuspectedCopy) -> None:
        if not self._hold_logged:
            log.error(error.message)
            self._hold_logged = True

    async def _keep_session(
        self,
        store: Store,
        app: Detent | None,
        runners: dict[Any, Runner],
        listening: str | None,
        guard: AdmissionCheck,
        messenger: Messenger,
    ) -> None:
        """Join the cluster, and join again whenever the membership is lost, until the process stops."""
        functions = list(app.functions) if app is not None else []
        while not self._stop.is_set():
            session = Session(
                store, self._settings, self._roles, runners, functions,
                address=listening and reachable(listening), metrics=self._metrics, guard=guard,
                messenger=messenger, draining=self._draining, capacity=self._capacity,
                shell_tenants=self._shell.tenants, celery=self._celery.capabilities, secrets=self._secrets,
                breakers=self._breakers,
            )  # fmt: skip
            joined = await self._try_open(session)
            if joined is not None:  # the API answers even while nothing may fire
                self._announce_once(listening, app, runners)
            if joined:
                self._session = session
                await self._until_over(session)

    async def _try_open(self, session: Session) -> bool | None:
        """True: joined. False: the database may be a copy, and an operator has to decide. None: try again later."""
        try:
            await session.open()
        except SuspectedCopy as error:
            self._log_hold(error)
            await self._pause(HELD_PAUSE)
            return False
        except DetentError as error:
            if not self._announced:
                raise
            log.warning("cannot join yet", error=str(error))
            self._refusals += 1
            await self._pause(backoff(self._refusals))
            return None
        self._hold_logged, self._refusals = False, 0
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
        """Drain, until a second signal or the loss of the membership cuts it short."""
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

    def _announce_once(self, listening: str | None, app: Detent | None, runners: dict[Any, Runner]) -> None:
        if not self._announced:
            self._announced = True
            served = None if self._demo else served_work(self._settings, self._roles, app, list(runners))
            self._reporter.started(listening, self._keys_needed, served)
