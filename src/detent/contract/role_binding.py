"""Role bindings in the public API."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from detent.contract.page import Instant
from detent.domain.job import Name
from detent.domain.roles import Role, SubjectKind

Subject = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=300,
        description="The id of a key; the `sub` or the verified email address of a person; or the name of a group, as "
        "the OpenID provider says it.",
    ),
]


class RoleBindingSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A role to bind. With `queue` or `tag` it is limited to the jobs of that queue, or with that tag; with both, to
    jobs that have both."""

    subject_kind: SubjectKind
    subject: Subject
    role: Role
    queue: Name | None = None
    tag: Name | None = None


class RoleBinding(RoleBindingSpec, frozen=True, kw_only=True):
    """A role that a key, a person or a group has in a tenant. `created_by` is who bound it."""

    id: int
    tenant: str
    created_at: Instant
    created_by: str | None
