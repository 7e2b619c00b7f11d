"""Verbs about tenants, their quotas and their allow lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.client.operation import Listing, Operation, Request
from detent.client.requests import PREFIX, reader
from detent.client.transport import PAGE_SIZE, segment
from detent.contract.page import Page
from detent.contract.tenant import Tenant


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


class TenantVerbs:
    """The verbs of the clients about tenants."""

    create_tenant = Operation(create_tenant)
    list_tenants = Listing(list_tenants)
    get_tenant = Operation(get_tenant)
    change_tenant = Operation(change_tenant)
