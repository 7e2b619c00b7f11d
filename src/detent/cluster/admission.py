"""Detects copies of a database before a node joins its cluster.

A database can be copied: dumped and restored next to the original, recovered from files elsewhere, cloned with its
server. Two clusters would then do the same work twice. So the database stores its identity: at first use, after a
detected fail-over, or when an operator confirms it (see `store/original.py`). A node compares the stored identity with
what it finds:

    same identity                          join
    no job in it yet                       join: nothing could be done twice
    a new timeline, recent heartbeats      a fail-over: join, with the next incarnation
    a new timeline after a long silence    held: a recovered backup looks like this
    anything else                          held: a copy

The incarnation is a number that grows with each fail-over and each adoption. It is part of every fencing token, so
tokens issued afterwards are larger than all before. A node that is held does not join, so it can neither fire nor
claim. It checks again every few seconds, until an operator declares this database the original (`detent db adopt`).
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from enum import Enum, auto
from typing import NamedTuple
from uuid import UUID

from detent.cluster.clock_watch import ClockWatch
from detent.domain.counts import plural
from detent.errors import Unavailable
from detent.store import Store, original
from detent.store.connection import Connection
from detent.store.original import DatabaseIdentity
from detent.store.servers import DatabaseServer, server_of
from detent.telemetry.log import logger

log = logger("guard")

FAIL_OVER_WITHIN = timedelta(minutes=10)


class DatabaseOrigin(Enum):
    ORIGINAL = auto()
    UNUSED = auto()
    FAILED_OVER = auto()
    HELD = auto()


class SuspectedCopy(Unavailable):
    """This database may be a copy: nothing fires from it until an operator has confirmed it."""


class Admission(NamedTuple):
    """The identity under which a node may join."""

    cluster: UUID
    incarnation: int
    server: DatabaseServer


def classify(identity: DatabaseIdentity) -> DatabaseOrigin:
    stored, present = identity.stored, identity.present
    if present == stored:
        return DatabaseOrigin.ORIGINAL
    if not identity.used:
        return DatabaseOrigin.UNUSED
    promoted = present.identity == stored.identity and present.timeline > stored.timeline
    lately = identity.silence is not None and abs(identity.silence) < FAIL_OVER_WITHIN
    return DatabaseOrigin.FAILED_OVER if promoted and lately else DatabaseOrigin.HELD


def why_held(identity: DatabaseIdentity) -> str:
    """What differs, as half a sentence."""
    stored, present = identity.stored, identity.present
    if present.system != stored.system:
        return "it was created on another server (its data was restored or upgraded here)"
    if present.identity != stored.identity:
        return "its data was restored on this server (the database or its tables have new ids)"
    if present.timeline < stored.timeline:
        return f"its server is on timeline {present.timeline}, although it was already on {stored.timeline}"
    if identity.silence is None:
        silence = "no node has ever sent a heartbeat"
    else:
        silence = f"no node has sent a heartbeat for {_long(identity)}"
    return f"its server is on the new timeline {present.timeline}, and {silence}"


class AdmissionCheck:
    """Lives as long as the process. A node that loses its membership and joins again must still know the largest
    incarnation that it has seen, and the watch over the database's clock must go on: both are kept here."""

    def __init__(self, store: Store, clock_step_limit: float) -> None:
        self._store = store
        self._seen = 0
        self.watch = ClockWatch(clock_step_limit)

    async def admit(self) -> Admission:
        """The identity under which a node may join now; raises SuspectedCopy."""
        admission = await self._examine()
        self._store.database.servers.join(admission.server)
        if self.watch.new and self.watch.limit:
            await self._wait_for_heartbeats()
        return admission

    async def examine(self) -> None:
        """As `admit`, without joining; raises SuspectedCopy."""
        await self._examine()

    async def _examine(self) -> Admission:
        async with self._store.database.unpooled() as connection:
            server = await server_of(connection)
            identity = await original.read(connection)
            match classify(identity):
                case DatabaseOrigin.FAILED_OVER:
                    identity = await self._follow(connection, identity)
                case DatabaseOrigin.UNUSED:
                    await original.adopt(connection, self._seen)
                    identity = await original.read(connection)
                case DatabaseOrigin.HELD:
                    raise SuspectedCopy(held_sentence(identity))
        self._seen = max(self._seen, identity.incarnation)
        return Admission(identity.id, identity.incarnation, server)

    async def _wait_for_heartbeats(self) -> None:
        """Nodes that have been silent for longer than the clock step limit may be dead. Or they are alive, the clock
        has just stepped, and their next heartbeat shows it. A process that has just started cannot tell, so it waits
        for one heartbeat before it takes over their partitions."""
        seconds = await self._store.nodes.silent(self.watch.limit)
        if seconds is not None:
            log.info("some nodes have sent no heartbeat for long: waiting for one before taking over", seconds=seconds)
            await asyncio.sleep(seconds)

    async def _follow(self, connection: Connection, identity: DatabaseIdentity) -> DatabaseIdentity:
        raised = await original.follow(connection, identity.stored.timeline, self._seen)
        if raised is not None:
            log.warning("the database failed over", timeline=identity.present.timeline, incarnation=raised)
        after = await original.read(connection)
        if classify(after) is not DatabaseOrigin.ORIGINAL:
            raise Unavailable("The database has just failed over again: this node will check again.")
        return after


def held_sentence(identity: DatabaseIdentity) -> str:
    return (
        f"This database may be a copy: {why_held(identity)}. Nothing fires or runs from it, so that nothing is done "
        "twice. If the original is gone, or this database is to run on its own, run `detent db adopt`."
    )


def _long(identity: DatabaseIdentity) -> str:
    seconds = abs(identity.silence.total_seconds()) if identity.silence is not None else 0.0
    return plural(round(seconds / 60), "minute") if seconds < 7200 else plural(round(seconds / 3600), "hour")
