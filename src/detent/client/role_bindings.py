"""Verbs about role bindings."""

from __future__ import annotations

from detent.client.operation import Listing, Operation, Request
from detent.client.requests import PREFIX, given, no_content, reader
from detent.client.transport import PAGE_SIZE
from detent.contract.page import Page
from detent.contract.role_binding import RoleBinding
from detent.domain.roles import Role, SubjectKind


def bind_role(
    subject_kind: SubjectKind,
    subject: str,
    role: Role,
    *,
    queue: str | None = None,
    tag: str | None = None,
    tenant: str | None = None,
) -> Request[RoleBinding]:
    """Give a key, a person or a group a role in a tenant, for all jobs or for those of a queue or with a tag."""
    body = given(subject_kind=subject_kind, subject=subject, role=role, queue=queue, tag=tag, tenant=tenant)
    return Request("POST", f"{PREFIX}/role-bindings", reader(RoleBinding), body=body)


def list_role_bindings(*, tenant: str | None = None) -> Request[Page[RoleBinding]]:
    """List the role bindings of a tenant."""
    query = {"tenant": tenant, "limit": PAGE_SIZE}
    return Request("GET", f"{PREFIX}/role-bindings", reader(Page[RoleBinding]), query=query)


def unbind_role(binding: int, *, tenant: str | None = None) -> Request[None]:
    """Take a role away, by the id of its binding."""
    return Request("DELETE", f"{PREFIX}/role-bindings/{binding}", no_content, query={"tenant": tenant})


class RoleBindingVerbs:
    """The verbs of the clients about role bindings."""

    bind_role = Operation(bind_role)
    list_role_bindings = Listing(list_role_bindings)
    unbind_role = Operation(unbind_role)
