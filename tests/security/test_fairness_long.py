"""A tenant that floods a node, and one whose 150 calls hang: how late another's runs start.

Calls that hang and those of the quiet tenant are real ones over HTTP. The flood only waits: the server that it would
call takes its time from the same processors.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from detent.domain.job import HttpTarget
from detent.domain.run import Call, Outcome, Succeeded
from detent.store import Store
from tests.support.sink import Sink, http_target
from tests.support.tenants import add_job, add_ready, add_tenant
from tests.support.waiting import until

Runner = Callable[[Call], Awaitable[Outcome]]

SLOTS = 100
FLOOD = 20_000
HANGING = 150
QUIET_JOBS = 20
SECONDS = 30


@pytest.fixture
async def http() -> AsyncIterator[Runner]:
    """Calls HTTP targets, any address; a run of the flood takes 50 ms."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call_target(call: Call) -> Outcome:
            assert isinstance(call.target, HttpTarget)
            if call.job == "flood":
                await asyncio.sleep(0.05)
                return Succeeded()
            headers = {
                "Idempotency-Key": call.idempotency_key,
                "Detent-Run-Id": call.run_id,
                "Detent-Job": call.job,
                "Detent-Scheduled-At": call.scheduled_at.isoformat(),
                "Detent-Attempt": str(call.attempt),
                "Detent-Token": str(call.token),
            }
            async with session.post(call.target.url, headers=headers) as response:
                await response.read()
            return Succeeded()

        yield call_target


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("hanging", [0, HANGING], ids=["flood", "flood and 150 calls that hang"])
async def test_a_tenants_ticks_start_within_a_second_beside(
    look: Any, store: Store, start: Any, http: Runner, hanging: int
) -> None:
    noisy, quiet = await add_tenant(store, "noisy"), await add_tenant(store, "quiet")
    with Sink() as sink:
        fields: dict[str, Any] = {"timeout_seconds": 300}
        hang = await add_job(store, look, noisy, "hang", target=http_target(sink, "hang"), **fields)
        flood = await add_job(store, look, noisy, "flood", target=http_target(sink), **fields)
        await add_ready(look, *hang, hanging, priority=9)
        await add_ready(look, *flood, FLOOD)
        for number in range(QUIET_JOBS):
            await add_job(store, look, quiet, f"quiet-{number}", target=http_target(sink), schedule="every 1s")
        session = await start(http, concurrency=SLOTS)
        await until(lambda: session.worker.slots.running >= SLOTS // 2, 30)
        began = await look.fetchval("SELECT now()")
        await asyncio.sleep(SECONDS)
        found = await look.fetchrow(
            "SELECT count(*) AS runs, percentile_cont(0.5) WITHIN GROUP (ORDER BY late) AS p50,"
            " percentile_cont(0.99) WITHIN GROUP (ORDER BY late) AS p99, max(late) AS most FROM ("
            " SELECT extract(epoch FROM h.started_at - h.scheduled_at)::float8 AS late"
            " FROM run_history h JOIN jobs j USING (job)"
            " WHERE j.tenant = $1 AND h.status = 1 AND h.scheduled_at >= $2) found",
            quiet, began,
        )  # fmt: skip
        done = await look.fetchval("SELECT count(*) FROM run_history WHERE job = $1 AND status = 1", flood[0])
        facts = f"{found['runs']} runs: p50 {found['p50']}, p99 {found['p99']}, most {found['most']} s"
        print(f"\nbeside {hanging} calls that hang and {done} of {FLOOD} runs of the flood: {facts}")  # noqa: T201 - the evidence
        assert len(sink.of("hang")) == (SLOTS * 4 // 5 if hanging else 0)
        sink.release()
        await session.close(30)
    assert found["runs"] >= QUIET_JOBS * (SECONDS - 3)
    assert found["p99"] < 1.0, facts
