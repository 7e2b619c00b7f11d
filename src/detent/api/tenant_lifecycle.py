"""Routes that suspend, resume, count, export and delete a tenant, and permit database roles to enqueue its runs.
Administrators of the default tenant manage all tenants; those of another tenant may count and export their own."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from detent.api.context import PREFIX, Api, check_default_tenant
from detent.api.cursors import after_export, binding, read_after_export
from detent.api.routing import Routes
from detent.api.tenants import MANAGED
from detent.contract.page import Page
from detent.contract.tenant import EnqueueGrant, ExportedRow, Tenant, TenantContents
from detent.errors import NotFound, TenantNotFound
from detent.store.enqueue_grants import UnknownDatabaseRole

routes = Routes(PREFIX)

LONGEST_ROLE = 63  # bytes: of a name of the database

Reason = Annotated[str, Meta(min_length=1, max_length=1000)]


class Suspension(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a tenant is suspended, shown with it."""

    reason: Reason | None = None


class ExportQuery(Struct, forbid_unknown_fields=True):
    cursor: str | None = None


@routes.post("/tenants/{name}/suspend", scope="admin")
async def suspend_tenant(api: Api, name: str, body: Suspension | None) -> Tenant:
    """Suspend a tenant: no tick of its jobs fires, and its requests are refused.

    Runs that were fired continue. Ticks of the suspension are recorded as skipped and do not run later.
    """
    check_default_tenant(api, MANAGED)
    await api.store.tenant_lifecycle.suspend(name, None if body is None else body.reason, api.by)
    return await api.store.tenants.get(name)


@routes.post("/tenants/{name}/resume", scope="admin")
async def resume_tenant(api: Api, name: str) -> Tenant:
    """End the suspension of a tenant. Its jobs continue with their next tick."""
    check_default_tenant(api, MANAGED)
    await api.store.tenant_lifecycle.resume(name)
    return await api.store.tenants.get(name)


@routes.post("/tenants/{name}/delete", scope="admin", status=202)
async def delete_tenant(api: Api, name: str) -> Tenant:
    """Delete a suspended tenant with everything that it owns.

    Its keys are revoked at once. The nodes delete the rest in the background; the tenant shows how far they are, and
    is gone at the end. The audit log stays.
    """
    check_default_tenant(api, MANAGED)
    await api.store.tenant_lifecycle.begin_deletion(name, api.by)
    api.access.check_now()
    return await api.store.tenants.get(name)


@routes.get("/tenants/{name}/contents", scope="admin")
async def count_tenant(api: Api, name: str) -> TenantContents:
    """Count what a tenant owns, by table: what its deletion would delete."""
    rows = await api.store.tenant_deletions.contents(tenant=await _number(api, name))
    return TenantContents(name=name, rows=rows, total=sum(rows.values()))


@routes.get("/tenants/{name}/export", scope="admin")
async def export_tenant(api: Api, name: str, query: ExportQuery) -> Page[ExportedRow]:
    """Export everything that a tenant owns, page by page, without its keys and the values of its secrets."""
    number = await _number(api, name)
    bound = binding(api.tenant, query, name)
    rows, following = await api.store.tenant_exports.page(read_after_export(query.cursor, bound), tenant=number)
    return Page(rows, None if following is None else after_export(following, bound))


@routes.get("/tenants/{name}/enqueue-grants", scope="admin")
async def list_enqueue_grants(api: Api, name: str) -> Page[EnqueueGrant]:
    """List the roles of the database server that may enqueue runs of a tenant with the SQL functions."""
    return Page(list(await api.store.enqueue_grants.list(tenant=await _number(api, name))), None)


@routes.put("/tenants/{name}/enqueue-grants/{role}", scope="admin")
async def grant_enqueue(api: Api, name: str, role: str) -> EnqueueGrant:
    """Let a role of the database server enqueue runs of a tenant with the SQL functions."""
    check_default_tenant(api, MANAGED)
    if len(role.encode()) > LONGEST_ROLE:
        raise _unknown_role(role)
    try:
        return await api.store.enqueue_grants.grant(name, role)
    except UnknownDatabaseRole as error:
        raise _unknown_role(role) from error


@routes.delete("/tenants/{name}/enqueue-grants/{role}", scope="admin")
async def revoke_enqueue(api: Api, name: str, role: str) -> None:
    """Take back from a role of the database server that it may enqueue runs of a tenant."""
    check_default_tenant(api, MANAGED)
    if not await api.store.enqueue_grants.revoke(name, role):
        raise NotFound(f"The role {role!r} may not enqueue runs of the tenant {name!r}: there is nothing to revoke.")


def _unknown_role(role: str) -> NotFound:
    return NotFound(f"The database server has no role {role!r}: create it with CREATE ROLE, or give another name.")


async def _number(api: Api, name: str) -> int:
    """Only administrators of the default tenant learn which tenants exist."""
    number = await api.store.tenants.number(name)
    if number != api.tenant:
        check_default_tenant(api, MANAGED)
    if number is None:
        raise TenantNotFound(name)
    return number
