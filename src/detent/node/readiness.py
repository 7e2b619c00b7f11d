"""Whether this process can do its work, check by check: what /readyz answers.

/readyz needs no key. So the database is queried at most once a second, and the answer holds nothing private: no
address, no error text, no operator's text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from detent.cluster.diagnosis import CLOCK_OFFSET_MS, set_aside
from detent.domain.identity import PARTITIONS, node_name
from detent.errors import DetentError
from detent.node.session import Session
from detent.runtime.clock import monotonic
from detent.store import Store
from detent.store.upkeep import Pulse
from detent.telemetry.health import DRAINING, Check
from detent.telemetry.log import logger
from detent.telemetry.metrics import NodeGauges

log = logger("readiness")

ANSWER_SECONDS = 1.0
REFRESH_SECONDS = 1.0
FEW_DAYS = 1
FAILING_SECONDS = 5.0
# A little longer than a fire waits for a worker that is busy with many ticks.
UNSENT_SECONDS = 45.0


class Readiness:
    def __init__(
        self,
        roles: tuple[str, ...],
        store: Callable[[], Store | None],
        session: Callable[[], Session | None],
        stopping: Callable[[], bool],
    ) -> None:
        self._roles = roles
        self._store = store
        self._session = session
        self._stopping = stopping
        self._refresh_at = 0.0
        self._refreshing = asyncio.Lock()
        self._pulse: Pulse | None = None
        self._failure = ""

    async def __call__(self) -> dict[str, Check]:
        await self._refresh()
        session = self._session()
        checks = dict(self._of_database())
        if {"scheduler", "worker"}.intersection(self._roles):
            checks |= dict(_of_membership(session))
        checks[DRAINING] = self._draining(session)
        return checks

    async def _refresh(self) -> None:
        async with self._refreshing:
            if monotonic() < self._refresh_at:
                return
            self._pulse = None
            store = self._store()
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    self._pulse = await store.upkeep.pulse() if store is not None else None
                self._failure = "" if store is not None else "The connection is not open yet."
            except TimeoutError:
                self._failure = f"The database did not answer within {ANSWER_SECONDS:g} s."
            except DetentError as error:
                self._failure = "The database does not answer: see the log of this process."
                log.warning("the database does not answer", error=str(error))
            self._refresh_at = monotonic() + REFRESH_SECONDS

    def _of_database(self) -> Iterator[tuple[str, Check]]:
        pulse = self._pulse
        if pulse is None:
            yield "database", Check(False, self._failure)
            return
        yield "database", Check(True, f"The database answers ({pulse.took * 1000:.1f} ms).")
        yield "schema", _schema(pulse)
        yield "history", _history(pulse)
        yield "original", _original(pulse)
        yield "ticks", _ticks(pulse)
        yield "jobs", _jobs(pulse)

    def _draining(self, session: Session | None) -> Check:
        if self._stopping():
            return Check(False, "The process is stopping: it finishes its runs first.")
        if session is not None and session.draining:
            return Check(False, "The node is draining: `detent node drain --undo` ends that.")
        return Check(True, "The node is not draining.")


def _schema(pulse: Pulse) -> Check:
    if pulse.migration < pulse.known:
        return Check(False, f"Migration {pulse.migration} of {pulse.known} is applied: run `detent db migrate`.")
    if pulse.migration > pulse.known:
        return Check(True, f"The schema ({pulse.migration}) is newer than this version ({pulse.known}), which works.")
    return Check(True, f"All {pulse.known} migrations are applied.")


def _history(pulse: Pulse) -> Check:
    if pulse.history_days < 0:
        return Check(False, "There is no partition for today, so no run can be recorded: start a scheduler.")
    found = f"There are partitions for today and the next {pulse.history_days} days."
    return Check(pulse.history_days >= FEW_DAYS, found, needed=False)


def _original(pulse: Pulse) -> Check:
    if pulse.original:
        return Check(True, "The database is the original.", needed=False)
    found = "The database failed over just now, or is a copy that an operator has to adopt: run `detent doctor`."
    return Check(False, found, needed=False)


def _ticks(pulse: Pulse) -> Check:
    if pulse.held_at is None:
        return Check(True, "Ticks fire.", needed=False)
    return Check(
        False, f"Ticks are held since {pulse.held_at:%Y-%m-%d %H:%M:%S} UTC: `detent node list` says why.", needed=False
    )


def _jobs(pulse: Pulse) -> Check:
    if not pulse.set_aside:
        return Check(True, "No job is set aside.", needed=False)
    return Check(False, f"{set_aside(pulse.set_aside)} `detent doctor` names them.", needed=False)


def _of_membership(session: Session | None) -> Iterator[tuple[str, Check]]:
    if session is None:
        yield "member", Check(False, "The process has not joined the cluster, or lost its membership and joins again.")
        return
    membership, gauges = session.membership, session.gauges()
    name = node_name(membership.node)
    joined = f"This is node {name}." if membership.trusted else f"Node {name} has no lease: no heartbeat was answered."
    yield "member", Check(membership.trusted, joined)
    beat = f"Answered {gauges.heartbeat_age:.1f} s ago; the lease ends in {gauges.lease_remaining:.1f} s."
    yield "heartbeat", Check(gauges.lease_remaining > 0, beat)
    offset = gauges.clock_offset * 1000
    clock = f"The clock of this machine is {offset:+.0f} ms off the database's clock, which decides when ticks fire."
    yield "clock", Check(abs(offset) <= CLOCK_OFFSET_MS, clock, needed=False)
    if session.worker is not None:
        yield "handlers", _handlers(session.capacity.shortages())
    if session.schedules:
        led = gauges.partitions_led
        share = f"It leads {led} of {PARTITIONS}." if led else "It leads none: other nodes do, or it has just joined."
        yield "partitions", Check(True, share, needed=False)
        yield "coordinator", _coordinator(session)
        yield "fires", _fires(gauges)


def _fires(gauges: NodeGauges) -> Check:
    if gauges.fires_failing >= FAILING_SECONDS:
        return Check(False, f"No tick could be fired for {gauges.fires_failing:.0f} s: the log says why.")
    if not gauges.ticks_unsent:
        return Check(True, "No due tick waits to be fired.", needed=False)
    waits = "tick has" if gauges.ticks_unsent == 1 else "ticks have"
    found = f"{gauges.ticks_unsent} due {waits} not been fired, the oldest for {gauges.oldest_unsent:.1f} s."
    return Check(gauges.oldest_unsent < UNSENT_SECONDS, found, needed=False)


def _handlers(shortages: list[str]) -> Check:
    if not shortages:
        return Check(True, "Handlers can be called.", needed=False)
    return Check(False, f"{' '.join(shortages)} Until that ends, their runs are left to other workers.", needed=False)


def _coordinator(session: Session) -> Check:
    name = session.coordinator.name
    if session.leadership.coordinator_missing:
        return Check(False, f"{name} does not answer: this node keeps the partitions that it leads.", needed=False)
    return Check(True, f"{name} answers.", needed=False)
