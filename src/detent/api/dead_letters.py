"""Routes about runs that were given up, and about runs that are run once more.

A retry is a new run of the same tick with a key of its own. A re-drive is the same run going on, with the key it had,
so that a receiver that had done the work can tell.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from detent.api.context import PREFIX, Api
from detent.api.cursors import after_run, binding, read_after_run
from detent.api.jobs import Limit, job_id
from detent.api.routing import Reply, Routes
from detent.api.runs import found_run, run_key
from detent.errors import UsageError
from detent.identity import RunKey, decode_run_id, run_id
from detent.shapes import Left, Page, Redriven, Run
from detent.store.reruns import MOST_REDRIVEN

routes = Routes(PREFIX)

RunIds = Annotated[list[UUID], Meta(min_length=1, max_length=MOST_REDRIVEN)]
JobReference = Annotated[str, Meta(min_length=1, max_length=200)]


class DeadLetterQuery(Struct, forbid_unknown_fields=True):
    """`job` is a name or an id."""

    job: JobReference | None = None
    cursor: str | None = None
    limit: Limit = 50


class Redrive(Struct, forbid_unknown_fields=True, kw_only=True):
    """Which dead runs: those of `runs`, or all there are, of one job if `job` (a name or an id) is given."""

    runs: RunIds | None = None
    all: bool = False
    job: JobReference | None = None


@routes.post("/jobs/{id}/retry", scope="operate", status=202, once=True)
async def retry_job(api: Api, id: str) -> Reply[Run]:  # noqa: A002 - the name of the path parameter is part of the contract
    """Run a job's latest finished run once more, at once."""
    return await _answer(api, await api.store.reruns.retry_latest(await job_id(api, id), tenant=api.tenant))


@routes.post("/runs/{id}/retry", scope="operate", status=202, once=True)
async def retry_run(api: Api, id: str) -> Reply[Run]:  # noqa: A002 - as above
    """Run a finished run once more, at once, as a new run of the same tick."""
    return await _answer(api, await api.store.reruns.retry(run_key(id), tenant=api.tenant))


@routes.get("/dead-letters")
async def list_dead_letters(api: Api, query: DeadLetterQuery) -> Page[Run]:
    """List dead runs from the newest tick to the oldest."""
    job = None if query.job is None else await job_id(api, query.job)
    bound = binding(api.tenant, query)
    runs, following = await api.store.reruns.dead(
        job=job, after=read_after_run(query.cursor, bound), limit=query.limit, tenant=api.tenant
    )
    return Page(runs, None if following is None else after_run(following, bound))


@routes.post("/dead-letters/redrive", scope="operate", once=True)
async def redrive_dead_letters(api: Api, body: Redrive) -> Redriven:
    """Let dead runs go on as themselves, with all their tries anew."""
    if (body.runs is None) == (not body.all):
        raise UsageError('Give either the runs, {"runs": [id, …]}, or {"all": true}.', "/runs")
    if body.runs is not None:
        if body.job is not None:
            raise UsageError("A job is named beside runs, which belong to theirs: leave it out.", "/job")
        return await _redrive_some(api, body.runs)
    job = None if body.job is None else await job_id(api, body.job)
    done = await api.store.reruns.redrive_all(job=job, tenant=api.tenant)
    left = [Left(run_id(key), "overlap") for key in done.waiting]
    return Redriven([run_id(key) for key in done.runs], left, done.more)


async def _redrive_some(api: Api, ids: list[UUID]) -> Redriven:
    keys = {found: key for found in ids if (key := decode_run_id(found)) is not None}
    done = await api.store.reruns.redrive(list(keys.values()), tenant=api.tenant)
    redriven, waiting = ({run_id(key) for key in some} for some in (done.runs, done.waiting))
    left = [
        Left(found, "overlap" if found in waiting else "not dead")
        for found in dict.fromkeys(ids)
        if found not in redriven
    ]
    return Redriven([found for found in dict.fromkeys(ids) if found in redriven], left, False)


async def _answer(api: Api, key: RunKey) -> Reply[Run]:
    run = await found_run(api, str(run_id(key)))
    return Reply(run, Location=f"{PREFIX}/runs/{run.id}")
