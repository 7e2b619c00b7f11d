"""Workers with topic jobs, killed all the time, from an empty folder to what the brokers hold."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

from detent.domain.identity import ON_DEMAND
from tests.support.deliveries.checker import GIVEN_UP, Delivery
from tests.support.deliveries.holders import Holder, holding
from tests.support.fleet.checker import DEAD, SUCCEEDED
from tests.support.fleet.network import Links
from tests.support.fleet.servers import Server
from tests.support.orders.driver import Scale, Trade
from tests.support.processes import START_SECONDS
from tests.support.waiting import until

# Each attempt that loses its worker uses one up.
RETRIES = {"max_retries": 50, "retry_base_seconds": 0.05, "retry_max_seconds": 0.5}
AWS = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}
PORTIONS, MOST_PORTIONS = 20, 200
DRAIN_SECONDS = 240.0
READ_RUNS = """
SELECT run_id(job, scheduled_at, serial)::text, status, reason
  FROM run_history WHERE serial >= $1 AND job = (SELECT job FROM jobs WHERE name = $2)
"""
LOST = "SELECT count(*) FROM attempts WHERE outcome = 'lost'"
LEFT = "SELECT (SELECT count(*) FROM backlog) + (SELECT count(*) FROM live_runs)"


class DeliveryRecord(NamedTuple):
    deliveries: Sequence[Delivery]
    kills: int
    lost_attempts: int
    left: int
    logs: dict[str, str]


async def perform(folder: Path, brokers: Sequence[str], runs: int, scale: Scale, seed: int) -> DeliveryRecord:
    """`runs`: of each broker."""
    server = Server(folder, "primary")
    await server.create()
    async with holding(brokers) as holders:
        with closing(Links()) as links, ExitStack() as servers:
            servers.callback(server.close)
            await server.start()
            await server.make_database()
            trade = Trade(folder, scale, seed, server, links)
            trade.fleet.variables.update(AWS)
            await trade.fleet.command("db", "migrate")
            for name in (*scale.nodes, "api"):
                trade.fleet.add(name)
            with closing(trade.fleet):
                return await _record(trade, holders, runs)


async def _record(trade: Trade, holders: Sequence[Holder], runs: int) -> DeliveryRecord:
    api = await trade.fleet["api"].start()
    documents = [{"name": holder.name, "target": holder.target(), **RETRIES} for holder in holders]
    api.client.create_jobs(documents)
    enqueued: dict[str, list[str]] = {holder.name: [] for holder in holders}
    async with trade.server.session() as look:
        async with asyncio.TaskGroup() as group:
            for name in trade.scale.nodes:
                group.create_task(trade.kill_nodes(name))
            await until(trade.any_node_ready, START_SECONDS, "a node to be ready")
            group.create_task(_enqueue(trade, look, api.client, holders, enqueued, runs))
        left = await _drained(look)
        deliveries = [await _delivery(look, holder, enqueued[holder.name]) for holder in holders]
        return DeliveryRecord(deliveries, len(trade.kills), await look.fetchval(LOST), left, trade.fleet.logs())


async def _enqueue(
    trade: Trade, look: Any, client: Any, holders: Sequence[Holder], enqueued: dict[str, list[str]], runs: int
) -> None:
    """In portions, each when most of those before have ended, so that kills meet runs until the end; and more of them
    until a kill has met one."""
    try:
        for portion in range(MOST_PORTIONS):
            for holder in holders:
                count = max(1, round(runs * holder.share / PORTIONS))
                enqueued[holder.name] += await asyncio.to_thread(_enqueue_many, client, holder.name, count)
            await until(lambda: _nearly_drained(look, runs), DRAIN_SECONDS, "most runs to end")
            if portion + 1 >= PORTIONS and trade.kills and await look.fetchval(LOST):
                return
    finally:
        trade.over.set()


def _enqueue_many(client: Any, task: str, count: int) -> list[str]:
    answer = client.enqueue_many(task, [{"payload": {"number": number}} for number in range(count)])
    return [run["id"] for run in answer["items"]]


async def _nearly_drained(look: Any, runs: int) -> bool:
    return bool(await look.fetchval(LEFT) <= runs / PORTIONS)


async def _drained(look: Any) -> int:
    left = 0

    async def none_left() -> bool:
        nonlocal left
        left = await look.fetchval(LEFT)
        return not left

    try:
        await until(none_left, DRAIN_SECONDS, "all runs to end")
    except AssertionError:
        return left
    return 0


async def _delivery(look: Any, holder: Holder, enqueued: Sequence[str]) -> Delivery:
    rows = {run: _status(status, reason) for run, status, reason in await look.fetch(READ_RUNS, ON_DEMAND, holder.name)}
    return Delivery(holder.name, holder.deduplicates, enqueued, rows, await holder.run_ids())


def _status(status: int, reason: str | None) -> str:
    if status == DEAD and reason == "lost":
        return GIVEN_UP
    return "succeeded" if status == SUCCEEDED else f"status {status}, {reason}"
