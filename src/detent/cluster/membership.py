"""A node's membership: one row, one heartbeat, one deadline.

A node is known to the cluster by one row in `nodes`, which it must renew. That row is the fence: every fire and every
claim locks it FOR KEY SHARE and requires that it is not evicted. Evicting a node is an update of a key column, so it
waits for the node's statements under way and refuses all that come later. After that, whatever the evicted node still
believes, it can write nothing; its partitions and its runs can be handed to others.

The node itself may trust its membership only until a deadline on its own monotonic clock, counted from *before* the
last good heartbeat was sent. "One row updated" is not enough: a heartbeat that waited for a lock can come back with an
end that has already passed, so the statement returns the time that remains.

The heartbeat has its own thread, its own event loop and its own connection, because nothing a user wrote, and no long
computation of ours, may delay it. When the heartbeat finds the node evicted, or the deadline passes without a good
heartbeat, the membership has ended: the process may join again, under a new identity.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import threading
from collections.abc import Callable
from datetime import timedelta

from detent.cluster.clock_watch import ClockWatch
from detent.cluster.diagnosis import CLOCK_OFFSET_MS
from detent.domain.identity import node_name
from detent.runtime import failpoints
from detent.runtime.clock import DatabaseClock, monotonic
from detent.store.heartbeat import HeartbeatConnection, HeartbeatReply
from detent.store.nodes import NodeInfo
from detent.telemetry.log import logger

log = logger("membership")

# Subtracted from the deadline, for the time between checking it and acting on it.
MARGIN = 0.1
BEATS_PER_TTL = 3


def new_node_number() -> int:
    """Random and positive: a sequence may give a number again after a fail-over."""
    return secrets.randbits(62) + 1


class Membership:
    """Each heartbeat sets `held`: no tick fires anywhere, because an operator paused the cluster or the clock
    stepped."""

    def __init__(
        self, info: NodeInfo, ttl: float, clock: DatabaseClock, incarnation: int, timeline: int | None
    ) -> None:
        self.info = info
        self.node = info.node
        self.ttl = ttl
        self.clock = clock
        self.incarnation = incarnation
        self.timeline = timeline
        self.held = False
        self.trusted_until = 0.0
        self.beat_at = 0.0
        self.confirmed = asyncio.Event()
        self.lost = asyncio.Event()
        self.loss_reason = ""

    @property
    def trusted(self) -> bool:
        return not self.lost.is_set() and monotonic() < self.trusted_until - MARGIN

    def lose(self, reason: str) -> None:
        if not self.lost.is_set():
            self.loss_reason = reason
            log.warning("membership lost", node=node_name(self.node), reason=reason)
            self.lost.set()


class Heartbeat:
    """The thread that keeps a membership alive."""

    def __init__(self, membership: Membership, connect: Callable[[], HeartbeatConnection], watch: ClockWatch) -> None:
        """`watch` lives as long as the process."""
        self._membership = membership
        self._connect = connect
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._stopped = threading.Event()
        self._over = False
        self._wake: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="detent-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def soon(self) -> None:
        """Send the next heartbeat now: there may be news."""
        self._wake()

    async def stop(self) -> None:
        self._stopped.set()
        self._wake()
        await asyncio.to_thread(self._thread.join, 5)

    def _run(self) -> None:
        try:
            asyncio.run(self._beat_until_stopped())
        finally:
            if not self._stopped.is_set():
                self._on_main_loop(lambda: self._membership.lose("the heartbeat ended"))

    async def _beat_until_stopped(self) -> None:
        awake = asyncio.Event()
        own_loop = asyncio.get_running_loop()
        self._wake = lambda: own_loop.is_closed() or own_loop.call_soon_threadsafe(awake.set)
        connection = self._connect()
        try:
            while not self._stopped.is_set():
                pause = await self._beat(connection)
                if self._over:  # another beat would keep a membership alive that has ended
                    return
                try:
                    async with asyncio.timeout(pause):
                        await awake.wait()
                except TimeoutError:
                    pass
                awake.clear()
        finally:
            await connection.close()

    async def _beat(self, connection: HeartbeatConnection) -> float:
        membership = self._membership
        sent = monotonic()
        try:
            await failpoints.hit("S1")
            beat = await self._believable(connection)
        except Exception as error:
            log.warning("heartbeat failed", error=str(error))
            self._check_deadline()
            return random.uniform(0.1, 0.3)  # soon, since the lease is running out, but spread over the nodes
        if beat is None:
            self._lose("evicted")
            return membership.ttl
        received = monotonic()
        membership.held = beat.held  # before the new time, which may make many ticks due
        self._watch.observe(beat.at)
        membership.clock.observe(beat.at, received, received - sent)
        membership.beat_at = received
        membership.trusted_until = min(sent + membership.ttl, received + beat.remaining)
        self._on_main_loop(membership.confirmed.set)
        if (beat.timeline, beat.incarnation) != (membership.timeline, membership.incarnation):
            self._lose("the database failed over, or was adopted")
        self._check_deadline()
        self._check_offset(received - sent)
        await failpoints.hit("S2")
        return membership.ttl / BEATS_PER_TTL * random.uniform(0.8, 1.0)

    async def _believable(self, connection: HeartbeatConnection) -> HeartbeatReply | None:
        """A heartbeat whose time can be trusted; None: evicted."""
        while True:
            expectation = self._watch.expectation()
            beat = await connection.beat(self._membership.node, self._membership.clock.offset, expectation)
            if beat is None or expectation.at is None or not (beat.stepped or self._watch.step(beat.at)):
                return beat
            await self._handle_step(connection, beat.at - expectation.at)

    async def _handle_step(self, connection: HeartbeatConnection, step: timedelta) -> None:
        """The clock is far from where it should be: hold all ticks before any node acts on its time."""
        reason = f"the database's clock stepped {'forward' if step > timedelta() else 'back'} by {abs(step)}"
        if await connection.hold_for_clock(self._membership.node, reason):
            log.warning("this machine was suspended: the database's clock continued", for_=str(step))
        else:
            log.error("all ticks are held; check the clock, then run `detent resume --all`", why=reason)
        self._watch.begin_again()

    def _check_offset(self, round_trip: float) -> None:
        """Warn once, and again after the clock was right: ticks follow the database's clock, logs follow this one."""
        offset = self._membership.clock.offset
        if abs(offset) > CLOCK_OFFSET_MS / 1000 + round_trip:
            if not self._watch.offset_logged:
                log.warning("this machine's clock is wrong, or the database's: set up NTP", seconds=round(offset, 3))
            self._watch.offset_logged = True
        else:
            self._watch.offset_logged = False

    def _check_deadline(self) -> None:
        if self._membership.trusted_until and monotonic() >= self._membership.trusted_until - MARGIN:
            self._lose("no heartbeat came through in time")

    def _lose(self, reason: str) -> None:
        self._over = True
        self._on_main_loop(lambda: self._membership.lose(reason))

    def _on_main_loop(self, action: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(action)
