"""A database that fails over: numbers that only grow, and servers that are refused."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from detent.cluster.admission import AdmissionCheck
from detent.domain.identity import COUNTER_BITS
from detent.errors import Unavailable
from detent.store import servers as known_servers
from detent.store import sql
from detent.store.db import PoolName
from detent.store.nodes import NodeInfo
from detent.store.servers import addresses, servers_of
from tests.failover.database_servers import Process, Servers, opened, url_of
from tests.support.factories import add_job, add_node
from tests.support.fleet.servers import Server
from tests.support.waiting import until

HIGHEST_TOKEN = "SELECT greatest((SELECT max(token) FROM live_runs), (SELECT max(token) FROM run_history))"
AFTER = "SELECT extract(epoch FROM now() - timestamptz '2020-01-01 00:00+00') > $1::bigint + 1"
LOWEST_TERM = "SELECT min(term) FROM partitions"
RUNS = "SELECT count(*) FROM run_history WHERE status = 1"


async def ask(server: Server, question: str, *arguments: Any) -> Any:
    async with server.session() as session:
        return await session.fetchval(question, *arguments)


async def make_job(server: Server, **options: Any) -> None:
    async with server.session() as session:
        await add_job(session, await session.fetchval("SELECT now()"), every="every 1s", **options)


async def fail_over(primary: Server, standby: Server) -> None:
    await primary.stop("immediate")
    await standby.promote()


@pytest.fixture
def a_new_process(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Forgets what this process has seen."""
    return servers_of.cache_clear


async def test_after_a_fail_over_every_token_and_every_term_is_greater_than_all_before(servers: Servers) -> None:
    primary = await servers.primary()
    standby = await servers.standby(primary)
    await make_job(primary)
    async with opened(url_of(primary, standby)) as store, Process(store) as process:
        await until(lambda: ask(primary, RUNS), 20, "a run on the first server")
        before = process.session
        assert before is not None
        assert before.membership.incarnation == 1
        await until(lambda: ask(standby, RUNS), 20, "the standby to have it too")
        token, term = await ask(primary, HIGHEST_TOKEN), await ask(primary, "SELECT max(term) FROM partitions")
        await fail_over(primary, standby)
        await until(lambda: process.session not in (None, before), 20, "a new membership")
        runs = await ask(standby, RUNS)
        await until(lambda: ask(standby, f"SELECT ({RUNS}) > {runs}"), 20, "a run on the new server")
        assert before.membership.lost.is_set()
        assert process.session is not None
        incarnation = process.session.membership.incarnation
        assert incarnation > 1
        assert await ask(standby, HIGHEST_TOKEN) > incarnation << COUNTER_BITS > token
        await until(lambda: ask(standby, f"SELECT ({LOWEST_TERM}) > {incarnation << COUNTER_BITS}"), 20, "new terms")
        assert incarnation << COUNTER_BITS > term


async def test_a_fail_over_ends_the_memberships_of_before_however_long_their_leases(servers: Servers) -> None:
    primary = await servers.primary()
    await make_job(primary)
    async with primary.session() as session:
        await session.execute("UPDATE cluster SET beat_at = now()")
        for node in (1, 2):
            await add_node(session, node)
    standby = await servers.standby(primary)
    await until(lambda: ask(standby, "SELECT count(*) = 2 FROM nodes"), 20, "the standby to have them")
    await fail_over(primary, standby)
    assert await ask(standby, "SELECT bool_and(NOT evicted AND expires_at > now()) FROM nodes")
    async with opened(standby.url) as store:
        await AdmissionCheck(store, 0).admit()
        assert await ask(standby, "SELECT bool_and(evicted) FROM nodes")
        await store.nodes.join(NodeInfo(3, "host", 1, ("worker",), "1", "2026a", None), timedelta(hours=1))
        await AdmissionCheck(store, 0).admit()
        assert await ask(standby, "SELECT NOT evicted FROM nodes WHERE node = 3"), "only the fail-over ends them"


async def test_tokens_of_a_raised_incarnation_can_be_read_by_javascript(servers: Servers) -> None:
    primary = await servers.primary()
    standby = await servers.standby(primary)
    await make_job(primary)
    async with opened(url_of(primary, standby)) as store:
        await store.database.fetch(PoolName.REQUEST, sql.database.CLOCK)
        async with primary.session() as session:
            await session.execute("UPDATE cluster SET beat_at = now()")
            position = await session.fetchval("SELECT pg_current_wal_lsn()::text")
        await until(lambda: ask(standby, "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", position), 20)
        await fail_over(primary, standby)
        admission = await AdmissionCheck(store, 0).admit()
        assert admission.incarnation > 1
        assert (admission.incarnation << COUNTER_BITS) + 1000 < 2**53


