"""Routes about tenants and what each may have. Administrators of the default tenant look after all of them; a tenant's
own see what it has and may have, and cannot change that."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from detent.api.context import PREFIX, Api, check_default_tenant
from detent.api.cursors import after_tenant, binding, read_after_tenant
from detent.api.jobs import Limit
from detent.api.routing import Routes
from detent.contract.page import Page
from detent.contract.tenant import Tenant
from detent.store.keys import TenantName

routes = Routes(PREFIX)

LARGEST = 2_147_483_647
LOOKED_AFTER = "Other tenants are looked after"

Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Bytes = Annotated[int, Meta(ge=1, le=LARGEST)]
Rate = Annotated[float, Meta(ge=0.001, le=1_000_000)]
Weight = Annotated[int, Meta(ge=1, le=100)]


class TenantSpec(Struct, frozen=True, forbid_unknown_fields=True):
    name: TenantName


class TenantPatch(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a tenant may have from now on. What is left out stays; null takes a limit away. A tenant that has more jobs
    than it may have keeps them."""

    max_jobs: Count | UnsetType | None = UNSET
    max_payload_bytes: Bytes | UnsetType | None = UNSET
    max_concurrent: Count | UnsetType | None = UNSET
    max_runs_per_second: Rate | UnsetType | None = UNSET
    weight: Weight | UnsetType = UNSET


class TenantQuery(Struct, forbid_unknown_fields=True):
    cursor: str | None = None
    limit: Limit = 50


@routes.post("/tenants", status=201, scope="admin")
async def create_tenant(api: Api, body: TenantSpec) -> Tenant:
    """Make a tenant: jobs, runs and keys that no other tenant can see."""
    check_default_tenant(api, LOOKED_AFTER)
    return await api.store.tenants.add(body.name)


@routes.get("/tenants", scope="admin")
async def list_tenants(api: Api, query: TenantQuery) -> Page[Tenant]:
    """List the tenants in the order of their creation."""
    check_default_tenant(api, LOOKED_AFTER)
    bound = binding(api.tenant, query)
    tenants, following = await api.store.tenants.list(after=read_after_tenant(query.cursor, bound), limit=query.limit)
    return Page(tenants, None if following is None else after_tenant(following, bound))


@routes.get("/tenants/{name}", scope="admin")
async def get_tenant(api: Api, name: str) -> Tenant:
    """Look at what a tenant has and may have."""
    if await api.store.tenants.number(name) != api.tenant:
        check_default_tenant(api, LOOKED_AFTER)
    return await api.store.tenants.get(name)


@routes.patch("/tenants/{name}", scope="admin")
async def change_tenant(api: Api, name: str, body: TenantPatch) -> Tenant:
    """Change what a tenant may have."""
    check_default_tenant(api, "Quotas are changed")
    given = {field: value for field, value in msgspec.structs.asdict(body).items() if value is not UNSET}
    return await api.store.tenants.change(name, given)
