"""Routes about past ticks that are still to run: backfills and catch-ups."""

from __future__ import annotations

from detent.api.context import PREFIX, Api
from detent.api.references import job_id
from detent.api.routing import Routes
from detent.contract.tick import Backfilled, BackfillRequest, CatchUpState, DroppedTicks

routes = Routes(PREFIX)


@routes.post("/jobs/{id}/backfill", scope="operate", once=True)
async def backfill_job(api: Api, id: str, body: BackfillRequest) -> Backfilled:  # noqa: A002 - part of the contract
    """Run past ticks of a job, in addition to its schedule and after its live ticks."""
    found = await job_id(api, id)
    return await api.jobs.backfills.add(found, body, tenant=api.tenant, by=api.by)


@routes.get("/jobs/{id}/catchup")
async def get_catchup(api: Api, id: str) -> CatchUpState:  # noqa: A002 - as above
    """Get the past ticks that a job still has to run: missed ticks and backfills."""
    items = await api.jobs.backfills.outstanding(await job_id(api, id), tenant=api.tenant)
    return CatchUpState(left=sum(item.left for item in items), items=items)


@routes.post("/jobs/{id}/catchup/drop", scope="operate")
async def drop_catchup(api: Api, id: str) -> DroppedTicks:  # noqa: A002 - as above
    """Drop the past ticks that a job still has to run. Runs that were released continue."""
    return DroppedTicks(dropped=await api.jobs.backfills.drop(await job_id(api, id), tenant=api.tenant))
