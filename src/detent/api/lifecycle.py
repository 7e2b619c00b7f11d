"""Routes about skipped ticks, cancelling all runs of a job, and its revisions."""

from __future__ import annotations

from datetime import UTC
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from detent.api.context import PREFIX, Api
from detent.api.cursors import after_revision, binding, read_after_revision
from detent.api.jobs import Limit, Reason
from detent.api.references import job_id
from detent.api.routing import Reply, Routes
from detent.contract.job import Job
from detent.contract.page import Instant, Page
from detent.contract.revision import FieldChange, WholeRevision
from detent.contract.revision import Revision as RevisionShape
from detent.contract.run import CancelledRuns
from detent.contract.tick import Skip
from detent.declarative.plan import differences_between
from detent.domain.documents import plain
from detent.domain.identity import run_id
from detent.errors import UsageError
from detent.store.revisions import RevisionRow

routes = Routes(PREFIX)

Number = Annotated[int, Meta(ge=1, le=2_147_483_647)]


class SkipRequest(Struct, forbid_unknown_fields=True):
    """Which tick is not to run, and why."""

    at: Instant
    reason: Reason | None = None


class SkipQuery(Struct, forbid_unknown_fields=True):
    """Which tick is to run after all."""

    at: Instant


class RevisionQuery(Struct, forbid_unknown_fields=True):
    cursor: str | None = None
    limit: Limit = 50


class Rollback(Struct, forbid_unknown_fields=True):
    """The revision to restore, as a new revision."""

    revision: Number


@routes.post("/jobs/{id}/skip", scope="operate")
async def skip_tick(api: Api, id: str, body: SkipRequest) -> Skip:  # noqa: A002 - the name of the path parameter is part of the contract
    """Skip one future tick; the schedule continues after it."""
    job, at = await job_id(api, id), body.at.astimezone(UTC)
    return await api.jobs.lifecycle.skip(job, at, body.reason, tenant=api.tenant, by=api.by)


@routes.delete("/jobs/{id}/skip", scope="operate")
async def unskip_tick(api: Api, id: str, query: SkipQuery) -> None:  # noqa: A002 - as above
    """Undo the skip of a future tick."""
    await api.jobs.lifecycle.unskip(await job_id(api, id), query.at.astimezone(UTC), tenant=api.tenant)


@routes.get("/jobs/{id}/skips")
async def list_skips(api: Api, id: str) -> list[Skip]:  # noqa: A002 - as above
    """List the ticks of a job that will be skipped, and those skipped recently."""
    return await api.jobs.lifecycle.skips(await job_id(api, id), tenant=api.tenant)


@routes.post("/jobs/{id}/cancel", scope="operate")
async def cancel_runs_of_job(api: Api, id: str) -> CancelledRuns:  # noqa: A002 - as above
    """Cancel all open runs of a job: waiting ones, up to 10,000 with each request; running ones are asked to stop."""
    done = await api.jobs.lifecycle.cancel_runs(await job_id(api, id), tenant=api.tenant)
    return CancelledRuns([run_id(key) for key in done.cancelled], [run_id(key) for key in done.stopping], done.more)


@routes.get("/jobs/{id}/revisions")
async def list_revisions(api: Api, id: str, query: RevisionQuery) -> Page[RevisionShape]:  # noqa: A002 - as above
    """List the revisions of a job from the newest to the oldest, each with what changed."""
    job = await job_id(api, id)
    bound = binding(api.tenant, query, str(job))
    found, following = await api.store.revisions.list(
        job, below=read_after_revision(query.cursor, bound), limit=query.limit, tenant=api.tenant
    )
    before = [*found[1:], None]
    items = [_shape(revision, former) for revision, former in zip(found, before, strict=True)][: query.limit]
    return Page(items, None if following is None else after_revision(following, bound))


@routes.get("/jobs/{id}/revisions/{revision}")
async def get_revision(api: Api, id: str, revision: str) -> WholeRevision:  # noqa: A002 - as above
    """Get a job as it was in one revision."""
    job, number = await job_id(api, id), _number(revision)
    found = await api.jobs.revisions.get(job, number, tenant=api.tenant)
    former = await api.store.revisions.before(job, number, tenant=api.tenant)
    shape = _shape(found, former)
    return WholeRevision(**msgspec.structs.asdict(shape), definition=found.definition)


@routes.post("/jobs/{id}/rollback", scope="write")
async def roll_back_job(api: Api, id: str, body: Rollback) -> Reply[Job]:  # noqa: A002 - as above
    """Restore an earlier revision of a job, as a new revision. Like every change, this triggers no run."""
    job = await job_id(api, id)
    changed, change = await api.jobs.revisions.roll_back(job, body.revision, tenant=api.tenant, by=api.by)
    return Reply(changed, Detent_Change=change)


def _shape(revision: RevisionRow, former: RevisionRow | None) -> RevisionShape:
    return RevisionShape(
        revision=revision.revision,
        changed_by=revision.changed_by,
        made_at=revision.made_at,
        replaced_at=revision.replaced_at,
        changes=_changes(revision, former),
    )


def _changes(revision: RevisionRow, former: RevisionRow | None) -> list[FieldChange] | None:
    if former is None or former.revision != revision.revision - 1:  # the previous revision is no longer kept
        return [] if revision.revision == 1 else None
    if revision.definition is None or former.definition is None:
        return None
    found = differences_between(plain(former.definition), plain(revision.definition))
    return [FieldChange(path=one.path, **_values(one)) for one in found]


def _values(difference: Any) -> dict[str, Any]:
    values = {}
    if difference.has_before:
        values["before"] = difference.before
    if difference.has_after:
        values["after"] = difference.after
    return values


def _number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) < 1 << 31:
        raise UsageError(f"The revision is {text!r}: give its number, such as 3.", "/revision")
    return int(text)
