"""On-demand runs for tests of their statements: enqueued with the SQL functions, claimed and settled by a node."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from detent.domain.identity import RunKey, decode_run_id
from detent.domain.run import Claim, HeldRun
from detent.domain.states import CODES, RunStatus
from detent.store import Store
from detent.store.tasks import TaskHead
from tests.support.ends import ended_run, failed_run

NODE = 11
OTHER = 12
TOKEN = 1 << 22 | 1
SOON = timedelta(0)


async def enqueue(look: Any, task: str = "mail", **arguments: Any) -> Any:
    """One run by named arguments, of which the payload is any JSON value."""
    if "payload" in arguments:
        arguments["payload"] = json.dumps(arguments["payload"])
    named = "".join(f", {name} => ${place}" for place, name in enumerate(arguments, 2))
    return await look.fetchrow(f"SELECT * FROM enqueue(task => $1{named})", task, *arguments.values())


async def enqueue_many(look: Any, *runs: Any, task: str = "mail", tenant: str = "default") -> list[Any]:
    rows: list[Any] = await look.fetch("SELECT * FROM enqueue_many($1, $2, $3)", task, json.dumps(runs), tenant)
    return rows


def key_of(row: Any) -> RunKey:
    key = decode_run_id(row["run"])
    assert key is not None
    return key


async def waiting(look: Any, columns: str = "*") -> list[Any]:
    return list(await look.fetch(f"SELECT {columns} FROM backlog ORDER BY serial"))


async def count(look: Any, table: str) -> int:
    found: int = await look.fetchval(f"SELECT count(*) FROM {table}")
    return found


async def heads(verbs: Store, *, keyed: bool = False) -> list[TaskHead]:
    return [head for head in await verbs.tasks.heads(None) if head.keyed is keyed and not head.laned]


async def claim(
    verbs: Store, limit: int = 1000, *, keyed: bool = False, node: int = NODE, **options: Any
) -> list[Claim]:
    found = await heads(verbs, keyed=keyed)
    return (await verbs.tasks.claim(node, 1, found, limit, **options)).runs if found else []


def end(claims: Sequence[Claim], status: RunStatus = RunStatus.SUCCEEDED) -> list[HeldRun]:
    if status is RunStatus.SUCCEEDED:
        return [ended_run(each, each.scheduled_at, each.scheduled_at, 1) for each in claims]
    return [
        ended_run(each, each.scheduled_at, each.scheduled_at, CODES[status], "retries exhausted", None, "failed", "no")
        for each in claims
    ]


async def settle(verbs: Store, claims: Sequence[Claim], status: RunStatus = RunStatus.SUCCEEDED) -> None:
    assert await verbs.live_runs.settle(NODE, end(claims, status)) == []


def failure(run: Claim, delay: timedelta = SOON) -> HeldRun:
    return failed_run(run, run.scheduled_at, run.scheduled_at, "failed", "no", delay)


async def retry(verbs: Store, claims: Sequence[Claim], delay: timedelta = SOON) -> None:
    assert await verbs.live_runs.retry(NODE, [failure(each, delay) for each in claims]) == []


async def database_time(look: Any) -> datetime:
    now: datetime = await look.fetchval("SELECT clock_timestamp()")
    return now
