"""A pooler that is pointed at a promoted server: no connection of a node is made anew, and still nothing is written
there under the incarnation of before."""

from __future__ import annotations

from datetime import timedelta

import pytest

from detent.cluster.admission import AdmissionCheck
from detent.domain.identity import COUNTER_BITS
from detent.errors import DetentError
from detent.store import Database, Store, sql
from detent.store.db import PoolName
from detent.store.nodes import NodeInfo
from tests.failover.database_servers import TTL, Servers
from tests.failover.test_incarnation import ask, fail_over
from tests.support.factories import add_job
from tests.support.pgbouncer import prepare_role, running_pgbouncer
from tests.support.ticks import advance_of
from tests.support.waiting import until

pytestmark = pytest.mark.long


async def test_a_fire_through_a_pooler_waits_until_its_node_has_joined_the_promoted_server(servers: Servers) -> None:
    primary = await servers.primary()
    standby = await servers.standby(primary)
    await prepare_role(primary.url)
    async with primary.session() as session:
        job = await add_job(session)
        await session.execute("UPDATE cluster SET beat_at = now()")
        position = await session.fetchval("SELECT pg_current_wal_lsn()::text")
    await until(lambda: ask(standby, "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", position), 20)
    with running_pgbouncer(primary.url) as bouncer:
        database = Database(bouncer.url(primary.url), pooled=True, ttl=TTL)
        await database.open()
        store, guard = Store(database), AdmissionCheck(Store(database), 0)
        before = await guard.admit()
        await join(store, 1)
        await until(lambda: ask(standby, "SELECT count(*) FROM nodes"), 20, "the standby to know the node")
        (cursor,) = await store.cursors.load([job])
        assert cursor.next_tick is not None
        batch = [advance_of(job, cursor.next_tick, cursor.generation, None, None)]

        await fail_over(primary, standby)
        await bouncer.lead_to(standby.url)
        await until(lambda: answers(database), 20, "the promoted server to be reached")
        refused = await store.cursors.fire(1, before.incarnation, False, batch)
        assert [each.why for each in refused] == ["refused"]

        after = await guard.admit()
        assert after.incarnation > before.incarnation
        await join(store, 2)
        assert await store.cursors.fire(2, after.incarnation, False, batch) == []
        assert await ask(standby, "SELECT token FROM live_runs") > after.incarnation << COUNTER_BITS
        await database.close()


async def answers(database: Database) -> bool:
    try:
        return bool(await database.fetch(PoolName.FIRE, sql.database.CLOCK))
    except DetentError:
        return False


async def join(store: Store, node: int) -> None:
    await store.nodes.join(NodeInfo(node, "host", 1, ("scheduler",), "1", "2026a"), timedelta(hours=1))
