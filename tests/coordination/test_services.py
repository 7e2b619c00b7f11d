"""What is particular to one coordinator: where its names are kept, how it is reached, and what it must survive."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import aiohttp
import pytest
from kazoo.client import KazooClient
from redis.asyncio import Redis as RedisClient

from detent.cluster.coordinators.choose import choose
from detent.cluster.coordinators.coordinator import Coordinator
from detent.cluster.coordinators.etcd import EtcdCoordinator
from detent.cluster.coordinators.services import Candidate
from detent.domain.identity import node_name
from detent.errors import DetentError, Unavailable, UsageError
from detent.store import Database, Store
from detent.store.embedded import EmbeddedServer
from tests.coordination.candidates import TTL, Contender, Field
from tests.support.ports import free_port
from tests.support.servers import Etcd, Server, running
from tests.support.waiting import until

PARTITIONS = set(range(8))
SLOW = 10.0  # checking a password is slow on purpose
CLUSTER = UUID("5f0c2f4e-6e0b-4c69-9f0f-3f1a4f6f5b10")


@pytest.fixture
def database_url(kept_database: str) -> str:
    return kept_database


@pytest.fixture
async def field(store: Store) -> AsyncIterator[Field]:
    """Each test names its own coordinator."""
    entered = Field(store, "postgres")
    yield entered
    await entered.close()


# --- names ---


async def test_zookeeper_keeps_its_leaders_where_the_manual_says(field: Field, zookeeper_server: Server) -> None:
    client = KazooClient(f"127.0.0.1:{zookeeper_server.port}")
    await asyncio.to_thread(client.start)
    try:
        cluster = (await field.store.upkeep.cluster()).id
        for url, folder in (
            (zookeeper_server.url, f"/detent/{cluster}"),
            (f"{zookeeper_server.url}/one/two", "/one/two"),
        ):
            contender = await field.enter(url=url)
            await contender.stand({3})
            name, stat = await asyncio.to_thread(client.get, f"{folder}/schedulers/partition-3/leader")
            assert (name.decode(), stat.czxid) == (node_name(contender.node), contender.nominations[3])
            await contender.leave()
    finally:
        await asyncio.to_thread(client.stop)
        client.close()


async def test_etcd_keeps_its_leaders_where_the_manual_says(field: Field, etcd_server: Server) -> None:
    cluster = (await field.store.upkeep.cluster()).id
    for url, prefix in ((etcd_server.url, "/detent"), (f"{etcd_server.url}/team/a", "/team/a")):
        contender = await field.enter(url=url)
        await contender.stand({3})
        key = b64encode(f"{prefix}/{cluster}/schedulers/partition-3/leader".encode()).decode()
        (found,) = (await ask_etcd(etcd_server, "kv/range", {"key": key}))["kvs"]
        assert b64decode(found["value"]).decode() == node_name(contender.node)
        assert int(found["create_revision"]) == contender.nominations[3]
        await contender.leave()


async def test_redis_keeps_its_leaders_where_the_manual_says(field: Field, redis_server: Server) -> None:
    cluster = (await field.store.upkeep.cluster()).id
    contender = await field.enter(url=redis_server.url)
    await contender.stand({3})
    async with RedisClient.from_url(redis_server.url) as client:
        found = await client.get(f"detent:{{{cluster}}}:partition-3:leader")
    assert found.decode() == f"{node_name(contender.node)} {contender.nominations[3]}"


async def ask_etcd(server: Server, path: str, question: dict[str, Any]) -> dict[str, Any]:
    address = f"http://127.0.0.1:{server.port}/v3/{path}"
    async with aiohttp.ClientSession() as http, http.post(address, json=question) as response:
        answer: dict[str, Any] = await response.json()
        return answer


# --- ways in ---


@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
async def test_a_server_that_is_down_is_passed_over(field: Field, kind: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(f"{kind}_server")
    contender = await field.enter(url=f"{kind}://127.0.0.1:{free_port()},127.0.0.1:{server.port}")
    assert await contender.stand(PARTITIONS) == PARTITIONS


async def test_a_server_that_accepts_and_never_answers_is_passed_over(field: Field, etcd_server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        hosts = f"127.0.0.1:{mute.getsockname()[1]},127.0.0.1:{etcd_server.port}"
        contender = await field.enter(url=f"etcd://{hosts}")
        assert await contender.stand(PARTITIONS) == PARTITIONS


@pytest.fixture
def guarded_etcd() -> Iterator[Server]:
    with running(Etcd) as server:
        yield server


async def test_etcd_lets_in_who_knows_the_password(field: Field, guarded_etcd: Server) -> None:
    secret = "p@ss/word"
    await ask_etcd(guarded_etcd, "auth/user/add", {"name": "root", "password": secret})
    await ask_etcd(guarded_etcd, "auth/user/grant", {"user": "root", "role": "root"})
    await ask_etcd(guarded_etcd, "auth/enable", {})
    hosts = f"127.0.0.1:{guarded_etcd.port}"
    with pytest.raises(Unavailable, match="rejected the user root"):
        await field.enter(url=f"etcd://root:wrong@{hosts}", ttl=SLOW)
    contender = await field.enter(url=f"etcd://root:p%40ss%2Fword@{hosts}", ttl=SLOW)
    assert await contender.stand(PARTITIONS) == PARTITIONS
    guarded_etcd.kill()
    guarded_etcd.start()  # which knows no token that it gave out before
    await until(lambda: led_again(contender), 5 * TTL)


async def test_redis_lets_in_who_knows_the_password(field: Field, redis_server: Server) -> None:
    async with RedisClient.from_url(redis_server.url) as client:
        await client.config_set("requirepass", "p@ss")
        try:
            with pytest.raises(Unavailable, match="The request to Redis failed"):
                await field.enter(url=redis_server.url)
            contender = await field.enter(url=f"redis://:p%40ss@127.0.0.1:{redis_server.port}/0")
            assert await contender.stand(PARTITIONS) == PARTITIONS
            await contender.leave()
        finally:
            await client.config_set("requirepass", "")


async def led_again(contender: Contender) -> bool:
    try:
        return await contender.stand(PARTITIONS) == PARTITIONS
    except DetentError:
        return False


async def nominated(coordinator: Coordinator) -> bool:
    try:
        return (await coordinator.campaign(PARTITIONS)).keys() == PARTITIONS
    except Unavailable:
        return False


# --- what they must survive ---


async def test_numbers_of_a_redis_that_forgot_everything_still_grow(field: Field, redis_server: Server) -> None:
    former, latter = await field.enter(url=redis_server.url), await field.enter(url=redis_server.url)
    await former.stand(PARTITIONS)
    async with RedisClient.from_url(redis_server.url) as client:
        await client.flushall()
    assert await latter.stand(PARTITIONS) == PARTITIONS, "a newer nomination, so the database gave them away"
    assert await former.stand(PARTITIONS) == set()
    assert all(latter.nominations[partition] > former.nominations.get(partition, 0) for partition in PARTITIONS)


async def test_a_counter_of_redis_that_is_ahead_of_the_clock_goes_on_from_there(
    field: Field, redis_server: Server
) -> None:
    cluster = (await field.store.upkeep.cluster()).id
    ahead = 1 << 52
    async with RedisClient.from_url(redis_server.url) as client:
        await client.hset(f"detent:{{{cluster}}}:numbers", "3", str(ahead))
    contender = await field.enter(url=redis_server.url)
    assert await contender.coordinator.campaign({3}) == {3: ahead + 1}


async def test_an_etcd_whose_lease_was_revoked_is_distinguished_from_one_that_is_away(
    field: Field, etcd_server: Server
) -> None:
    contender = await field.enter(url=etcd_server.url)
    await contender.stand(PARTITIONS)
    before = dict(contender.nominations)
    leases = await ask_etcd(etcd_server, "lease/leases", {})
    for lease in leases["leases"]:
        await ask_etcd(etcd_server, "lease/revoke", lease)
    after = await contender.coordinator.campaign(PARTITIONS)
    assert all((after[partition] or 0) > (before[partition] or 0) for partition in PARTITIONS)


async def test_more_partitions_than_one_transaction_of_etcd_may_hold(field: Field, etcd_server: Server) -> None:
    contender = await field.enter(url=etcd_server.url)
    everything = set(range(256))
    assert await contender.stand(everything) == everything
    await contender.give_up(everything)
    rival = await field.enter(url=etcd_server.url)
    assert await rival.stand(everything) == everything


async def test_a_znode_deleted_by_hand_loses_the_nomination(field: Field, zookeeper_server: Server) -> None:
    contender = await field.enter(url=f"{zookeeper_server.url}/deleted")
    await contender.stand(PARTITIONS)
    before = dict(contender.nominations)
    client = KazooClient(f"127.0.0.1:{zookeeper_server.port}")
    await asyncio.to_thread(client.start)
    try:
        await asyncio.to_thread(client.delete, "/deleted", recursive=True)
    finally:
        await asyncio.to_thread(client.stop)
        client.close()
    await until(lambda: led_again(contender), 5 * TTL)
    assert all((contender.nominations[n] or 0) > (before[n] or 0) for n in PARTITIONS)


async def test_a_session_is_not_begun_anew_while_its_coordinator_is_closed(
    field: Field, zookeeper_server: Server
) -> None:
    zookeeper_server.kill()
    coordinator = choose(zookeeper_server.url, Candidate(1, CLUSTER, TTL), field.store.database)
    campaigns = [asyncio.create_task(coordinator.campaign(PARTITIONS)) for _ in range(2)]
    await asyncio.sleep(0)  # both are on their way
    await coordinator.close()
    for campaign in campaigns:
        with pytest.raises(Unavailable):
            await campaign
    zookeeper_server.start()
    await until(lambda: not any("zk_loop" in thread.name for thread in threading.enumerate()), what="kazoo to end")


# --- advisory locks ---

HOLDER = """
import asyncio, sys
from uuid import UUID
from detent.cluster.coordinators.choose import choose
from detent.cluster.coordinators.coordinator import Coordinator
from detent.cluster.coordinators.services import Candidate
from detent.store import Database

