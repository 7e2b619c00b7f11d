"""Builders of rows in any state, written straight into the tables so that a test of one verb needs no other."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import msgspec

from detent.domain.identity import partition_of
from detent.domain.schedule import Schedule
from detent.store import migrate

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
TTL = "1 hour"


async def add_node(connection: Any, node: int, *, evicted: bool = False) -> int:
    await connection.execute(
        "INSERT INTO nodes (node, evicted, ttl, expires_at, host, pid, roles, version, tzdata, knows)"
        " VALUES ($1, $2, $3::text::interval, now() + $3::text::interval, 'test', 1,"
        " '{scheduler,worker}', 'test', 'test', $4)",
        node,
        evicted,
        TTL,
        len(migrate.known()),
    )
    return node


async def add_schedule(connection: Any, schedule: Schedule) -> int:
    stored = msgspec.json.encode(schedule.to_stored(), order="deterministic").decode()
    number: int = await connection.fetchval(
        "INSERT INTO schedules (stored, digest) VALUES ($1, $2)"
        " ON CONFLICT (digest) DO UPDATE SET stored = excluded.stored RETURNING schedule",
        stored,
        hashlib.sha256(stored.encode()).digest(),
    )
    return number


async def add_queue(connection: Any, name: str = "default", needs: str = "", tenant: int = 1) -> int:
    number: int = await connection.fetchval(
        "INSERT INTO queues (tenant, name, needs) VALUES ($1, $2, $3)"
        " ON CONFLICT (tenant, name, needs) DO UPDATE SET name = excluded.name RETURNING queue",
        tenant,
        name,
        needs,
    )
    return number


async def add_job(
    connection: Any,
    next_tick: datetime | None = LONG_AGO,
    *,
    every: str = "every 1h",
    job_id: UUID | None = None,
    name: str | None = None,
    definition: dict[str, Any] | None = None,
    needs: str = "",
    **cursor: Any,
) -> int:
    """A job with its cursor on `next_tick`; other keywords are columns of the cursor."""
    job_id = job_id or uuid4()
    document = definition or {"schedule": every, "target": {"type": "http", "url": "http://127.0.0.1:9/"}}
    job: int = await connection.fetchval(
        "INSERT INTO jobs (id, name, partition, target, definition) VALUES ($1, $2, $3, $4, $5) RETURNING job",
        job_id,
        name or f"job-{job_id.hex[-12:]}",
        partition_of(job_id),
        document["target"]["type"],
        msgspec.json.encode(document).decode(),
    )
    columns = {
        "job": job,
        "next_tick": next_tick,
        "fire_at": next_tick,
        "partition": partition_of(job_id),
        "queue": await add_queue(connection, needs=needs),
        "schedule": await add_schedule(connection, Schedule.parse(document["schedule"])),
        **cursor,
    }
    places = ", ".join(f"${n}" for n in range(1, len(columns) + 1))
    await connection.execute(f"INSERT INTO cursors ({', '.join(columns)}) VALUES ({places})", *columns.values())
    return job


async def add_live_run(connection: Any, job: int, scheduled_at: datetime = LONG_AGO, **columns: Any) -> None:
    values = {
        "job": job,
        "scheduled_at": scheduled_at,
        "token": (1 << 22) | 1,
        "not_before": scheduled_at,
        "queue": 1,
        "revision": 1,
        "lane": 0,
        "priority": 5,
        **columns,
    }
    places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
    await connection.execute(f"INSERT INTO live_runs ({', '.join(values)}) VALUES ({places})", *values.values())


async def add_task(
    connection: Any,
    *,
    name: str,
    definition: dict[str, Any] | None = None,
    queue: str = "default",
    tenant: int = 1,
    key_text: str | None = None,
    key_limit: int | None = None,
    key_rate: float | None = None,
    key_shared: bool = False,
) -> int:
    """A job without a schedule."""
    document = {"schedule": "every 1h", "target": {"type": "http", "url": "http://127.0.0.1:9/"}, **(definition or {})}
    job = await add_job(connection, None, name=name, definition=document)
    await connection.execute(
        "UPDATE cursors SET task = true, queue = $2, key_text = $3, key_limit = $4, key_rate = $5, key_shared = $6"
        " WHERE job = $1",
        job, await add_queue(connection, queue, "task:", tenant), key_text, key_limit, key_rate, key_shared,
    )  # fmt: skip
    if tenant != 1:
        await connection.execute("UPDATE jobs SET tenant = $2 WHERE job = $1", job, tenant)
    return job
