"""Routes about dead runs, and about running a run again.

A retry is a new run of the same tick, with its own idempotency key. A redrive continues the same run with the same key,
so that a receiver that has done the work recognises it.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from detent.api.context import PREFIX, Api
from detent.api.cursors import after_run, binding, read_after_run
from detent.api.jobs import Limit
from detent.api.references import job_id, resolve_run
from detent.api.routing import Reply, Routes
from detent.api.runs import found_run
from detent.contract.page import Instant, Page
from detent.contract.run import DeadGroups, Discarded, Left, Redriven, Run
from detent.domain.identity import RunKey, decode_run_id, run_id
from detent.errors import UsageError
from detent.store.dead_letters import MAX_AT_ONCE, MAX_EXAMINED, DeadLetterFilter
from detent.telemetry.transitions import log_requested

routes = Routes(PREFIX)

RunIds = Annotated[list[UUID], Meta(min_length=1, max_length=MAX_AT_ONCE)]
JobReference = Annotated[str, Meta(min_length=1, max_length=200)]
Group = Annotated[str, Meta(pattern="^[0-9a-f]{12}$")]
AtOnce = Annotated[int, Meta(ge=1, le=MAX_AT_ONCE)]


class DeadLetterQuery(Struct, forbid_unknown_fields=True):
    """`job` is a name or an id, `group` one of /dead-letters/groups."""

    job: JobReference | None = None
    group: Group | None = None
    cursor: str | None = None
    limit: Limit = 50


class GroupQuery(Struct, forbid_unknown_fields=True):
    """`job` is a name or an id."""

    job: JobReference | None = None


class ChosenRuns(Struct, forbid_unknown_fields=True, kw_only=True):
    """Which dead runs: those in `runs`, or `all`. With `all`, `job` (a name or an id) limits them to one job, `group`
    to one group of errors, and `before` to those that were dead then. At most `limit` of them at once."""

    runs: RunIds | None = None
    all: bool = False
    job: JobReference | None = None
    group: Group | None = None
    before: Instant | None = None
    limit: AtOnce = MAX_AT_ONCE


@routes.post("/jobs/{id}/retry", scope="operate", status=202, once=True)
async def retry_job(api: Api, id: str) -> Reply[Run]:  # noqa: A002 - the name of the path parameter is part of the contract
    """Run a job's latest finished run again, now, as a new run of the same tick."""
    return await _answer(api, await api.jobs.runs.retry_latest(await job_id(api, id), tenant=api.tenant))


@routes.post("/runs/{id}/retry", scope="operate", status=202, once=True)
async def retry_run(api: Api, id: str) -> Reply[Run]:  # noqa: A002 - as above
    """Run a finished run again, now, as a new run of the same tick."""
    return await _answer(api, await api.jobs.runs.retry(await resolve_run(api, id), tenant=api.tenant))


@routes.get("/dead-letters")
async def list_dead_letters(api: Api, query: DeadLetterQuery) -> Page[Run]:
    """List dead runs from the newest tick to the oldest."""
    return await page_of_dead_letters(api, query)


async def page_of_dead_letters(api: Api, query: DeadLetterQuery, among: int | None = None) -> Page[Run]:
    """`among`: search a group only in this many of the newest dead runs."""
    job = None if query.job is None else await job_id(api, query.job)
    bound = binding(api.tenant, query)
    after = read_after_run(query.cursor, bound)
    runs, following = await api.store.dead_letters.list(
        job=job, group=query.group, after=after, limit=query.limit, among=among, tenant=api.tenant
    )
    return Page(runs, None if following is None else after_run(following, bound))


@routes.get("/dead-letters/groups")
async def list_dead_groups(api: Api, query: GroupQuery) -> DeadGroups:
    """List dead runs grouped by error, where numbers, ids and addresses do not count."""
    return await dead_groups(api, query)


async def dead_groups(api: Api, query: GroupQuery, among: int = MAX_EXAMINED) -> DeadGroups:
    """`among`: group only this many of the newest dead runs."""
    job = None if query.job is None else await job_id(api, query.job)
    return await api.store.dead_letters.groups(job=job, among=among, tenant=api.tenant)


@routes.post("/dead-letters/redrive", scope="operate", once=True)
async def redrive_dead_letters(api: Api, body: ChosenRuns) -> Redriven:
    """Retry dead runs under their own ids, with the full number of attempts."""
    if body.runs is None:
        which = await _which(api, body)
        done = await api.jobs.dead_letters.redrive(which, body.limit, tenant=api.tenant)
        log_requested("run redriven", [run_id(key) for key in done.runs], api.by)
        return Redriven(redriven=[run_id(key) for key in done.runs], left=[], remaining=done.remaining)
    keys = _named(body, body.runs)
    did = await api.store.reruns.redrive(list(keys.values()), tenant=api.tenant)
    redriven, waiting = ({run_id(key) for key in some} for some in (did.runs, did.waiting))
    log_requested("run redriven", redriven, api.by)
    named = list(dict.fromkeys(body.runs))
    left = [Left(each, "overlap" if each in waiting else "not dead") for each in named if each not in redriven]
    return Redriven(redriven=[each for each in named if each in redriven], left=left, remaining=len(waiting))


@routes.post("/dead-letters/discard", scope="operate", once=True)
async def discard_dead_letters(api: Api, body: ChosenRuns) -> Discarded:
    """Discard dead runs: they stay in history, and are no longer listed here."""
    if body.runs is None:
        which = await _which(api, body)
        done = await api.store.dead_letters.discard_all(which, body.limit, tenant=api.tenant)
        log_requested("run discarded", [run_id(key) for key in done.runs], api.by)
        return Discarded(discarded=len(done.runs), left=[], remaining=done.remaining)
    keys = _named(body, body.runs)
    done = await api.store.dead_letters.discard(list(keys.values()), tenant=api.tenant)
    discarded = {run_id(key) for key in done.runs}
    log_requested("run discarded", discarded, api.by)
    left = [each for each in dict.fromkeys(body.runs) if each not in discarded]
    return Discarded(discarded=len(discarded), left=left, remaining=0)


async def _which(api: Api, body: ChosenRuns) -> DeadLetterFilter:
    if not body.all:
        raise UsageError('Give either {"runs": [id, …]} or {"all": true}.', "/runs")
    job = None if body.job is None else await job_id(api, body.job)
    return DeadLetterFilter(job, body.group, body.before)


def _named(body: ChosenRuns, ids: list[UUID]) -> dict[UUID, RunKey]:
    if body.all:
        raise UsageError('Give either {"runs": [id, …]} or {"all": true}.', "/runs")
    for name, given in (("job", body.job), ("group", body.group), ("before", body.before)):
        if given is not None:
            raise UsageError(f"{name} goes with all, not with runs: leave it out.", f"/{name}")
    return {found: key for found in ids if (key := decode_run_id(found)) is not None}


async def _answer(api: Api, key: RunKey) -> Reply[Run]:
    run = await found_run(api, str(run_id(key)))
    log_requested("run retried on request", [run.id], api.by)
    return Reply(run, Location=f"{PREFIX}/runs/{run.id}")
