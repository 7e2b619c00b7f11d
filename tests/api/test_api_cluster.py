"""GET /cluster: the nodes, the leaders, the load and the problems; and draining a node."""

from __future__ import annotations

from typing import Any

import pytest

from detent.contract.key import KeyScope
from detent.domain.identity import first_token, node_name
from tests.api.api_client import ApiClient
from tests.api.api_server import Readiness, serving
from tests.support.factories import add_job, add_live_run, add_node


async def look(api: ApiClient, **options: Any) -> Any:
    return await api.good("GET", "/api/v1/cluster", **options)


async def lead_everything(api: ApiClient, node: int) -> None:
    assert len(await api.store.nodes.take(node, 1, dict.fromkeys(range(256)))) == 256


async def elect(sql: Any, partition: int, *nodes: int, ago: str = "10 minutes", first_term: int = 1) -> None:
    for term, node in enumerate(nodes, first_term):
        await sql.execute(
            "INSERT INTO elections (partition, term, node, nomination, at)"
            " VALUES ($1, $2, $3, 0, now() - $4::text::interval + make_interval(secs => $2::bigint))",
            partition,
            term,
            node,
            ago,
        )


async def test_the_cluster_shows_its_nodes_and_partitions(api: ApiClient, sql: Any) -> None:
    await add_node(sql, 7)
    await add_node(sql, 8, evicted=True)
    await sql.execute("UPDATE nodes SET beat_at = now() - interval '1500 ms', clock_offset = 0.0125 WHERE node = 7")
    await sql.execute("UPDATE nodes SET address = 'http://10.0.0.7:8787', pid = 4321 WHERE node = 7")
    term = first_token(1)
    assert await api.store.nodes.take(7, 1, dict.fromkeys([3, 4])) == {3: term, 4: term}
    cluster = await look(api)
    assert len(cluster["partitions"]) == 256
    taken = cluster["partitions"][3]
    assert (taken["partition"], taken["node"], taken["term"]) == (3, node_name(7), term)
    assert taken["age_ms"] >= 0
    assert cluster["partitions"][5] == {"partition": 5, "node": None, "term": 0, "age_ms": None}
    alive, gone = sorted(cluster["nodes"], key=lambda node: node["id"])
    assert alive["heartbeat_age_ms"] >= 1500
    assert 0 < alive["lease_ms"] <= 3_600_000
    assert (alive["clock_offset_ms"], alive["partitions"], alive["state"]) == (12.5, 2, "alive")
    assert (alive["host"], alive["pid"], alive["address"]) == ("test", 4321, "http://10.0.0.7:8787")
    assert (gone["partitions"], gone["state"]) == (0, "evicted")
    assert {"id", "roles", "started_at", "version", "tzdata"} <= alive.keys()


async def test_an_empty_cluster_is_shown_too(api: ApiClient) -> None:
    cluster = await look(api)
    assert cluster["nodes"] == []
    assert cluster["problems"] == ["No node is alive: nothing fires and nothing runs."]
    assert (cluster["held"], cluster["elections"]["recent"]) == (None, [])
    assert cluster["lag"] == {"oldest_due_ms": None, "oldest_ready_ms": None}
    assert cluster["throughput"] == {"last_10s": 0, "last_60s": 0}


async def test_a_cluster_in_good_order_has_no_problems(api: ApiClient, sql: Any) -> None:
    await add_node(sql, 7)
    await lead_everything(api, 7)
    assert (await look(api))["problems"] == []


async def test_a_node_whose_lease_has_ended_counts_as_gone(api: ApiClient, sql: Any) -> None:
    await add_node(sql, 7)
    await sql.execute("UPDATE nodes SET expires_at = now() - interval '1 second'")
    (node,) = (await look(api))["nodes"]
    assert (node["state"], node["lease_ms"]) == ("evicted", 0)


# --- how the work goes ---


