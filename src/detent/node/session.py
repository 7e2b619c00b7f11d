"""One membership from joining to its end, and the parts that live as long: heartbeat, leadership, scheduler, worker.

A process may have several sessions in its life. When a membership is lost (the process was paused, or cut off from the
database for longer than its lease), other nodes may hold everything it held: handlers are stopped, nothing is written,
and a new session joins under a new identity.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from datetime import timedelta

from detent.cluster.admission import AdmissionCheck
from detent.cluster.coordinators.choose import choose
from detent.cluster.coordinators.coordinator import Coordinator, PostgresCoordinator
from detent.cluster.coordinators.services import Candidate
from detent.cluster.hints import Hints
from detent.cluster.leadership import Leadership
from detent.cluster.membership import BEATS_PER_TTL, Heartbeat, Membership, new_node_number
from detent.domain.identity import node_name
from detent.domain.job import CALLBACK_NEEDS, TargetKind
from detent.domain.run import Call
from detent.domain.schedule import tzdata_version
from detent.errors import DetentError, Unavailable
from detent.jobs import JobOperations
from detent.runtime.clock import DatabaseClock, monotonic
from detent.runtime.envelope import MasterKeys
from detent.runtime.service import Loop, backoff
from detent.runtime.wakeups import Wakeups
from detent.scheduler.lifecycle import LifecycleLoop
from detent.scheduler.offer_scan import OfferScan
from detent.scheduler.offering import OfferSender
from detent.scheduler.scheduler import Scheduler
from detent.settings.settings import Settings
from detent.store import Store
from detent.store.effects import EffectPool
from detent.store.heartbeat import HeartbeatConnection
from detent.store.nodes import NodeInfo
from detent.targets.breaker import HostBreakers, never_open
from detent.targets.calls import Capacity
from detent.targets.frames import Holding
from detent.targets.messenger import Messenger
from detent.targets.policies import ClusterPolicies
from detent.targets.run import HandlerRun
from detent.targets.topics.clients import available_protocols
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics, NodeGauges
from detent.transports.choose import choose_transport
from detent.transports.link import TransportLink
from detent.upkeep.alerts import AlertWatch
from detent.upkeep.archive import open_archive
from detent.upkeep.dead_letters import DeadLetterForwarder
from detent.upkeep.expectations import ExpectationWatch
from detent.upkeep.housekeeping import Housekeeping, make_history_days
from detent.upkeep.notices import NoticeSender, address_of
from detent.upkeep.pings import Ping
from detent.upkeep.retention import Keeper
from detent.upkeep.tally import Tally
from detent.upkeep.tenants import TenantUpkeep
from detent.version import __version__
from detent.worker.circuits import CircuitReport
from detent.worker.execute import Runner
from detent.worker.handler_backend import HandlerBackend
from detent.worker.output import OutputWriter
from detent.worker.queues.book import QueueBook
from detent.worker.secret_providers import SecretProviders
from detent.worker.secrets import SecretValues
from detent.worker.worker import Worker

log = logger("node")

STEP_DOWN_SECONDS = 1.0


class Session:
    def __init__(
        self,
        store: Store,
        settings: Settings,
        roles: tuple[str, ...],
        runners: Mapping[TargetKind, Runner],
        functions: list[str],
        *,
        address: str | None = None,
        metrics: Metrics | None = None,
        guard: AdmissionCheck | None = None,
        messenger: Messenger | None = None,
        draining: bool = False,
        capacity: Capacity | None = None,
        shell_tenants: Collection[int] = (),
        celery: Collection[str] = (),
        secrets: SecretValues | None = None,
        breakers: HostBreakers | None = None,
    ) -> None:
        """`address` is where the API of this process listens; the values after it outlive the session. `draining`: an
        operator drained the session before, and has not resumed it. `shell_tenants`: whose commands this node runs.
        `celery`: its capabilities for Celery targets."""
        self._store = store
        self._jobs = JobOperations(store)
        self._settings = settings
        self._roles = roles
        self._runners = runners
        kinds = ("python", "process") if settings.app is not None else ("python",)
        self._capabilities = [f"{kind}:{name}" for kind in kinds for name in functions]
        self._capabilities.append(CALLBACK_NEEDS)
        self._capabilities += [f"shell@{tenant}" for tenant in shell_tenants]
        if "topic" in runners:
            self._capabilities += [f"topic:{protocol}" for protocol in available_protocols()]
        self._capabilities += celery
        self.clock = DatabaseClock()
        self.wakeups = Wakeups()
        self.worker: Worker | None = None
        self.link: TransportLink | None = None
        self.offers: OfferSender | None = None
        self.closed = False
        self.schedules = "scheduler" in roles
        self.draining = draining
        self._address = address
        self._metrics = metrics or Metrics()
        self._guard = guard or AdmissionCheck(store, settings.clock_step_limit_seconds)
        self._messenger = messenger or Messenger(ClusterPolicies(store.tenants))
        self._secrets = secrets or SecretValues(store.secrets, MasterKeys(), SecretProviders())
        self.capacity = capacity or Capacity()
        self._breakers = breakers or never_open()
        self._firing_loops: list[Loop] = []
        self._background: list[Loop] = []

    async def open(self) -> None:
        """Join, and start everything once the first heartbeat has come back."""
        admission = await self._guard.admit()
        if self.schedules:
            await make_history_days(self._store)
        info = NodeInfo(
            new_node_number(), socket.gethostname(), os.getpid(), self._roles, __version__, tzdata_version(),
            self._address, self.draining, *self._served(),
        )  # fmt: skip
        self.membership = Membership(
            info, self._settings.lease_ttl_seconds, self.clock, admission.incarnation, admission.server.timeline
        )
        self.coordinator = self._choose_coordinator(Candidate(info.node, admission.cluster, self.membership.ttl))
        transport = choose_transport(self._settings.queue, str(admission.cluster))
        self.link = None if transport is None else TransportLink(transport, self._metrics)
        await self._store.nodes.join(info, timedelta(seconds=self.membership.ttl))
        database = self._store.database
        connect = HeartbeatConnection(
            database.url, database.schema, max(0.2, self.membership.ttl / 3), pooled=database.pooled
        )
        self._heartbeat = Heartbeat(self.membership, lambda: connect, self._guard.watch)
        self._heartbeat.start()
        try:
            await self._confirmed()
            await self._open_coordinator()
            if self.link is not None:
                await self.link.ensure()  # if it is away now, it is as one that becomes so later
        except BaseException:  # the heartbeat's thread would keep a node alive that does nothing
            await self._heartbeat.stop()
            if self.link is not None:
                await self.link.close()
            raise
        self._start_parts()
        await self.hints.announce_share()
        log.info("joined", node=node_name(info.node), roles=list(self._roles))

    def _served(self) -> tuple[tuple[str, ...], tuple[str, ...]] | tuple[None, None]:
        """What its worker serves, for those who ask why a run waits."""
        return (tuple(self._settings.queues), tuple(self._capabilities)) if "worker" in self._roles else (None, None)

    async def _confirmed(self) -> None:
        try:
            async with asyncio.timeout(max(10.0, self.membership.ttl)):
                await self.membership.confirmed.wait()
        except TimeoutError as error:
            raise Unavailable("The node could not join: no heartbeat came back.") from error

    def _choose_coordinator(self, candidate: Candidate) -> Coordinator:
        if "scheduler" not in self._roles:
            return PostgresCoordinator()
        return choose(self._settings.coordinator, candidate, self._store.database)

    async def _open_coordinator(self) -> None:
        """A coordinator that is unavailable now is treated as one that becomes so later: the node starts without it."""
        try:
            await self.coordinator.open()
        except Unavailable as error:
            log.warning("coordinator not reached", coordinator=self.coordinator.name, error=str(error))

    def _start_parts(self) -> None:
        """Every part is complete when it is constructed; parts wake each other by the events of `wakeups`."""
        store, membership, wakeups, metrics = self._store, self.membership, self.wakeups, self._metrics
        settings = self._settings
        self.hints = Hints(store, wakeups)
        self.book = QueueBook(store, wakeups)
        self.lifecycle = LifecycleLoop(self._jobs, wakeups, schedules=self.schedules)
        if "worker" in self._roles:
            self.worker = Worker(
                store, membership, self.clock, self._runners, book=self.book, queues=settings.queues,
                capabilities=self._capabilities, concurrency=settings.concurrency,
                tenant_headroom=settings.tenant_headroom, wakeups=wakeups, metrics=metrics, handlers=self.capacity,
                secrets=self._secrets, breakers=self._breakers, draining=self.draining,
                callback_url=settings.public_url or self._address, link=self.link,
            )  # fmt: skip
        if self.link is not None and self.schedules:
            self.offers = OfferSender(self.link, self.clock, book=self.book, wakeups=wakeups, metrics=metrics)
        self.scheduler = Scheduler(
            store, membership, self.clock, worker=self.worker, book=self.book, wakeups=wakeups, metrics=metrics,
            window_seconds=settings.window_seconds, catch_up_rate=settings.catchup_rate,
            grace_seconds=settings.misfire_grace_seconds, offers=self.offers,
        )  # fmt: skip
        self.leadership = Leadership(
            store, membership, self.coordinator, led=self.scheduler if self.schedules else None, hints=self.hints,
            wakeups=wakeups, metrics=metrics,
        )  # fmt: skip
        wakeups.draining.subscribe(self._set_draining)
        wakeups.hold_changed.subscribe(self._heartbeat.soon)
        self._background = [self.hints.loop, self.book.loop, self.lifecycle.loop]
        if self.worker is not None:
            self._background.append(CircuitReport(store, membership, self._breakers).loop)
        if self.schedules:
            self._firing_loops = [self.scheduler.loop, self.scheduler.releaser.loop]
            self._background += [self.scheduler.aside.loop, *self._upkeep_loops(), *self._offer_loops()]
        working = self.worker.loops if self.worker is not None else []
        sending = [self.offers.loop] if self.offers is not None else []
        for loop in (self.leadership.loop, *self._background, *self._firing_loops, *working, *sending):
            loop.start()

    def _set_draining(self, draining: bool) -> None:
        """Leadership releases its share by itself, and the worker its runs."""
        if draining != self.draining:
            self.draining = draining
            log.info("draining" if draining else "taking part again", node=node_name(self.membership.node))

    def _offer_loops(self) -> Iterator[Loop]:
        if self.offers is not None:
            yield OfferScan(
                self._store, self.membership, self.clock, self.offers,
                leads=lambda: 0 in self.leadership.terms, wakeups=self.wakeups,
            ).loop  # fmt: skip

    def _upkeep_loops(self) -> Iterator[Loop]:
        """What any scheduling node does for the whole cluster."""
        store, membership, settings, metrics = self._store, self.membership, self._settings, self._metrics
        sender = NoticeSender(store, membership, self._messenger, address_of(settings), self._secrets, metrics)
        watch = ExpectationWatch(store, membership, lambda: self.leadership.terms, metrics, sender.loop.wake)
        alerts = AlertWatch(store, membership, lambda: self.leadership.terms, sender.loop.wake)
        self.wakeups.jobs_changed.subscribe(watch.jobs_changed)
        housekeeping = Housekeeping(
            store,
            self._jobs,
            self.clock,
            lifecycle=self.lifecycle,
            expectations=watch,
            wakeups=self.wakeups,
            metrics=metrics,
        )
        tally = Tally(store, membership.node, lambda: metrics.fired + metrics.starts)
        yield from (housekeeping.loop, Loop("retention", self._keeper().tick), Loop("tally", tally.tick))
        yield from (sender.loop, watch.loop, alerts.loop, TenantUpkeep(store, membership.node).loop)
        if "topic" in self._runners:
            yield DeadLetterForwarder(store, membership, self._runners["topic"], self._secrets, metrics).loop
        if settings.heartbeat_url is not None:
            yield Ping(store, membership, self._messenger, settings.heartbeat_url, settings.heartbeat_seconds).loop

    def _keeper(self) -> Keeper:
        archive = open_archive(self._settings.archive_url)
        kept = self._settings
        return Keeper(
            self._store,
            self.membership.node,
            kept.history_days,
            archive,
            self.clock.now,
            kept.revisions_kept,
            kept.audit_days,
        )

    def gauges(self) -> NodeGauges:
        now = monotonic()
        ticks_unsent, oldest_unsent = self.scheduler.unsent()
        return NodeGauges(
            partitions_led=len(self.leadership.terms),
            partitions_flapping=self.leadership.flapping,
            heartbeat_age=now - self.membership.beat_at,
            heartbeat_interval=self.membership.ttl / BEATS_PER_TTL,
            lease_remaining=max(self.membership.trusted_until - now, 0.0),
            clock_offset=self.clock.offset,
            draining=self.draining,
            held=self.membership.held,
            ticks_unsent=ticks_unsent,
            oldest_unsent=oldest_unsent,
            fires_failing=self.scheduler.firing.failing_seconds,
            handlers_short=len(self.capacity.shortages()),
            **({} if self.worker is None else self.worker.load()),
        )

    # --- what handlers ask ---

    def make_run(self, call: Call, effects: EffectPool, output: OutputWriter | None = None) -> HandlerRun:
        assert self.worker is not None
        return HandlerRun(call, HandlerBackend(self.worker, self.membership.node, effects, output))

    def holding(self, call: Call) -> Holding | None:
        held = self.worker.holding(call.run_id, call.token) if self.worker is not None else None
        return None if held is None else Holding(self.membership.node, held.claim, held.started)

    # --- the end ---

    async def close(self, drain_seconds: float) -> None:
        """Leave cleanly: finish fires, hand partitions over, give back waiting runs, let running ones finish."""
        self.closed = True
        await _abort(self._background)  # one may be at a long chore, which another node continues from where it is
        await self.leadership.loop.stop()
        for loop in self._firing_loops:
            await loop.stop()
        await self.scheduler.firing.drain()
        async with asyncio.TaskGroup() as steps:
            if self.offers is not None:  # beside the rest: the broker may hang, and ticks wait for the hand-over
                steps.create_task(self._in_good_order(self.offers.close()))
            steps.create_task(self._hand_over(monotonic() + drain_seconds + self.membership.ttl))
            if self.worker is not None:
                steps.create_task(self._in_good_order(self.worker.drain(drain_seconds)))
        await self._heartbeat.stop()  # it would take the node's own leaving for an eviction
        await self._in_good_order(self._leave())
        await self.hints.close()
        if self.link is not None:
            await self.link.close()

    async def _in_good_order(self, step: Awaitable[object]) -> bool:
        """A step that fails does not keep the next ones from being done; other nodes rescue what is left."""
        try:
            await step
        except DetentError as error:
            log.warning("the node has not left cleanly: other nodes take over the rest", error=str(error))
            return False
        return True

    async def _hand_over(self, until: float) -> None:
        """Other nodes take released partitions at once, since they no longer count on this node; its runs may go on.
        While it holds them and is alive no other node can take them, so the release is retried until it is done."""
        node, failures = self.membership.node, 0
        steps: list[Callable[[], Awaitable[object]]] = [
            lambda: self._store.nodes.drain(node), self.leadership.release
        ]  # fmt: skip
        while steps and self.membership.trusted and monotonic() < until:
            steps = [step for step in steps if not await self._in_good_order(step())]
            if steps:
                failures += 1
                await asyncio.sleep(backoff(failures))
        await self.coordinator.close()
        await self.hints.announce_share()

    async def _leave(self) -> None:
        node = self.membership.node
        await self._store.nodes.leave(node)
        while await self._store.nodes.rescue(node):
            self.hints.announce_runs()
        await self._store.nodes.delete(node)

    async def abandon(self) -> None:
        """The membership is lost: stop at once, start nothing, hand nothing over."""
        self.closed = True
        await self._heartbeat.stop()
        sending = [self.offers.loop] if self.offers is not None else []
        await _abort([*self._background, self.leadership.loop, *self._firing_loops, *sending])
        await self.scheduler.firing.abandon()
        if self.worker is not None:
            await self.worker.abort()
        # Only after the last handler has ended: closing may take long, and a node without coordinator is replaced.
        await asyncio.gather(self.coordinator.close(), self._step_down())
        await self.hints.close()
        if self.link is not None:
            await self.link.close()

    async def _step_down(self) -> None:
        """A last heartbeat may have come through: other nodes need not wait for the end of that lease."""
        with contextlib.suppress(DetentError, TimeoutError):
            async with asyncio.timeout(STEP_DOWN_SECONDS):
                await self._store.nodes.leave(self.membership.node, lost=True)


async def _abort(loops: Iterable[Loop]) -> None:
    await asyncio.gather(*(loop.abort() for loop in loops))