async def test_of_several_nodes_one_raises_the_incarnation_and_all_agree(servers: Servers) -> None:
    primary = await servers.primary()
    standby = await servers.standby(primary)
    await make_job(primary)
    async with opened(url_of(primary, standby)) as store, Process(store) as one, Process(store) as other:
        await until(lambda: one.session and other.session, 20)
        await until(lambda: ask(standby, RUNS), 20, "the standby to follow")
        before = {one.session, other.session}
        await fail_over(primary, standby)
        await until(lambda: not {one.session, other.session} & {None, *before}, 20, "both to join again")
        found = {process.session.membership.incarnation for process in (one, other) if process.session}
        assert found == {await ask(standby, "SELECT incarnation FROM cluster")}


async def test_a_second_fail_over_that_lost_the_first_raise_does_not_give_its_number_again(
    servers: Servers, a_new_process: Any
) -> None:
    primary = await servers.primary()
    first, second = await servers.standby(primary, "first"), await servers.standby(primary, "second")
    await make_job(primary)
    async with primary.session() as session:
        await session.execute("UPDATE cluster SET beat_at = now()")
    for standby in (first, second):
        await until(lambda standby=standby: ask(standby, "SELECT beat_at FROM cluster"), 20, "both to follow")
    await fail_over(primary, first)
    async with opened(first.url) as store:
        lost = (await AdmissionCheck(store, 0).admit()).incarnation
    a_new_process()
    await fail_over(first, second)
    await until(lambda: ask(second, AFTER, lost), 5, "the second in which the number was given to be over")
    async with opened(second.url) as store:
        assert (await AdmissionCheck(store, 0).admit()).incarnation > lost
    assert await ask(second, "SELECT timeline FROM cluster") == 2, "this server never heard of the other timeline 2"


async def test_a_process_that_saw_an_incarnation_never_raises_to_less(servers: Servers) -> None:
    primary = await servers.primary()
    first, second = await servers.standby(primary, "first"), await servers.standby(primary, "second")
    await make_job(primary)
    async with primary.session() as session:
        await session.execute("UPDATE cluster SET beat_at = now()")
    for standby in (first, second):
        await until(lambda standby=standby: ask(standby, "SELECT beat_at FROM cluster"), 20, "both to follow")
    await fail_over(primary, first)
    async with opened(url_of(first, second)) as store:
        guard = AdmissionCheck(store, 0)
        await guard.admit()
        async with first.session() as session:  # as if the first server's clock were ten years ahead
            await session.execute("UPDATE cluster SET incarnation = 900000000")
        lost = (await guard.admit()).incarnation
        await fail_over(first, second)
        assert (await guard.admit()).incarnation == lost + 1


# --- servers that are refused ---


async def test_an_old_primary_that_came_back_is_passed_over_and_refused_when_it_is_alone(servers: Servers) -> None:
    primary = await servers.primary()
    standby = await servers.standby(primary)
    found = servers_of(url_of(primary, standby))
    (await found.connect()).terminate()
    await fail_over(primary, standby)
    (await found.connect()).terminate()
    await primary.start()  # it takes writes, on timeline 1
    await ask(primary, "CREATE TABLE written_in_vain ()")
    for _ in range(3):
        connection = await found.connect()
        assert await connection.fetchval("SELECT current_setting('cluster_name')") == "standby"
        connection.terminate()
    await standby.stop()
    with pytest.raises(Unavailable, match="is on timeline 1, but timeline 2 has been seen: an old primary came back"):
        await found.connect()


async def test_a_new_process_that_knows_several_servers_begins_with_the_newest(servers: Servers) -> None:
    primary = await servers.primary()
    standby = await servers.standby(primary)
    await fail_over(primary, standby)
    await primary.start()
    connection = await known_servers.Servers(url_of(primary, standby)).connect()
    assert await connection.fetchval("SELECT current_setting('cluster_name')") == "standby"
    connection.terminate()


async def test_a_server_in_recovery_is_refused_with_a_sentence(servers: Servers) -> None:
    primary = await servers.primary()
    standby = await servers.standby(primary)
    with pytest.raises(Unavailable, match=f"127.0.0.1:{standby.port}/detent is in recovery"):
        async with opened(standby.url):
            pass
    async with opened(url_of(standby, primary)) as store:  # the first one that may be talked to
        await store.database.fetch(PoolName.REQUEST, sql.database.CLOCK)


async def test_a_node_writes_nothing_on_a_new_timeline_before_it_has_joined_there(servers: Servers) -> None:
    primary = await servers.primary()
    standby = await servers.standby(primary)
    async with opened(url_of(primary, standby)) as store:
        guard = AdmissionCheck(store, 0)
        await guard.admit()
        await store.database.fetch(PoolName.WORK, sql.database.CLOCK)
        await fail_over(primary, standby)
        await until(lambda: answers(store, PoolName.REQUEST), 10, "people to reach the new server")
        for pool in (PoolName.FIRE, PoolName.WORK, PoolName.FAILOVER):
            with pytest.raises(Unavailable, match="new timeline 2: this node has to join there first"):
                await store.database.fetch(pool, sql.database.CLOCK)
        await guard.admit()
        for pool in (PoolName.FIRE, PoolName.WORK, PoolName.FAILOVER):
            await store.database.fetch(pool, sql.database.CLOCK)