async def test_runs_that_a_node_holds_and_work_that_waits_are_reported(api: ApiClient, sql: Any) -> None:
    await add_node(sql, 7)
    await lead_everything(api, 7)
    overdue = await sql.fetchval("SELECT now() - interval '20 seconds'")
    ready = await sql.fetchval("SELECT now() - interval '90 seconds'")
    held, waiting, later = [await add_job(sql, overdue) for _ in range(3)]
    await add_live_run(sql, held, owner=7)
    await add_live_run(sql, waiting, not_before=ready, priority=9, queue=3)
    await add_live_run(sql, later, not_before=overdue, priority=1, queue=2)
    cluster = await look(api)
    assert cluster["nodes"][0]["running"] == 1
    assert 20_000 <= cluster["lag"]["oldest_due_ms"] < 90_000 <= cluster["lag"]["oldest_ready_ms"]
    due, unclaimed = cluster["problems"]
    assert due.startswith("A tick that was due 2") and due.endswith("s ago has not been fired.")
    assert unclaimed.startswith("A run has been ready for 9") and unclaimed.endswith("no worker has claimed it.")


async def test_what_ended_lately_is_counted(api: ApiClient, sql: Any) -> None:
    job = await add_job(sql)
    for seconds, status in ((1, 1), (5, 2), (30, 1), (90, 1), (2, 4)):
        token, attempt = (None, None) if status == 4 else (1, 1)
        await sql.execute(
            "INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, token, attempt)"
            " SELECT $1, at, at, 0, 1, $3, $4, $5 FROM (SELECT now() - make_interval(secs => $2) AS at) AS t",
            *(job, float(seconds), status, token, attempt),
        )
    assert (await look(api))["throughput"] == {"last_10s": 2, "last_60s": 3}


# --- what is wrong ---


async def test_problems_are_described_in_sentences(api: ApiClient, sql: Any) -> None:
    await add_node(sql, 7)
    await add_node(sql, 8)
    await lead_everything(api, 7)
    await sql.execute("UPDATE partitions SET holder = NULL WHERE partition IN (3, 4)")
    await sql.execute("UPDATE nodes SET clock_offset = -0.25, version = '9.9', tzdata = '1999a' WHERE node = 8")
    assert (await look(api))["problems"] == [
        "Partitions 3 and 4 have no leader: their jobs do not fire.",
        f"The clock of node {node_name(8)} is 250 ms behind the database's clock, which decides when ticks fire.",
        "Nodes run different versions of detent: 9.9, test.",
        "Nodes have different time zone data and may compute different next ticks: 1999a, test.",
    ]


async def test_a_held_cluster_says_so_and_is_not_overdue(api: ApiClient, sql: Any) -> None:
    await add_node(sql, 7)
    await lead_everything(api, 7)
    await add_job(sql)
    await sql.execute("UPDATE cluster SET held_at = now(), held_by = 'ann', held_reason = 'the move to a new building'")
    cluster = await look(api)
    assert (cluster["held"]["by"], cluster["held"]["reason"]) == ("ann", "the move to a new building")
    (problem,) = cluster["problems"]
    assert problem.endswith("(the move to a new building): no job fires.")


async def test_a_partition_that_changes_hands_without_a_reason_is_flapping(api: ApiClient, sql: Any) -> None:
    await add_node(sql, 7)
    await add_node(sql, 8)
    await lead_everything(api, 7)
    await sql.execute("UPDATE nodes SET started_at = now() - interval '1 day'")
    await sql.execute("UPDATE elections SET at = now() - interval '1 day'")
    await elect(sql, 9, 7, 8)
    elections = (await look(api))["elections"]
    assert (elections["last_hour"], elections["flapping"]) == (2, [9])
    assert [taken["node"] for taken in elections["recent"]] == [node_name(8), node_name(7)]
    assert (await look(api))["problems"] == [
        "Partition 9 changed leaders more than once in the last hour although no node joined or left."
    ]


