"""Is this the database that it was? Asked before every join.

A database can be copied: dumped and restored beside the original, its files recovered somewhere else, its server
cloned. Two clusters would then do the same work, and the second one thinks that it is the first. So the database keeps
what it was when somebody last made sure of it (see `store/original.py`), and a node compares:

    all as it was                          go on
    no job in it yet                       go on: there is nothing that could be done twice
    a new timeline, nodes heard of lately  a fail-over: raise the incarnation and go on
    a new timeline after a long silence    held: a backup that was recovered looks like this
    anything else                          held: a copy

A node that is held does not join, so it can neither fire nor claim. It looks again every few seconds, until somebody
says that this is now the original (`detent db adopt`).
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from enum import Enum, auto
from typing import NamedTuple
from uuid import UUID

from detent.cluster.steady import ClockWatch
from detent.errors import Unavailable
from detent.store import Store, original
from detent.store.connection import Connection
from detent.store.original import DatabaseIdentity
from detent.store.servers import DatabaseServer, server_of
from detent.telemetry.log import logger

log = logger("guard")

FAIL_OVER_WITHIN = timedelta(minutes=10)


class Verdict(Enum):
    ORIGINAL = auto()
    UNUSED = auto()
    FAILED_OVER = auto()
    HELD = auto()


class Held(Unavailable):
    """This database may be a copy: nothing fires from it until somebody has confirmed it."""


class Admission(NamedTuple):
    """As what a node may join."""

    cluster: UUID
    incarnation: int
    server: DatabaseServer


def judge(standing: DatabaseIdentity) -> Verdict:
    stored, present = standing.stored, standing.present
    if present == stored:
        return Verdict.ORIGINAL
    if not standing.used:
        return Verdict.UNUSED
    promoted = present.identity == stored.identity and present.timeline > stored.timeline
    lately = standing.silence is not None and abs(standing.silence) < FAIL_OVER_WITHIN
    return Verdict.FAILED_OVER if promoted and lately else Verdict.HELD


def why_held(standing: DatabaseIdentity) -> str:
    """What was found, in half a sentence."""
    stored, present = standing.stored, standing.present
    if present.system != stored.system:
        return "it was made on another server (its data was restored or upgraded here)"
    if present.identity != stored.identity:
        return "it was made as another database of this server (its data was restored here)"
    if present.timeline < stored.timeline:
        return f"its server is on timeline {present.timeline}, and it has been on {stored.timeline}"
    silence = "no node was ever heard of" if standing.silence is None else f"no node was heard of for {_long(standing)}"
    return f"its server is on the new timeline {present.timeline}, and {silence}"


class Guard:
    """Lives as long as the process, and remembers what must outlive a membership: the largest incarnation it has seen,
    and how the database's clock went."""

    def __init__(self, store: Store, clock_step_limit: float) -> None:
        self._store = store
        self._seen = 0
        self.watch = ClockWatch(clock_step_limit)

    async def admit(self) -> Admission:
        """As what a node may join now; raises Held."""
        admission = await self._examine()
        self._store.database.servers.join(admission.server)
        if self.watch.new and self.watch.limit:
            await self._let_others_speak()
        return admission

    async def look(self) -> None:
        """Settle what can be settled without joining; raises Held."""
        await self._examine()

    async def _examine(self) -> Admission:
        async with self._store.database.unpooled() as connection:
            server = await server_of(connection)
            standing = await original.read(connection)
            match judge(standing):
                case Verdict.FAILED_OVER:
                    standing = await self._follow(connection, standing)
                case Verdict.UNUSED:
                    await original.adopt(connection, self._seen)
                    standing = await original.read(connection)
                case Verdict.HELD:
                    raise Held(held_sentence(standing))
        self._seen = max(self._seen, standing.incarnation)
        return Admission(standing.id, standing.incarnation, server)

    async def _let_others_speak(self) -> None:
        """Nodes that have not been heard of for longer than any step that is taken as it is may be dead. Or they are
        alive, the clock has just stepped, and they will say so with their next heartbeat; a process that has seen no
        other time cannot know, so it waits for that before it takes their place."""
        seconds = await self._store.nodes.silent(self.watch.limit)
        if seconds is not None:
            log.info("nodes have been silent for long: waiting for a heartbeat before taking over", seconds=seconds)
            await asyncio.sleep(seconds)

    async def _follow(self, connection: Connection, standing: DatabaseIdentity) -> DatabaseIdentity:
        raised = await original.follow(connection, standing.stored.timeline, self._seen)
        if raised is not None:
            log.warning("the database failed over", timeline=standing.present.timeline, incarnation=raised)
        after = await original.read(connection)
        if judge(after) is not Verdict.ORIGINAL:
            raise Unavailable("The database has just failed over once more: this node looks again.")
        return after


def held_sentence(standing: DatabaseIdentity) -> str:
    return (
        f"This database may be a copy: {why_held(standing)}. Nothing fires or runs from it, so that nothing is done "
        "twice; if the original is gone, or this one is to go its own way, run `detent db adopt`."
    )


def _long(standing: DatabaseIdentity) -> str:
    seconds = abs(standing.silence.total_seconds()) if standing.silence is not None else 0.0
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.0f} hours"
