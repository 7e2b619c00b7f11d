"""Verbs about tenants: their quotas and allow lists, their suspension, export and deletion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.client.operation import Listing, Operation, Request
from detent.client.requests import PREFIX, no_content, reader
from detent.client.transport import PAGE_SIZE, segment
from detent.contract.page import Page
from detent.contract.tenant import EnqueueGrant, ExportedRow, Tenant, TenantContents


def create_tenant(name: str) -> Request[Tenant]:
    """Create a tenant."""
    return Request("POST", f"{PREFIX}/tenants", reader(Tenant), body={"name": name})


def list_tenants() -> Request[Page[Tenant]]:
    """List the tenants with their quotas."""
    return Request("GET", f"{PREFIX}/tenants", reader(Page[Tenant]), query={"limit": PAGE_SIZE})


def get_tenant(name: str) -> Request[Tenant]:
    """Get one tenant with its quotas."""
    return Request("GET", f"{PREFIX}/tenants/{segment(name)}", reader(Tenant))


def change_tenant(name: str, quotas: Mapping[str, Any]) -> Request[Tenant]:
    """Change these quotas; None is no limit. `allow` and `disallow` are lists of patterns that are added to or removed
    from the allow list, `allow_targets` is the whole list."""
    return Request("PATCH", f"{PREFIX}/tenants/{segment(name)}", reader(Tenant), body=quotas)


def suspend_tenant(name: str, reason: str | None = None) -> Request[Tenant]:
    """Suspend a tenant: no tick of its jobs fires, and its requests are refused."""
    return Request("POST", f"{PREFIX}/tenants/{segment(name)}/suspend", reader(Tenant), body={"reason": reason})


def resume_tenant(name: str) -> Request[Tenant]:
    """End the suspension of a tenant."""
    return Request("POST", f"{PREFIX}/tenants/{segment(name)}/resume", reader(Tenant))


def delete_tenant(name: str) -> Request[Tenant]:
    """Delete a suspended tenant with everything that it owns, in the background."""
    return Request("POST", f"{PREFIX}/tenants/{segment(name)}/delete", reader(Tenant))


def count_tenant(name: str) -> Request[TenantContents]:
    """Count what a tenant owns, by table."""
    return Request("GET", f"{PREFIX}/tenants/{segment(name)}/contents", reader(TenantContents))


def export_tenant(name: str) -> Request[Page[ExportedRow]]:
    """Export everything that a tenant owns, without its keys and the values of its secrets."""
    return Request("GET", f"{PREFIX}/tenants/{segment(name)}/export", reader(Page[ExportedRow]))


def list_enqueue_grants(name: str) -> Request[Page[EnqueueGrant]]:
    """List the database roles that may enqueue runs of a tenant with SQL."""
    return Request("GET", f"{PREFIX}/tenants/{segment(name)}/enqueue-grants", reader(Page[EnqueueGrant]))


def grant_enqueue(name: str, role: str) -> Request[EnqueueGrant]:
    """Let a database role enqueue runs of a tenant with SQL. The owner of the database schema has to execute the
    `statements` of the answer, if there are any."""
    return Request("PUT", f"{PREFIX}/tenants/{segment(name)}/enqueue-grants/{segment(role)}", reader(EnqueueGrant))


def revoke_enqueue(name: str, role: str) -> Request[None]:
    """Take back from a database role that it may enqueue runs of a tenant."""
    return Request("DELETE", f"{PREFIX}/tenants/{segment(name)}/enqueue-grants/{segment(role)}", no_content)


class TenantVerbs:
    """The verbs of the clients about tenants."""

    create_tenant = Operation(create_tenant)
    list_tenants = Listing(list_tenants)
    get_tenant = Operation(get_tenant)
    change_tenant = Operation(change_tenant)
    suspend_tenant = Operation(suspend_tenant)
    resume_tenant = Operation(resume_tenant)
    delete_tenant = Operation(delete_tenant)
    count_tenant = Operation(count_tenant)
    export_tenant = Listing(export_tenant)
    list_enqueue_grants = Listing(list_enqueue_grants)
    grant_enqueue = Operation(grant_enqueue)
    revoke_enqueue = Operation(revoke_enqueue)
