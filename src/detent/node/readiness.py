"""Whether this process can do its work, check by check: what /readyz answers.

The question needs no key. So the database is asked at most once a second, however often somebody asks us, and nothing
is told that is not for everybody: no address, no text of an error or of an operator.
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
ASKED_AGAIN_AFTER = 1.0
FEW_DAYS = 1
FAILING_SECONDS = 5.0
# As long as the fire itself waits for a worker that gets on with a herd, and a little more.
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
        self._asked_next = 0.0
        self._asking = asyncio.Lock()
        self._pulse: Pulse | None = None
        self._trouble = ""

    async def __call__(self) -> dict[str, Check]:
        await self._ask()
        session = self._session()
        checks = dict(self._of_database())
        if self._roles != ("api",):
            checks |= dict(_of_membership(session))
        checks[DRAINING] = self._draining(session)
        return checks

    async def _ask(self) -> None:
        async with self._asking:
            if monotonic() < self._asked_next:
                return
            self._pulse = None
            store = self._store()
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    self._pulse = await store.upkeep.pulse() if store is not None else None
                self._trouble = "" if store is not None else "It is not open yet."
            except TimeoutError:
                self._trouble = f"It did not answer within {ANSWER_SECONDS:g} s."
            except DetentError as error:
                self._trouble = "It does not answer: the log has the details."
                log.warning("the database does not answer", error=str(error))
            self._asked_next = monotonic() + ASKED_AGAIN_AFTER

    def _of_database(self) -> Iterator[tuple[str, Check]]:
        pulse = self._pulse
        if pulse is None:
            yield "database", Check(False, self._trouble)
            return
        yield "database", Check(True, f"It answers ({pulse.took * 1000:.1f} ms).")
        yield "schema", _schema(pulse)
        yield "history", _history(pulse)
        yield "original", _original(pulse)
        yield "ticks", _ticks(pulse)
        yield "jobs", _jobs(pulse)

    def _draining(self, session: Session | None) -> Check:
        if self._stopping():
            return Check(False, "The process is ending: what it runs is finished first.")
        if session is not None and session.draining:
            return Check(False, "It was asked to hand over: `detent node drain --undo` brings it back.")
        return Check(True, "It takes part.")


def _schema(pulse: Pulse) -> Check:
    if pulse.migration < pulse.known:
        return Check(False, f"Migration {pulse.migration} of {pulse.known} is applied: run `detent db migrate`.")
    if pulse.migration > pulse.known:
        return Check(True, f"It is newer ({pulse.migration}) than this version ({pulse.known}), which may go on.")
    return Check(True, f"All {pulse.known} migrations are applied.")


def _history(pulse: Pulse) -> Check:
    if pulse.history_days < 0:
        return Check(False, "There is no partition for today: no run can be recorded. A scheduler makes them.")
    told = f"There are partitions for today and {pulse.history_days} days more."
    return Check(pulse.history_days >= FEW_DAYS, told, needed=False)


def _original(pulse: Pulse) -> Check:
    if pulse.original:
        return Check(True, "The database is the one that it was.", needed=False)
    told = "The database failed over just now, or is a copy that somebody has to adopt: `detent doctor` says which."
    return Check(False, told, needed=False)


def _ticks(pulse: Pulse) -> Check:
    if pulse.held_at is None:
        return Check(True, "They are not held.", needed=False)
    return Check(False, f"Held since {pulse.held_at:%Y-%m-%d %H:%M:%S} UTC: `detent node list` says why.", needed=False)


def _jobs(pulse: Pulse) -> Check:
    if not pulse.set_aside:
        return Check(True, "None is set aside.", needed=False)
    return Check(False, f"{set_aside(pulse.set_aside)} `detent doctor` names them.", needed=False)


def _of_membership(session: Session | None) -> Iterator[tuple[str, Check]]:
    if session is None:
        yield "member", Check(False, "It has not joined the cluster, or lost its place and joins again.")
        return
    membership, standing = session.membership, session.standing()
    name = node_name(membership.node)
    told = f"As node {name}." if membership.trusted else f"Node {name} has no lease: no heartbeat came back in time."
    yield "member", Check(membership.trusted, told)
    told = f"It came back {standing.heartbeat_age:.1f} s ago; the lease ends in {standing.lease_remaining:.1f} s."
    yield "heartbeat", Check(standing.lease_remaining > 0, told)
    offset = standing.clock_offset * 1000
    told = f"This machine's is {offset:+.0f} ms off the database's, which is the one that counts."
    yield "clock", Check(abs(offset) <= CLOCK_OFFSET_MS, told, needed=False)
    if session.worker is not None:
        yield "handlers", _handlers(session.capacity.shortages())
    if session.schedules:
        led = standing.partitions_led
        told = f"It leads {led} of {PARTITIONS}." if led else "It leads none: others do, or it has just joined."
        yield "partitions", Check(True, told, needed=False)
        yield "coordinator", _coordinator(session)
        yield "fires", _fires(standing)


def _fires(standing: NodeGauges) -> Check:
    if standing.fires_failing >= FAILING_SECONDS:
        return Check(False, f"No tick could be fired for {standing.fires_failing:.0f} s: the log says why.")
    if not standing.ticks_unsent:
        return Check(True, "No due tick waits to be fired.", needed=False)
    waits = "tick has" if standing.ticks_unsent == 1 else "ticks have"
    found = f"{standing.ticks_unsent} due {waits} not been fired, the oldest for {standing.oldest_unsent:.1f} s."
    return Check(standing.oldest_unsent < UNSENT_SECONDS, found, needed=False)


def _handlers(shortages: list[str]) -> Check:
    if not shortages:
        return Check(True, "They are called.", needed=False)
    return Check(False, f"{' '.join(shortages)} Their runs are left to other workers meanwhile.", needed=False)


def _coordinator(session: Session) -> Check:
    name = session.coordinator.name
    if session.leadership.coordinator_missing:
        return Check(False, f"{name} does not answer: this node goes on with what it leads.", needed=False)
    return Check(True, f"{name} answers.", needed=False)