async def test_nodes_that_come_go_or_are_drained_are_a_reason(api: ApiClient, sql: Any) -> None:
    await add_node(sql, 7)
    await sql.execute("UPDATE nodes SET started_at = now() - interval '1 day'")
    await elect(sql, 9, 7, 7)
    assert (await look(api))["elections"]["flapping"] == [9]
    await elect(sql, 9, 4, ago="2 hours", first_term=0)  # led before the hour, and is gone
    assert (await look(api))["elections"]["flapping"] == []
    await elect(sql, 10, 7, 5, 7, 7)  # 5 came and went
    assert (await look(api))["elections"]["flapping"] == []
    await elect(sql, 11, *[7] * 5)
    assert (await look(api))["elections"]["flapping"] == [11]
    await api.good("POST", f"/api/v1/cluster/nodes/{node_name(7)}/drain")
    await api.good("POST", f"/api/v1/cluster/nodes/{node_name(7)}/resume")
    assert (await look(api))["elections"]["flapping"] == []


async def test_a_take_over_of_many_partitions_is_one_line(api: ApiClient, sql: Any) -> None:
    await add_node(sql, 7)
    await lead_everything(api, 7)
    elections = (await look(api))["elections"]
    assert (elections["last_hour"], len(elections["recent"]), elections["recent"][0]["partitions"]) == (256, 1, 256)


# --- who may see and do what ---


@pytest.fixture
async def tenants(database_url: str, readiness: Readiness, sql: Any) -> Any:
    await add_node(sql, 7)
    await sql.execute("UPDATE cluster SET held_at = now(), held_by = 'ann', held_reason = 'a test'")
    async with serving(database_url, readiness, require_keys=True) as api:
        await api.store.tenants.add("acme")
        acme = await api.store.tenants.number("acme")
        assert acme is not None
        holders: tuple[tuple[str, KeyScope, int], ...] = (
            ("acme", "admin", acme),
            ("reader", "read", 1),
            ("operator", "admin", 1),
        )
        keys = {
            name: {"Authorization": f"Bearer {(await api.store.keys.add(scope, tenant=tenant)).key}"}
            for name, scope, tenant in holders
        }
        yield api, keys


async def test_where_nodes_are_is_reported_to_the_default_tenant_only(tenants: Any) -> None:
    api, keys = tenants
    for name, told in (("acme", False), ("reader", True), ("operator", True)):
        cluster = await look(api, headers=keys[name])
        (node,) = cluster["nodes"]
        facts = [node["host"], node["pid"], node["running"], cluster["held"]["by"], cluster["throughput"]]
        assert [fact is not None for fact in facts] == [told] * 5, name
        assert (node["id"], cluster["held"]["reason"]) == (node_name(7), "a test")


async def test_a_node_is_drained_by_administrators_of_the_default_tenant(tenants: Any) -> None:
    api, keys = tenants
    path = f"/api/v1/cluster/nodes/{node_name(7)}"
    for name in ("acme", "reader"):
        await api.problem("POST", f"{path}/drain", 403, headers=keys[name])
    drained = await api.good("POST", f"{path}/drain", headers=keys["operator"])
    assert (drained["id"], drained["state"]) == (node_name(7), "draining")
    assert (await api.good("POST", f"{path}/resume", headers=keys["operator"]))["state"] == "alive"


@pytest.mark.parametrize("name", ["0000000000000009", "7", "x", "f" * 16, "-000000000000007", "8" * 40])
async def test_a_node_that_is_not_there_is_not_found(api: ApiClient, sql: Any, name: str) -> None:
    await add_node(sql, 7)
    await add_node(sql, 8, evicted=True)
    for node in (name, node_name(8)):
        problem = await api.problem("POST", f"/api/v1/cluster/nodes/{node}/drain", 404)
        assert f"There is no live node '{node}'" in problem["detail"]
