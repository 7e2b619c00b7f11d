"""Routes about runs. The id of a run encodes its tick, so decoding it needs no query; the beginning of one does."""

from __future__ import annotations

from detent.api.context import PREFIX, Api
from detent.api.jobs import RunQuery, page_of_runs
from detent.api.references import resolve_run, run_key, unknown_run
from detent.api.routing import Reply, Routes
from detent.api.serving import with_wait
from detent.contract.page import Page
from detent.contract.run import Run
from detent.contract.tick import RunExplanation
from detent.domain.identity import run_id
from detent.domain.states import RunStatus
from detent.telemetry.transitions import log_requested

routes = Routes(PREFIX)


@routes.get("/runs")
async def list_runs(api: Api, query: RunQuery) -> Page[Run]:
    """List the runs of all jobs from the newest tick to the oldest."""
    return await page_of_runs(api, query)


@routes.get("/runs/{id}")
async def get_run(api: Api, id: str) -> Run:  # noqa: A002 - the name of the path parameter is part of the contract
    """Get one run with its attempts."""
    run = await found_run(api, id)
    return await with_wait(api, run, run_key(str(run.id)))


@routes.get("/runs/{id}/explain")
async def explain_run(api: Api, id: str) -> RunExplanation:  # noqa: A002 - as above
    """Explain in sentences what happened to one run, or what it waits for."""
    run = await found_run(api, id)
    sentences = await api.jobs.explainer.run(run, run_key(str(run.id)), tenant=api.tenant)
    return RunExplanation(run_id=run.id, job_id=run.job_id, job=run.job, status=str(run.status), sentences=sentences)


@routes.post("/runs/{id}/cancel", or_else=(202,), scope="operate")
async def cancel_run(api: Api, id: str) -> Reply[Run]:  # noqa: A002 - as above
    """Cancel a run: a waiting run at once; a running one is asked to stop, and the answer is 202."""
    key = await resolve_run(api, id)
    status = await api.jobs.runs.cancel(key, tenant=api.tenant)
    cancelled = run_id(key)
    log_requested("run cancelled" if status is RunStatus.CANCELLED else "run asked to stop", [cancelled], api.by)
    return Reply(await found_run(api, str(cancelled)), 200 if status is RunStatus.CANCELLED else 202)


async def found_run(api: Api, text: str) -> Run:
    run = await api.store.runs.get(await resolve_run(api, text), tenant=api.tenant)
    if run is None:
        raise unknown_run(text)
    return run
