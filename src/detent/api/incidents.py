"""Routes about incidents: missed deadlines of jobs."""

from __future__ import annotations

from msgspec import Struct

from detent.api.context import PREFIX, Api
from detent.api.cursors import after_incident, binding, read_after_incident
from detent.api.dead_letters import JobReference
from detent.api.jobs import Limit
from detent.api.references import job_id
from detent.api.routing import Routes
from detent.contract.incident import Incident
from detent.contract.page import Page

routes = Routes(PREFIX)


class IncidentQuery(Struct, forbid_unknown_fields=True):
    """`open`: only those that are not closed. `job` is a name or an id."""

    open: bool = False
    job: JobReference | None = None
    cursor: str | None = None
    limit: Limit = 50


@routes.get("/incidents")
async def list_incidents(api: Api, query: IncidentQuery) -> Page[Incident]:
    """List incidents, jobs that did not start or finish in time, from the newest to the oldest."""
    job = None if query.job is None else await job_id(api, query.job)
    bound = binding(api.tenant, query)
    found = await api.store.expectations.incidents(
        tenant=api.tenant,
        before=read_after_incident(query.cursor, bound),
        limit=query.limit + 1,
        only_open=query.open,
        job_id=job,
    )
    shown = found[: query.limit]
    return Page(shown, after_incident(shown[-1].id, bound) if len(found) > len(shown) else None)