async def main(url, cluster, ttl):
    coordinator = choose("advisory", Candidate(1, UUID(cluster), float(ttl)), Database(url))
    await coordinator.open()
    while True:
        print(sorted(await coordinator.campaign(range(8))), flush=True)
        await asyncio.sleep(float(ttl) / 3)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
async def test_the_locks_of_a_process_that_is_killed_or_paused_come_free(
    store: Store, database_url: str, fate: signal.Signals
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, database_url, str(CLUSTER), str(TTL)], stdout=subprocess.PIPE, text=True
    ) as holder:
        rival = choose("advisory", Candidate(2, CLUSTER, TTL), store.database)
        await rival.open()
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline().strip() == str(sorted(PARTITIONS))
            assert not await nominated(rival)
            os.kill(holder.pid, fate)

            await until(lambda: nominated(rival), 5 * TTL, "the locks to come free")
        finally:
            await rival.close()
            holder.kill()


async def test_a_lock_connection_that_was_ended_is_opened_again(store: Store, look: Any) -> None:
    holder = choose("advisory", Candidate(1, CLUSTER, TTL), store.database)
    try:
        assert (await holder.campaign(PARTITIONS)).keys() == PARTITIONS
        ended = await look.fetch("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
        assert len(ended) == len(PARTITIONS)
        await until(lambda: nominated(holder), 5 * TTL)
    finally:
        await holder.close()


@pytest.fixture
async def own_database() -> AsyncIterator[EmbeddedServer]:
    with tempfile.TemporaryDirectory(prefix="detent-test-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)  # the server's user has to get through when root runs the tests
        server = EmbeddedServer(folder / "server", options={"fsync": "off"}, system_dir=folder / "system")
        await server.start()
        yield server
        await server.stop()


async def test_locks_in_a_database_that_was_killed_are_missed_and_held_again(own_database: EmbeddedServer) -> None:
    holder = choose("advisory", Candidate(1, CLUSTER, TTL), Database(own_database.url))
    try:
        assert (await holder.campaign(PARTITIONS)).keys() == PARTITIONS
        postmaster = int((own_database.home / "postgres" / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGKILL)
        async with asyncio.timeout(15):
            with pytest.raises(Unavailable):
                while await holder.campaign(PARTITIONS):
                    pass
        await own_database.stop()
        await own_database.start()
        await until(lambda: nominated(holder), 5 * TTL)
    finally:
        await holder.close()


# --- choosing ---


@pytest.mark.parametrize(("named", "package"), [("zookeeper://h:2181", "kazoo"), ("redis://h:6379/0", "redis")])
def test_a_client_that_is_not_installed_is_named_with_its_extra(
    named: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for loaded in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, package, None)
    scheme = named.partition(":")[0]
    monkeypatch.delitem(sys.modules, f"detent.cluster.coordinators.{scheme}", raising=False)
    with pytest.raises(UsageError, match=rf"pip install 'detent\[{scheme}\]'"):
        choose(named, Candidate(1, CLUSTER, TTL), Database("postgresql://nowhere"))


def test_locks_are_refused_behind_a_pooler() -> None:
    with pytest.raises(UsageError, match="DETENT_DATABASE_POOLER"):
        choose("advisory", Candidate(1, CLUSTER, TTL), Database("postgresql://nowhere", pooled=True))


def test_hosts_without_a_port_get_the_usual_one() -> None:
    chosen = EtcdCoordinator(urlsplit("etcds://a,b:1,[::1],[::2]:3"), Candidate(1, CLUSTER, TTL))
    assert list(chosen._gateway._endpoints) == [
        "https://a:2379",
        "https://b:1",
        "https://[::1]:2379",
        "https://[::2]:3",
    ]
