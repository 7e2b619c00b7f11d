"""On-demand runs that move while another statement wants them. tests/interleavings has every order of these."""

from __future__ import annotations

from typing import Any

from detent.store import Store
from detent.store.tasks import trigger
from tests.support.factories import add_job


async def test_a_trigger_that_had_to_wait_for_its_job_gets_a_free_lane(store: Store, look: Any) -> None:
    """Its transaction began before the run was due."""
    job = await add_job(look)
    async with look.transaction():
        await look.execute("SELECT pg_sleep(0.01)")
        started = await trigger(look, job, None)
    assert started is not None
    _, waits = started
    assert not waits
    assert await look.fetchval("SELECT lane FROM live_runs") == 0
