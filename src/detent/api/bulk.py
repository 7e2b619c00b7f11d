"""POST /bulk: one change for all jobs that a search finds, one chunk per call.

The answer to a chunk has the cursor of the next one. Calls may be repeated: a job that is changed already stays as it
is.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from detent.api.context import PREFIX, Api
from detent.api.cursors import after_job, binding, read_after_job
from detent.api.role_limits import also_needs
from detent.api.routing import Routes
from detent.api.search import job_search
from detent.contract.job import BulkAction, BulkJob, BulkResult, OnResume
from detent.contract.page import Instant
from detent.domain.roles import Scope
from detent.errors import UsageError
from detent.jobs.bulk import BulkPause
from detent.store.job_search import JobSearch

routes = Routes(PREFIX)

# As for the single actions.
SCOPES: dict[BulkAction, Scope] = {
    "pause": "operate",
    "resume": "operate",
    "retry": "operate",
    "cancel": "operate",
    "delete": "write",
}


class BulkRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`filter` is a search as for the list of jobs; name:* finds all of them. With `dry_run` nothing is changed.
    `cursor` is that of the chunk before, and `limit` the most jobs of this one: it ends early if the ticks of its jobs
    are costly to compute. `reason` and `until` are for a pause, and `on_resume` is for a pause or its end, as for a
    single job."""

    action: BulkAction
    filter: Annotated[str, Meta(min_length=1, max_length=500)]
    dry_run: bool = False
    reason: Annotated[str, Meta(max_length=1000)] | None = None
    until: Instant | None = None
    on_resume: OnResume | None = None
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200


@routes.post("/bulk", scope="operate")
async def change_many(api: Api, body: BulkRequest) -> BulkResult:
    """Pause, resume or delete the jobs that a search finds, retry their dead runs or cancel their runs, in chunks."""
    return await change_found(api, body, _search(body.filter))


async def change_found(api: Api, body: BulkRequest, search: JobSearch) -> BulkResult:
    """As change_many, for a search that is not text."""
    with also_needs(api.caller, SCOPES[body.action]):
        return await _change_found(api, body, search)


async def _change_found(api: Api, body: BulkRequest, search: JobSearch) -> BulkResult:
    _check_pause(body)
    bound = binding(api.tenant, _Asked(body.action, body.filter, body.dry_run))
    after = read_after_job(body.cursor, bound)
    if body.dry_run:
        counted = await api.jobs.bulk.count(body.action, search, after=after, tenant=api.tenant)
        sample = [BulkJob(each.id, each.name, each.status) for each in counted.sample]
        following = None if counted.following is None else after_job(counted.following, bound)
        return BulkResult(
            action=body.action, dry_run=True, matched=counted.matched, sample=sample, next_cursor=following
        )
    done = await api.jobs.bulk.apply(
        body.action,
        search,
        after=after,
        limit=body.limit,
        tenant=api.tenant,
        by=api.by,
        asked={} if search.ids else {"filter": body.filter},
        pause=BulkPause(body.reason, body.until, body.on_resume),
    )
    following = None if done.following is None else after_job(done.following, bound)
    return BulkResult(
        action=body.action, dry_run=False, matched=done.matched, changed=done.changed, next_cursor=following
    )


def _check_pause(body: BulkRequest) -> None:
    """Fields about pauses are refused with other actions."""
    about: dict[str, tuple[BulkAction, ...]] = {
        "reason": ("pause",),
        "until": ("pause",),
        "on_resume": ("pause", "resume"),
    }
    for field, actions in about.items():
        if getattr(body, field) is not None and body.action not in actions:
            message = f"{field} goes with {' and '.join(actions)}, not with {body.action}: leave it out."
            raise UsageError(message, f"/{field}")


class _Asked(Struct):
    """What a cursor belongs to."""

    action: str
    filter: str
    dry_run: bool


def _search(text: str) -> JobSearch:
    try:
        return job_search(text, JobSearch())
    except UsageError as error:
        raise UsageError(error.message.replace("The search", "The filter"), "/filter") from error
