"""Nodes that ended: on record for a day, with how they ended and which nodes took over what they held."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.cluster.diagnosis import Tenure, replacements
from detent.cluster.operations import ClusterOperations
from detent.cluster.rescue import Rescue
from detent.domain.identity import node_name
from detent.errors import NotFound
from detent.runtime.wakeups import Wakeups
from detent.store import Store
from detent.telemetry.metrics import Metrics
from tests.support.factories import add_job, add_live_run, add_node

LOST, TAKER, SECOND = 21, 22, 23
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


async def expire(look: Any, node: int) -> None:
    """All nodes have been there for an hour, and this one has not been heard of for a while."""
    await look.execute("UPDATE nodes SET started_at = now() - interval '1 hour'")
    await look.execute(
        "UPDATE nodes SET beat_at = now() - interval '4 s', expires_at = now() - interval '1 s' WHERE node = $1", node
    )


async def take_over(look: Any, verbs: Store, node: int, taker: int) -> None:
    """As the leadership of a live node does it."""
    rescue = Rescue(verbs, Metrics(), Wakeups(), taker)
    await rescue.evict()
    await verbs.nodes.take(taker, 1, dict.fromkeys((await verbs.nodes.share(taker)).free))
    await rescue.clean_up([node])


async def test_a_node_that_was_lost_is_kept_with_who_took_what_it_held(look: Any, verbs: Store) -> None:
    await add_node(look, LOST)
    await add_node(look, TAKER)
    await verbs.nodes.take(LOST, 1, dict.fromkeys(range(128)))
    await verbs.nodes.take(TAKER, 1, dict.fromkeys(range(128, 256)))
    for _ in range(3):
        await add_live_run(look, await add_job(look), owner=LOST)
    await expire(look, LOST)
    await take_over(look, verbs, LOST, TAKER)
    cluster = await ClusterOperations(verbs).describe(operator=True)
    assert [node.id for node in cluster.nodes] == [node_name(TAKER)]
    (former,) = cluster.former_nodes
    assert (former.id, former.state, former.partitions, former.back_as) == (node_name(LOST), "lost", 128, None)
    (taken,) = former.taken_over_by
    assert (taken.node, taken.partitions, taken.runs) == (node_name(TAKER), 128, 3)
    assert former.last_seen_at < former.ended_at <= taken.at
    problem = cluster.problems[-1]  # besides the ticks of its jobs, which no node fires here
    after = (taken.at - former.last_seen_at).total_seconds()
    assert problem == (
        f"Node {node_name(LOST)} stopped answering at {former.last_seen_at:%H:%M:%S} UTC; "
        f"node {node_name(TAKER)} took over its 128 partitions and 3 runs after {after:.1f} s."
    )


async def test_who_is_no_operator_is_reported_neither_where_it_was_nor_how_many_runs_it_had(
    look: Any, verbs: Store
) -> None:
    await add_node(look, LOST)
    await add_node(look, TAKER)
    await verbs.nodes.take(LOST, 1, dict.fromkeys(range(256)))
    await add_live_run(look, await add_job(look), owner=LOST)
    await expire(look, LOST)
    await take_over(look, verbs, LOST, TAKER)
    (former,) = (await ClusterOperations(verbs).describe(operator=False)).former_nodes
    assert (former.host, former.pid, former.taken_over_by[0].runs) == (None, None, None)


async def test_a_node_that_left_in_good_order_is_no_problem(look: Any, verbs: Store) -> None:
    await add_node(look, LOST)
    await add_node(look, TAKER)
    await verbs.nodes.take(TAKER, 1, dict.fromkeys(range(256)))
    await verbs.nodes.leave(LOST)
    await verbs.nodes.delete(LOST)
    cluster = await ClusterOperations(verbs).describe(operator=True)
    assert [(node.id, node.state) for node in cluster.former_nodes] == [(node_name(LOST), "left")]
    assert cluster.problems == []


async def test_a_node_that_was_evicted_by_a_fail_over_is_on_record_too(look: Any, verbs: Store) -> None:
    await add_node(look, LOST, evicted=True)
    await add_node(look, TAKER)
    await verbs.nodes.delete(LOST)
    (former,) = (await ClusterOperations(verbs).describe(operator=True)).former_nodes
    assert (former.id, former.state) == (node_name(LOST), "lost")


async def test_the_first_record_of_an_end_stays(look: Any, verbs: Store) -> None:
    await add_node(look, LOST)
    await expire(look, LOST)
    await verbs.nodes.evict_expired()
    await verbs.nodes.leave(LOST)
    await verbs.nodes.delete(LOST)
    assert (await ClusterOperations(verbs).describe(operator=True)).former_nodes[0].state == "lost"


async def test_a_loss_that_was_dismissed_or_made_good_is_no_problem_any_more(look: Any, verbs: Store) -> None:
    await add_node(look, TAKER)
    await verbs.nodes.take(TAKER, 1, dict.fromkeys(range(256)))
    for node in (LOST, SECOND):
        await add_node(look, node)
        await expire(look, node)
        await take_over(look, verbs, node, TAKER)
    assert len((await ClusterOperations(verbs).describe(operator=True)).problems) == 2
    await ClusterOperations(verbs).dismiss(node_name(LOST))
    assert len((await ClusterOperations(verbs).describe(operator=True)).problems) == 1
    with pytest.raises(NotFound):
        await ClusterOperations(verbs).dismiss(node_name(TAKER))
    await add_node(look, 29)
    await add_node(look, 30)
    cluster = await ClusterOperations(verbs).describe(operator=True)
    assert cluster.problems == []
    assert {node.back_as for node in cluster.former_nodes} == {node_name(29), node_name(30)}


async def test_nodes_that_ended_are_purged_after_a_day(look: Any, verbs: Store) -> None:
    for node in (LOST, SECOND):
        await add_node(look, node)
        await verbs.nodes.leave(node)
        await verbs.nodes.delete(node)
    await look.execute("INSERT INTO node_take_overs (node, taker, at) VALUES ($1, $2, now())", LOST, TAKER)
    await look.execute("UPDATE former_nodes SET ended_at = now() - interval '25 hours' WHERE node = $1", LOST)
    assert [node.id for node in (await ClusterOperations(verbs).describe(operator=True)).former_nodes] == [
        node_name(SECOND)
    ]
    await verbs.cluster.purge_nodes()
    assert await look.fetchval("SELECT array_agg(node) FROM former_nodes") == [SECOND]
    assert await look.fetchval("SELECT count(*) FROM node_take_overs") == 0


def tenure(node: int, minutes: float, host: str = "a", *roles: str) -> Tenure:
    return Tenure(node, host, roles or ("worker",), NOON + timedelta(minutes=minutes))


def test_a_node_stands_for_one_that_was_lost_before_on_the_same_host_with_the_same_roles() -> None:
    lost = [tenure(1, 0), tenure(2, 1), tenure(3, 2, "b")]
    assert replacements(lost, []) == {}
    assert replacements(lost, [tenure(9, -5), tenure(10, 5, "c"), tenure(11, 5, "a", "scheduler")]) == {}
    assert replacements(lost, [tenure(9, 3)]) == {1: 9}
    assert replacements(lost, [tenure(9, 0.5), tenure(10, 3), tenure(11, 4, "b")]) == {1: 9, 2: 10, 3: 11}
