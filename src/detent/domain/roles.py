"""Roles: what keys and people may do, and with which jobs. No I/O.

A route needs one scope. A key is created with a scope; a person has none. Both may have bindings: a role in a tenant,
for all jobs or for those of a queue, with a tag, or both. Bindings only ever add: what a caller may do is the union of
its scope and its bindings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

# What a route requires. `public` requires nothing, not even a key.
Scope = Literal["public", "read", "work", "operate", "write", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

KeyScope = Literal["read", "work", "secrets", "operate", "write", "admin", "bound"]
Role = Literal["viewer", "operator", "editor", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
SubjectKind = Literal["key", "user", "group"]

# What each role may do: each includes those before it. `work` is what pull workers do.
PERMITTED: dict[Role, frozenset[Scope]] = {
    "viewer": frozenset({"read"}),
    "operator": frozenset({"read", "work", "operate"}),
    "editor": frozenset({"read", "work", "operate", "write"}),
    "admin": frozenset({"read", "work", "operate", "write", "admin"}),
}

# What a key of each scope may do. Four are the roles; `work` and `secrets` can only execute runs, and `bound` can do
# only what the bindings of the key say.
GRANTS: dict[KeyScope, frozenset[Scope]] = {
    "read": PERMITTED["viewer"],
    "work": frozenset({"work"}),
    # Claimed runs have the values of their secrets.
    "secrets": frozenset({"work"}),
    "operate": PERMITTED["operator"],
    "write": PERMITTED["editor"],
    "admin": PERMITTED["admin"],
    "bound": frozenset(),
}


class JobLimit(NamedTuple):
    """Some jobs of a tenant: those of a queue, with a tag, or both; None does not restrict."""

    queue: str | None = None
    tag: str | None = None

    def includes(self, queue: str, tags: Iterable[str]) -> bool:
        return self.queue in (None, queue) and (self.tag is None or self.tag in tags)

    def __str__(self) -> str:
        parts = [("the queue", self.queue), ("the tag", self.tag)]
        return " and ".join(f"{what} {name!r}" for what, name in parts if name is not None)


JobLimits = tuple[JobLimit, ...]
"""A job is within these if it is within one of them."""

EVERY_JOB = JobLimit()


class Grant(NamedTuple):
    """What one binding, or the scope of a key, permits with some jobs."""

    permitted: frozenset[Scope]
    jobs: JobLimit = EVERY_JOB


class BoundRole(NamedTuple):
    """A role that was bound to a caller."""

    role: Role
    queue: str | None = None
    tag: str | None = None

    @property
    def grant(self) -> Grant:
        return Grant(PERMITTED[self.role], JobLimit(self.queue, self.tag))


def grants_of(scope: KeyScope | None, bindings: Iterable[BoundRole] = ()) -> tuple[Grant, ...]:
    own = () if scope is None else (Grant(GRANTS[scope]),)
    return (*own, *(binding.grant for binding in bindings))


def limits_for(grants: Sequence[Grant], needed: Scope) -> JobLimits | None:
    """The jobs with which this is permitted; None: with all of them. Empty: with none."""
    limits = [grant.jobs for grant in grants if needed in grant.permitted]
    return None if EVERY_JOB in limits else tuple(dict.fromkeys(limits))


def holds_everywhere(grants: Sequence[Grant], needed: Scope) -> bool:
    """Whether this is permitted with every job that the grants reach at all."""
    return limits_for(grants, needed) is None or (
        bool(grants) and all(needed in grant.permitted for grant in grants if grant.permitted)
    )


def described(limits: JobLimits) -> str:
    return ", or to ".join(map(str, limits))
