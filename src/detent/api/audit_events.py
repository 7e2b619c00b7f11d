"""Routes about the audit log. Administrators see the events that concern their tenant; those of the default tenant also
the events of the cluster, and on request those of other tenants."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from detent.api.context import PREFIX, Api, check_default_tenant
from detent.api.cursors import LARGEST, after_event, binding, read_after_event
from detent.api.jobs import Limit
from detent.api.keys import managed_tenant
from detent.api.routing import Routes
from detent.contract.audit_event import AuditChain, AuditEvent
from detent.contract.page import Instant, Page
from detent.errors import UsageError
from detent.store.audit_log import EventFilter
from detent.store.jobs import DEFAULT_TENANT
from detent.store.keys import TenantName

routes = Routes(PREFIX)

Text = Annotated[str, Meta(min_length=1, max_length=200)]


class EventQuery(Struct, forbid_unknown_fields=True):
    """`action` is the beginning of one, such as job or job.delete; `actor` and `object` are an id or a name. `tenant`
    and `all_tenants` are for administrators of the default tenant."""

    action: Text | None = None
    actor: Text | None = None
    object: Text | None = None
    since: Instant | None = None
    until: Instant | None = None
    tenant: TenantName | None = None
    all_tenants: bool = False
    cursor: str | None = None
    limit: Limit = 50


class ChainQuery(Struct, forbid_unknown_fields=True):
    """`after`: only events behind this position."""

    after: Annotated[int, Meta(ge=0, le=LARGEST)] = 0
    cursor: str | None = None
    limit: Limit = 50


@routes.get("/audit-events", scope="admin")
async def list_audit_events(api: Api, query: EventQuery) -> Page[AuditEvent]:
    """List changes, logins and refusals from the newest to the oldest."""
    tenant = await _tenant(api, query)
    bound = binding(api.tenant, query)
    which = EventFilter(query.action, query.actor, query.object, query.since, query.until)
    events, following = await api.store.audit_log.list(
        which,
        tenant=tenant,
        cluster=tenant == DEFAULT_TENANT,
        below=read_after_event(query.cursor, bound),
        limit=query.limit,
    )
    return Page(events, None if following is None else after_event(following, bound))


@routes.get("/audit-events/chain", scope="admin")
async def list_audit_chain(api: Api, query: ChainQuery) -> Page[AuditEvent]:
    """List the events of all tenants in the order of their chain of hashes, to verify or export it."""
    check_default_tenant(api, "The chain of all tenants is read")
    bound = binding(api.tenant, query)
    after = read_after_event(query.cursor, bound) or query.after
    events, following = await api.store.audit_log.in_chain(after=after, limit=query.limit)
    return Page(events, None if following is None else after_event(following, bound))


@routes.get("/audit-events/chain/ends", scope="admin")
async def get_audit_chain(api: Api) -> AuditChain:
    """Get both ends of the chain of hashes, and how many events are not chained yet."""
    check_default_tenant(api, "The chain of all tenants is read")
    return await api.store.audit_log.chain()


async def _tenant(api: Api, query: EventQuery) -> int | None:
    if not query.all_tenants:
        return await managed_tenant(api, query.tenant)
    check_default_tenant(api, "Events of all tenants are read")
    if query.tenant is not None:
        raise UsageError("tenant and all_tenants are both given: keep one of the two.", "/all_tenants")
    return None