async def test_an_open_connection_to_an_old_primary_is_closed_once_a_newer_one_was_seen(servers: Servers) -> None:
    primary = await servers.primary()
    standby = await servers.standby(primary)
    name = "SELECT current_setting('cluster_name')"
    async with opened(url_of(primary, standby)) as store:
        async with store.database.connection(PoolName.REQUEST) as connection:
            assert await connection.fetchval(name) == "primary"
        await standby.promote()  # and the old one goes on as if nothing had happened
        async with standby.session() as session:
            store.database.servers.check(await known_servers.server_of(session), standby.url)
        async with store.database.connection(PoolName.REQUEST) as connection:
            assert await connection.fetchval(name) == "standby"


async def test_nodes_leave_an_old_primary_that_goes_on_as_if_nothing_had_happened(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_servers, "LOOK_EVERY", 0.2)
    primary = await servers.primary()
    standby = await servers.standby(primary)
    await make_job(primary)
    async with opened(url_of(primary, standby)) as store, Process(store) as process:
        await until(lambda: ask(standby, RUNS), 20, "a run that both know")
        await standby.promote()  # the old one is not stopped, and keeps its connections
        runs = await ask(standby, RUNS)
        await until(lambda: ask(standby, f"SELECT ({RUNS}) > {runs}"), 20, "a run on the new server")
        assert process.session is not None
        assert process.session.membership.timeline == 2
        assert await ask(primary, "SELECT timeline FROM whereabouts") == 1


async def answers(store: Any, pool: PoolName) -> bool:
    try:
        await store.database.fetch(pool, sql.database.CLOCK)
    except Exception:
        return False
    return True


async def test_the_timeline_is_known_the_moment_a_server_is_promoted(servers: Servers) -> None:
    primary = await servers.primary()
    standby = await servers.standby(primary)
    assert await ask(standby, "SELECT timeline FROM whereabouts") is None
    promoting = asyncio.create_task(standby.promote())
    async with standby.session() as session:
        await until(lambda: session.fetchval("SELECT NOT pg_is_in_recovery()"), 20)
        assert await session.fetchval("SELECT timeline FROM whereabouts") == 2
    await promoting


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u@a/db", ["postgresql://u@a/db"]),
        ("postgresql://u:p@a,b:5433/db", ["postgresql://u:p@a/db", "postgresql://u:p@b:5433/db"]),
        ("postgresql://a,b/db?target_session_attrs=read-write", ["postgresql://a/db", "postgresql://b/db"]),
        ("postgresql://a/db?target_session_attrs=primary&sslmode=require", ["postgresql://a/db?sslmode=require"]),
        ("postgresql:///db?host=/run/a", ["postgresql:///db?host=/run/a"]),
        ("postgresql:///db?host=a,b&port=1,2", ["postgresql:///db?host=a&port=1", "postgresql:///db?host=b&port=2"]),
        ("postgresql:///db?host=a,b&port=1", ["postgresql:///db?host=a&port=1", "postgresql:///db?host=b&port=1"]),
        ("postgresql://[::1]:1,[::2]:2/db", ["postgresql://[::1]:1/db", "postgresql://[::2]:2/db"]),
    ],
)
def test_a_url_with_several_hosts_is_one_url_for_each(url: str, expected: list[str]) -> None:
    assert addresses(url) == expected


def test_hosts_and_ports_that_do_not_match_are_refused() -> None:
    with pytest.raises(Unavailable, match="3 hosts and 2 ports: give one port for each host"):
        addresses("postgresql:///db?host=a,b,c&port=1,2")


@pytest.mark.long
async def test_over_many_fail_overs_numbers_only_grow(servers: Servers) -> None:
    """Each standby is a base backup of the server before it, taken while that one works."""
    serving = await servers.primary("server-0")
    await make_job(serving)
    incarnations, tokens = [1], [0]
    for number in range(1, 6):
        following = await servers.base_backup(serving, f"server-{number}")
        incarnation, token = await work_and_fail_over(serving, following)
        incarnations.append(incarnation)
        tokens.append(token)
        serving = following
    assert incarnations == sorted(set(incarnations))
    assert tokens == sorted(set(tokens))
    assert await ask(serving, "SELECT timeline FROM cluster") == 6


async def work_and_fail_over(serving: Server, following: Server) -> tuple[int, int]:
    """The incarnation after it, and the highest token before it."""
    runs = await ask(serving, RUNS)
    async with opened(url_of(serving, following)) as store, Process(store) as process:
        for server in (serving, following):
            await until(lambda server=server: ask(server, f"SELECT ({RUNS}) > {runs}"), 30, "a run that both know")
        before, token = process.session, await ask(serving, HIGHEST_TOKEN)
        await fail_over(serving, following)
        await until(lambda: process.session not in (None, before), 30, "it to go on")
        assert process.session is not None
        return process.session.membership.incarnation, token
