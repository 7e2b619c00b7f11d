"""Nodes and partitions: join, evict, take over, rescue, leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from detent.domain.run import Claim
from detent.domain.serving import Unserved, WaitingPlace
from detent.store import migrate, sql
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row

# A run is dead after this many nodes were lost while it was the only run on them.
CRASH_CAP = 2
RESCUE_BATCH = 1000


class NodeInfo(NamedTuple):
    """What a node reports when it joins; `draining`: it takes no work, because its process was asked to drain. `queues`
    and `capabilities`: what its worker serves, if it has one."""

    node: int
    host: str
    pid: int
    roles: tuple[str, ...]
    version: str
    tzdata: str
    address: str | None = None
    draining: bool = False
    queues: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] | None = None


class Share(NamedTuple):
    """What a node must know about the others to take its share; times in seconds."""

    schedulers: list[int]
    evicted: list[int]
    draining: bool
    held: list[int]
    free: list[int]
    expired: bool
    first_expiry: float | None
    # Whether there are other nodes or programs that only execute runs.
    others_work: bool
    # Whether some of them are programs that pull over the API.
    programs_pull: bool = False


class Rescued(NamedTuple):
    """A run as it was when its owner was lost: it continues with a higher token, or is `dead`."""

    job: int
    lane: int
    dead: bool
    scheduled_at: datetime
    serial: int
    token: int
    attempt: int

    @property
    def claim(self) -> Claim:
        return Claim(self.job, self.lane, self.scheduled_at, self.serial, self.token, 0, self.attempt)


class OpenHostCircuit(NamedTuple):
    """A host that does not answer: since when, when it is tried again, and what the last call failed with. `url`: what
    the job calls, perhaps at another host."""

    url: str | None
    host: str
    port: int
    opened_at: datetime
    next_probe_at: datetime
    error: str


class NodeVersion(NamedTuple):
    """Which version a node runs."""

    node: int
    version: str


class NodeStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def join(self, info: NodeInfo, ttl: timedelta) -> None:
        """Insert the node, unless its code cannot work with the present schema."""
        known = len(migrate.known())
        facts = (info.host, info.pid, list(info.roles), info.version, info.tzdata, known, info.address, info.draining)
        serves = [None if each is None else list(each) for each in (info.queues, info.capabilities)]

        async def join(connection: Connection) -> None:
            await migrate.may_join(connection)
            await connection.fetch(sql.node.JOIN.text, info.node, ttl, *facts, *serves)

        await self._database.transaction(PoolName.WORK, join)

    async def older_than(self, migration: int) -> NodeVersion | None:
        """A live node whose code does not know this migration, if there is one."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.node.FIND_OLDER, migration)
        return NodeVersion(*rows[0].values()) if rows else None

    async def report_circuits(self, node: int, circuits: str | None) -> None:
        """The open circuits of a node as JSON; None: it has none. The times in it are seconds from now on."""
        await self._database.fetch(PoolName.WORK, sql.node.REPORT_CIRCUITS, node, circuits)

    async def circuits(self, job: int) -> list[OpenHostCircuit]:
        """Of the hosts that the tenant of this job calls, on all live nodes."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.node.LIST_CIRCUITS, job)
        return [OpenHostCircuit(*row.values()) for row in rows]

    async def unserved(self, tenant: int, places: Sequence[WaitingPlace]) -> list[Unserved]:
        """Of these places, those that no live worker serves."""
        queues, needs = [place.queue for place in places], [place.needs for place in places]
        rows = await self._database.fetch(PoolName.REQUEST, sql.node.LIST_UNSERVED, tenant, queues, needs)
        return [unserved_of(row) for row in rows]

    async def silent(self, span: timedelta) -> float | None:
        """How many seconds to wait for nodes that were silent for this long and are not evicted."""
        seconds: float | None = (await self._database.fetch(PoolName.WORK, sql.node.FIND_SILENT, span))[0]["seconds"]
        return seconds

    async def evict_expired(self) -> list[int]:
        return [row["node"] for row in await self._database.fetch(PoolName.FAILOVER, sql.node.EVICT)]

    async def share(self, node: int) -> Share:
        row = (await self._database.fetch(PoolName.FAILOVER, sql.partition.READ_SHARE, node))[0]
        first = row["first_expiry"]
        return Share(
            row["schedulers"], row["evicted"], row["draining"], row["held"], row["free"], row["expired"],
            None if first is None else first.total_seconds(),
            row["others_work"] or row["programs_pull"], row["programs_pull"],
        )  # fmt: skip

    async def take(self, node: int, incarnation: int, nominations: Mapping[int, int | None]) -> dict[int, int]:
        """Take partitions, each with the number of its nomination; without one, only if no live node holds it. Returns
        those taken, with their new terms."""
        partitions, numbers = list(nominations.keys()), list(nominations.values())
        rows = await self._database.fetch(PoolName.FAILOVER, sql.partition.TAKE, node, incarnation, partitions, numbers)
        return {row["partition"]: row["term"] for row in rows}

    async def release(self, node: int, partitions: Sequence[int] | None = None) -> list[int]:
        """Release these partitions, or all that the node holds."""
        rows = await self._database.fetch(
            PoolName.FAILOVER, sql.partition.RELEASE, node, None if partitions is None else list(partitions)
        )
        return [row["partition"] for row in rows]

    async def rescue(self, node: int) -> list[Rescued]:
        """One batch of an evicted node's runs; empty when none is left."""
        rows = await self._database.fetch(PoolName.FAILOVER, sql.run.RESCUE, node, CRASH_CAP, RESCUE_BATCH)
        return [Rescued(*row.values()) for row in rows]

    async def delete(self, node: int) -> bool:
        return bool(await self._database.fetch(PoolName.FAILOVER, sql.node.DELETE, node))

    async def drain(self, node: int) -> None:
        await self._database.fetch(PoolName.FAILOVER, sql.node.DRAIN, node, True)

    async def leave(self, node: int, *, lost: bool = False) -> None:
        """`lost`: its membership had ended before it left."""
        await self._database.fetch(PoolName.FAILOVER, sql.node.LEAVE, node, lost)

    async def note_rescued(self, node: int, rescuer: int, runs: int) -> None:
        """Record which node returned the runs of a node that ended."""
        await self._database.fetch(PoolName.FAILOVER, sql.node.RECORD_RESCUE, node, rescuer, runs)


def unserved_of(row: Row) -> Unserved:
    return Unserved(WaitingPlace(row["queue"], row["needs"]), row["workers"], row["able"], row["known"])
