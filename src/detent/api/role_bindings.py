"""Routes about role bindings. Administrators of the default tenant manage those of all tenants, others of their own."""

from __future__ import annotations

import re

from msgspec import Struct

from detent.api.context import PREFIX, Api
from detent.api.cursors import after_key, binding, read_after_key
from detent.api.jobs import Limit
from detent.api.keys import TenantOfKeys, managed_tenant
from detent.api.routing import Routes
from detent.contract.page import Page
from detent.contract.role_binding import RoleBinding, RoleBindingSpec
from detent.domain.text import check_seen
from detent.errors import KeyNotFound, RoleBindingNotFound, UsageError
from detent.store.keys import TenantName

routes = Routes(PREFIX)

_NUMBER = re.compile(r"[0-9]{1,18}")


class NewRoleBinding(RoleBindingSpec, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A role to bind. `tenant` is for administrators of the default tenant; others bind roles in their own."""

    tenant: TenantName | None = None


class RoleBindingQuery(Struct, forbid_unknown_fields=True):
    """`tenant` is for administrators of the default tenant; others see the bindings of their own."""

    tenant: TenantName | None = None
    cursor: str | None = None
    limit: Limit = 50


@routes.post("/role-bindings", status=201, scope="admin")
async def bind_role(api: Api, body: NewRoleBinding) -> RoleBinding:
    """Give a key, a person or a group of people a role in a tenant, for all jobs or for those of a queue or tag."""
    if body.role == "admin" and (body.queue, body.tag) != (None, None):
        raise UsageError("The role admin is about the whole tenant: leave out queue and tag, or bind editor.", "/role")
    for pointer, text in (("/subject", body.subject), ("/queue", body.queue or ""), ("/tag", body.tag or "")):
        check_seen(text, f"The {pointer[1:]}", pointer)
    tenant = await managed_tenant(api, body.tenant)
    try:
        return await api.store.role_bindings.add(body, tenant=tenant, by=api.by)
    except KeyNotFound as error:
        raise UsageError(f"There is no key {body.subject!r} in this tenant: give the id of one.", "/subject") from error


@routes.get("/role-bindings", scope="admin")
async def list_role_bindings(api: Api, query: RoleBindingQuery) -> Page[RoleBinding]:
    """List the role bindings in the order of their creation."""
    tenant = await managed_tenant(api, query.tenant)
    bound = binding(tenant, query)
    found, following = await api.store.role_bindings.list(
        tenant=tenant, after=read_after_key(query.cursor, bound), limit=query.limit
    )
    return Page(found, None if following is None else after_key(following, bound))


@routes.delete("/role-bindings/{id}", scope="admin")
async def unbind_role(api: Api, id: str, query: TenantOfKeys) -> None:  # noqa: A002 - the name is part of the contract
    """Take a role away. Every server follows within seconds."""
    if not _NUMBER.fullmatch(id):
        raise RoleBindingNotFound(id)
    await api.store.role_bindings.remove(int(id), tenant=await managed_tenant(api, query.tenant))
