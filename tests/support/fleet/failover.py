"""A standby that takes the primary's place, and what may and may not be lost by that."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.support.fleet.network import BOTH, SWALLOW, Link
from tests.support.fleet.plans import Chance, Fault
from tests.support.fleet.records import Record
from tests.support.fleet.servers import Server
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.fleet.driver import Stage

# A commit that was acknowledged this long before the crash has long been on the standby, if it had to be there first.
SETTLED_BEFORE = 1.0
# The two statements by which the record tells what the crash found.
STREAMING = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = $1"


class Promotion:
    """The fault `promote`: the primary crashes, the standby becomes the primary, and all links lead there."""

    def __init__(self, stage: Stage, standby: Server, replication: Link) -> None:
        self._stage = stage
        self._standby = standby
        self._replication = replication

    async def __call__(self, fault: Fault) -> str:
        """`seconds`: for how long the standby has been cut off before, so that it misses what was acknowledged."""
        stage, former = self._stage, self._stage.server
        if fault.seconds:
            stage.links.cut(self._replication, BOTH, SWALLOW)
            await asyncio.sleep(fault.seconds)
        await former.stop("immediate")
        await self._standby.promote()
        for link in stage.of_member.values():
            stage.links.switch(link, self._standby.port)
        stage.change_server(self._standby)
        return fault.detail


async def with_standby(stage: Stage, *, synchronous: bool) -> None:
    replication = stage.links.add(stage.server.port)
    standby = Server(stage.folder, "standby")
    await standby.copy(stage.server, replication.port)
    stage.on_close(standby.close)
    stage.extra_logs["standby"] = standby.log
    await standby.start()
    async with stage.server.session() as look:
        if synchronous:
            await look.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
            await look.execute("SELECT pg_reload_conf()")
        wanted = "sync" if synchronous else "async"
        await until(lambda: look.fetchval(STREAMING, wanted), 30, "the standby to follow")
    stage.nemesis.deeds["promote"] = Promotion(stage, standby, replication)


async def with_synchronous_standby(stage: Stage) -> None:
    await with_standby(stage, synchronous=True)


async def with_asynchronous_standby(stage: Stage) -> None:
    await with_standby(stage, synchronous=False)


def synchronous_promotion(chance: Chance, _seconds: float, _ttl: float) -> list[Fault]:
    return [Fault(chance.rounded(10, 15), "promote", detail="synchronous")]


def asynchronous_promotion(chance: Chance, _seconds: float, _ttl: float) -> list[Fault]:
    return [Fault(chance.rounded(10, 15), "promote", seconds=chance.rounded(0.5, 2.5), detail="asynchronous")]


# --- what must hold ---


def nothing_given_twice(record: Record) -> list[str]:
    """Neither a term nor a token of the former primary was granted again by the new one."""
    assert record.former is not None
    found: list[str] = []
    holders = {(e.partition, e.term): e.node for e in record.former.elections}
    for election in record.tables.elections:
        before = holders.get((election.partition, election.term), election.node)
        if before != election.node:
            found.append(f"I9 term {election.term} of partition {election.partition} was given twice")
    owners = {(r.job, r.scheduled_at, r.serial, r.token): r.owner for r in record.former.open_runs}
    owners |= {(r.job, r.scheduled_at, r.serial, r.token): r.node for r in record.former.runs if r.token is not None}
    for run in record.tables.runs:
        owner = owners.get((run.job, run.scheduled_at, run.serial, run.token or 0))
        if owner is not None and run.node is not None and owner != run.node:
            found.append(f"I6 token {run.token} of {run.run_id} was given twice")
    return found


def nothing_lost(record: Record) -> list[str]:
    """What the former primary had acknowledged, the new one knows."""
    assert record.former is not None
    crash = next(done for done in record.done if done.fault.action == "promote").begun
    known = {(run.run_id, run.token) for run in record.tables.runs}
    lost = [
        run
        for run in record.former.runs
        if run.finished_at < crash - SETTLED_BEFORE and (run.run_id, run.token) not in known
    ]
    return [f"{len(lost)} runs that had been settled are not known any more"] if lost else []
