"""Routes about keys. Administrators of the default tenant manage the keys of all tenants, others those of their own."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from detent.api.context import PREFIX, Api, check_default_tenant
from detent.api.cursors import after_key, binding, read_after_key
from detent.api.jobs import Limit
from detent.api.routing import Reply, Routes
from detent.contract.key import ApiKey, KeyScope, NewApiKey
from detent.contract.page import Page
from detent.domain.job import Name
from detent.domain.text import check_seen
from detent.errors import UsageError
from detent.store.jobs import DEFAULT_TENANT
from detent.store.keys import TenantName

routes = Routes(PREFIX)

TEN_YEARS = 315_360_000


class KeySpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A key to create. `tenant` is for administrators of the default tenant; others create keys for their own."""

    scope: KeyScope
    name: Name | None = None
    tenant: TenantName | None = None
    expires_in_seconds: Annotated[int, Meta(ge=1, le=TEN_YEARS)] | None = None


class TenantOfKeys(Struct, forbid_unknown_fields=True):
    """`tenant` is for administrators of the default tenant; others see the keys of their own."""

    tenant: TenantName | None = None


class KeyQuery(Struct, forbid_unknown_fields=True):
    """`tenant` is for administrators of the default tenant; others see the keys of their own."""

    tenant: TenantName | None = None
    cursor: str | None = None
    limit: Limit = 50


# Not `once`: the answer to a request with an Idempotency-Key is kept, and this one has a secret in it.
@routes.post("/keys", status=201, scope="admin")
async def create_key(api: Api, body: KeySpec) -> Reply[NewApiKey]:
    """Create a key. Its text is in this answer and nowhere else.

    The first key must have the scope admin and belong to the default tenant: from then on every request needs a key.
    """
    check_seen(body.name or "", "The name", "/name")
    tenant = await managed_tenant(api, body.tenant)
    if api.caller.key is None:
        _check_first(body.scope, tenant)
    key = await api.store.keys.add(
        body.scope,
        tenant=tenant,
        name=body.name,
        created_by=api.caller.key,
        expires_in_seconds=body.expires_in_seconds,
    )
    return Reply(key)


@routes.get("/keys", scope="admin")
async def list_keys(api: Api, query: KeyQuery) -> Page[ApiKey]:
    """List keys in the order of their creation, including expired and revoked ones."""
    tenant = await managed_tenant(api, query.tenant)
    bound = binding(tenant, query)
    keys, following = await api.store.keys.list(
        tenant=tenant, after=read_after_key(query.cursor, bound), limit=query.limit
    )
    return Page(keys, None if following is None else after_key(following, bound))


@routes.delete("/keys/{id}", scope="admin")
async def revoke_key(api: Api, id: str, query: TenantOfKeys) -> None:  # noqa: A002 - the name is part of the contract
    """Revoke a key: every server refuses it within seconds."""
    await api.store.keys.revoke(id, tenant=await managed_tenant(api, query.tenant))
    api.authenticator.evict(id)
    api.access.check_now()


def _check_first(scope: KeyScope, tenant: int) -> None:
    """Refuse a first key that is not one of an administrator of the default tenant: it cannot create further keys."""
    reason = "because every request needs a key once it exists: create that one, and use it to create this one."
    if scope != "admin":
        raise UsageError(f"The first key must have the scope admin, {reason}", "/scope")
    if tenant != DEFAULT_TENANT:
        raise UsageError(f"The first key must be one of the default tenant, {reason}", "/tenant")


async def managed_tenant(api: Api, name: str | None) -> int:
    """The tenant of these keys. Only administrators of the default tenant learn which tenants exist."""
    if name is None:
        return api.tenant
    number = await api.store.tenants.number(name)
    if number == api.tenant:
        return number
    check_default_tenant(api, "Other tenants are managed")
    if number is None:
        raise UsageError(f"There is no tenant {name!r}: create it first with POST {PREFIX}/tenants.", "/tenant")
    return number
