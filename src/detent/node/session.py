"""One membership from joining to its end, and the parts that live as long: heartbeat, leadership, scheduler, worker.

A process may have several in its life. When a membership is lost (the process was paused, or cut off from the database
for longer than its lease), everything it held is someone else's by then: handlers are stopped, nothing is written, and
a new session joins under a new identity.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import partial

from detent.cluster.admission import AdmissionCheck
from detent.cluster.coordinators.choose import choose
from detent.cluster.coordinators.coordinator import Coordinator, PostgresCoordinator
from detent.cluster.coordinators.services import Candidate
from detent.cluster.leadership import Leadership
from detent.cluster.membership import BEATS_PER_TTL, Heartbeat, Membership, new_node_number
from detent.cluster.rescue import Rescue
from detent.domain.identity import node_name
from detent.domain.job import TargetKind
from detent.domain.misfire import AUTOMATIC
from detent.domain.run import Call
from detent.domain.schedule import tzdata_version
from detent.errors import DetentError, Unavailable
from detent.jobs import JobOperations
from detent.runtime.clock import DatabaseClock, monotonic
from detent.runtime.service import Loop, backoff, do_each
from detent.scheduler.firing import Firing
from detent.scheduler.lifecycle import Life
from detent.scheduler.planning import Planner
from detent.scheduler.releasing import Releaser
from detent.scheduler.scheduler import Scheduler
from detent.settings.settings import Settings
from detent.store import Store
from detent.store.db import LockTimeout
from detent.store.effects import EffectPool
from detent.store.heartbeat import HeartbeatConnection
from detent.store.nodes import NodeInfo
from detent.store.requests import FORGOTTEN_AT_ONCE
from detent.targets.calls import Capacity
from detent.targets.frames import Holding
from detent.targets.guard import AddressPolicy
from detent.targets.messenger import Messenger
from detent.targets.run import HandlerRun
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics, NodeGauges
from detent.upkeep.archive import open_archive
from detent.upkeep.expectations import ExpectationWatch
from detent.upkeep.notices import NoticeSender, address_of
from detent.upkeep.pings import Ping
from detent.upkeep.retention import Keeper
from detent.upkeep.tally import Tally
from detent.version import __version__
from detent.worker.execute import Runner
from detent.worker.handler_backend import HandlerBackend
from detent.worker.pull import sweep
from detent.worker.queues.book import QueueBook
from detent.worker.queues.hints import Hints
from detent.worker.worker import Worker

log = logger("node")

UPKEEP_EVERY = 5.0
HISTORY_EVERY_PASSES = 360
HISTORY_DAYS_AHEAD = 7
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
    ) -> None:
        """`address` is where the API of this process listens; what comes after it outlives the session; `draining`: the
        session before was asked to hand over, and nobody has taken that back."""
        self._store = store
        self._jobs = JobOperations(store)
        self._settings = settings
        self._roles = roles
        self._runners = runners
        kinds = ("python", "process") if settings.app is not None else ("python",)
        self._has = [f"{kind}:{name}" for kind in kinds for name in functions]
        self._has += ["shell"] if settings.allow_shell else []
        self.clock = DatabaseClock()
        self.worker: Worker | None = None
        self.closed = False
        self.schedules = "scheduler" in roles
        self.draining = draining
        self._address = address
        self._metrics = metrics or Metrics()
        self._guard = guard or AdmissionCheck(store, settings.clock_step_limit_seconds)
        self._messenger = messenger or Messenger(AddressPolicy())
        self.capacity = capacity or Capacity()
        self._firing_loops: list[Loop] = []
        self._beside: list[Loop] = []
        self._upkeep_passes = 0

    async def open(self) -> None:
        """Join, and start everything once the first heartbeat has come back."""
        admission = await self._guard.admit()
        if self.schedules:
            await self._make_history_days()
        info = NodeInfo(
            new_node_number(), socket.gethostname(), os.getpid(), self._roles, __version__, tzdata_version(),
            self._address, self.draining,
        )  # fmt: skip
        self.membership = Membership(
            info, self._settings.lease_ttl_seconds, self.clock, admission.incarnation, admission.server.timeline
        )
        self.coordinator = self._choose_coordinator(Candidate(info.node, admission.cluster, self.membership.ttl))
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
        except BaseException:  # its thread would keep a node alive that nobody is
            await self._heartbeat.stop()
            raise
        self._start_parts()
        await self.hints.announce_share()
        log.info("joined", node=node_name(info.node), roles=list(self._roles))

    async def _make_history_days(self) -> None:
        """Before the first fire: after a long outage the days since have no partition, and their ticks no home. Where a
        lock is in the way (an ANALYZE of history is enough), whoever needs a day makes it, and upkeep tries again."""
        try:
            await self._store.upkeep.make_history_days(HISTORY_DAYS_AHEAD)
        except LockTimeout as error:
            log.warning("the days of history ahead are not made yet", error=str(error))

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
        """A service that is away now is treated as one that goes away later: the node starts without it."""
        try:
            await self.coordinator.open()
        except Unavailable as error:
            log.warning("coordinator not reached", coordinator=self.coordinator.name, error=str(error))

    def _start_parts(self) -> None:
        self.book = QueueBook(self._store)
        self.life = Life(self._jobs, schedules=self.schedules)
        address = address_of(self._settings)
        self._sender = NoticeSender(self._store, self.membership, self._messenger, address, self._metrics)
        self.watch = ExpectationWatch(
            self._store, self.membership, lambda: self.leadership.terms, self._metrics, self._sender.loop.wake
        )
        if "worker" in self._roles:
            self.worker = Worker(
                self._store, self.membership, self.clock, self._runners, book=self.book,
                queues=self._settings.queues, has=self._has, concurrency=self._settings.concurrency,
                metrics=self._metrics, given_back=lambda: self.hints.announce_runs(),
                made_room=lambda: self.firing.pump(), died=self.life.died, capacity=self.capacity,
            )  # fmt: skip
            self.capacity.notify = self.worker.loop.wake
            self.worker.rest(self.draining)
        self.scheduler = Scheduler(self._store, self.membership, self.clock, self._settings.window_seconds)
        self.hints = Hints(
            self._store, self._jobs_changed, self._runs_ready, self._runs_cancelled, self._share_changed,
            hold_changed=self._hold_changed, queues_changed=self._queues_changed,
        )  # fmt: skip
        self.scheduler.firing = self.firing = Firing(
            self._store, self.membership, self.clock, self.worker,
            moved=self.scheduler.moved, reload=self.scheduler.reload,
            announce=self._runs_fired, unknown=self._runs_cancelled, metrics=self._metrics,
            planner=Planner(_grace(self._settings.misfire_grace_seconds)), book=self.book,
        )  # fmt: skip
        self.scheduler.releaser = self.firing.catch_ups = Releaser(
            self._store, self.membership, self.clock, self.firing, self._metrics,
            rate=self._settings.catchup_rate, announce=self._runs_fired,
        )  # fmt: skip
        self.leadership = Leadership(
            self._store, self.membership, self.coordinator, self._rescuer(),
            led=self.scheduler if self.schedules else None, notify_others=self.hints.announce_share,
            drain=self._drain, others_work=self._others_work, metrics=self._metrics,
        )  # fmt: skip
        self._leading = Loop("leadership", self.leadership.tick)
        self._beside = [Loop("hints", self.hints.tick), Loop("queues", self.book.tick), self.life.loop]
        if self.schedules:
            self._firing_loops = [self.scheduler.loop, self.scheduler.releaser.loop]
            self._beside.append(self.firing.aside.loop)
            tally = Tally(self._store, self.membership.node, lambda: self._metrics.fired + self._metrics.starts)
            self._beside += [Loop("upkeep", self._upkeep), Loop("retention", self._keeper().tick)]
            self._beside += [Loop("tally", tally.tick), *(watcher.loop for watcher in self._watchers())]
        working = [self.worker.loop, self.worker.reconciling] if self.worker is not None else []
        for loop in (self._leading, *self._beside, *self._firing_loops, *working):
            loop.start()

    # --- what the parts tell each other ---

    def _jobs_changed(self, jobs: set[int] | None) -> None:
        self.scheduler.jobs_changed(jobs)
        self.watch.needed = True
        self._queues_changed()

    def _queues_changed(self) -> None:
        self.book.changed()
        self._runs_ready()

    def _runs_ready(self) -> None:
        if self.worker is not None:
            self.worker.loop.wake()

    def _runs_fired(self) -> None:
        """Runs wait in their queues: our own worker looks at once, other nodes are told."""
        self._runs_ready()
        self.hints.announce_runs()

    def _runs_cancelled(self) -> None:
        if self.worker is not None:
            self.worker.reconciling.wake()

    def _hold_changed(self) -> None:
        """Ticks were held, or let go: a heartbeat tells, and what is due is looked for anew."""
        self._heartbeat.soon()
        self.scheduler.jobs_changed(None)

    def _others_work(self, others: bool) -> None:
        self.firing.waiting.others_work = others
        if self.worker is not None:
            self.worker.place.others_work = others

    def _rescuer(self) -> Rescue:
        pause_failing = self._jobs.automatic.pause_failing
        return Rescue(self._store, self._metrics, self._runs_fired, pause_failing, self.membership.node)

    def _share_changed(self) -> None:
        self._leading.wake()

    def _drain(self, draining: bool) -> None:
        """Somebody asked this node to hand over, or took that back. Leadership gives up its share by itself."""
        if draining != self.draining:
            self.draining = draining
            log.info("draining" if draining else "taking part again", node=node_name(self.membership.node))
            if self.worker is not None:
                self.worker.rest(draining)

    async def _upkeep(self) -> float:
        parts: list[Callable[[], Awaitable[object]]] = [self._do_what_is_due]
        if self._upkeep_passes % HISTORY_EVERY_PASSES == 0:
            parts += [
                partial(self._store.upkeep.make_history_days, HISTORY_DAYS_AHEAD),
                lambda: self._store.cluster.forget_elections(self.clock.now()),
                lambda: self._store.cluster.forget_nodes(self.clock.now()),
            ]
        await do_each(parts)
        self._upkeep_passes += 1  # not before: what failed is done by the next pass, not in half an hour
        return UPKEEP_EVERY

    async def _do_what_is_due(self) -> None:
        due = await self._store.upkeep.due(self.clock.now(), timedelta(seconds=UPKEEP_EVERY))
        if due.pauses:
            self.life.loop.wake()
        if due.catchups and self.scheduler.releaser is not None:
            self.scheduler.releaser.look()
        self.watch.needed = due.expectations
        parts: list[Callable[[], Awaitable[object]]] = []
        if due.leases or due.waiting:
            parts.append(lambda: sweep(self._store, self._jobs, self._metrics))
        if due.ended:
            parts += [self._end_deleted, self._complete_jobs]
        if due.requests:
            parts.append(self._forget_requests)
        if due.changes:
            parts.append(self._store.upkeep.forget_changes)
        await do_each(parts)

    async def _end_deleted(self) -> None:
        while await self._store.upkeep.end_deleted():
            pass

    async def _complete_jobs(self) -> None:
        while await self._store.upkeep.complete_jobs():
            pass

    async def _forget_requests(self) -> None:
        while await self._store.requests.forget(self.clock.now()) >= FORGOTTEN_AT_ONCE:
            pass

    def _watchers(self) -> Iterator[ExpectationWatch | NoticeSender | Ping]:
        chosen = self._settings
        yield self._sender
        yield self.watch
        if chosen.heartbeat_url is not None:
            yield Ping(self._store, self.membership, self._messenger, chosen.heartbeat_url, chosen.heartbeat_seconds)

    def _keeper(self) -> Keeper:
        archive = open_archive(self._settings.archive_url)
        days, revisions = self._settings.history_days, self._settings.revisions_kept
        return Keeper(self._store, self.membership.node, days, archive, self.clock.now, revisions)

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
            fires_failing=self.firing.failing_seconds,
            handlers_short=len(self.capacity.shortages()),
            **({} if self.worker is None else self.worker.load()),
        )

    # --- what handlers may ask ---

    def make_run(self, call: Call, effects: EffectPool) -> HandlerRun:
        assert self.worker is not None
        return HandlerRun(call, HandlerBackend(self.worker, self.membership.node, effects))

    def holding(self, call: Call) -> Holding | None:
        held = self.worker.holding(call.run_id, call.token) if self.worker is not None else None
        return None if held is None else Holding(self.membership.node, held.claim, held.started)

    # --- the end ---

    async def close(self, drain_seconds: float) -> None:
        """In good order: finish fires, hand partitions over, give back, let runs finish, leave."""
        self.closed = True
        await _abort(self._beside)  # they may be at something long, which others go on with from where it is
        await self._leading.stop()
        for loop in self._firing_loops:
            await loop.stop()
        await self.firing.drain()
        async with asyncio.TaskGroup() as steps:
            steps.create_task(self._hand_over(monotonic() + drain_seconds + self.membership.ttl))
            if self.worker is not None:
                steps.create_task(self._in_good_order(self.worker.drain(drain_seconds)))
        await self._heartbeat.stop()  # which would take the node's own leaving for an eviction by others
        await self._in_good_order(self._leave())
        await self.hints.close()

    async def _in_good_order(self, step: Awaitable[object]) -> bool:
        """A step that fails does not keep the next ones from being done; what is left undone, others put right."""
        try:
            await step
        except DetentError as error:
            log.warning("not left in good order yet: what remains is rescued by others", error=str(error))
            return False
        return True

    async def _hand_over(self, until: float) -> None:
        """Others take what is released at once, because they do not count on us any more; our runs may go on. While we
        hold it and are alive nobody can take it, so it is tried until it is done."""
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
        await self._store.nodes.forget(node)

    async def abandon(self) -> None:
        """The membership is lost: stop at once, begin nothing, hand nothing over."""
        self.closed = True
        await self._heartbeat.stop()
        await _abort([*self._beside, self._leading, *self._firing_loops])
        await self.firing.abandon()
        if self.worker is not None:
            await self.worker.abort()
        # Only once nothing that users wrote runs any more: a service may take its time, and who leaves is replaced.
        await asyncio.gather(self.coordinator.close(), self._step_down())
        await self.hints.close()

    async def _step_down(self) -> None:
        """A last heartbeat may have come through that nobody counts on: others need not wait for its end."""
        with contextlib.suppress(DetentError, TimeoutError):
            async with asyncio.timeout(STEP_DOWN_SECONDS):
                await self._store.nodes.leave(self.membership.node, lost=True)


async def _abort(loops: Iterable[Loop]) -> None:
    await asyncio.gather(*(loop.abort() for loop in loops))


def _grace(seconds: int | None) -> int:
    return AUTOMATIC if seconds is None else seconds
