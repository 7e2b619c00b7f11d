"""Who is asking, and what they may do.

A server that listens on loopback only takes whoever reaches it as the administrator of the default tenant. Any other
asks for a key. A key that is given is always checked, and every key that is not good is refused in the same words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from starlette.requests import Request

from detent.errors import NotAuthorised
from detent.store.jobs import DEFAULT_TENANT
from detent.store.keys import KeyScope

# What a route asks for. `public` asks for nothing, not even for a key.
Scope = Literal["public", "read", "work", "operate", "write", "admin"]

# What a key of each scope may do: they build upon each other, except for a worker's, which can only do work.
GRANTS: dict[KeyScope, frozenset[Scope]] = {
    "read": frozenset({"read"}),
    "work": frozenset({"work"}),
    "operate": frozenset({"read", "work", "operate"}),
    "write": frozenset({"read", "work", "operate", "write"}),
    "admin": frozenset({"read", "work", "operate", "write", "admin"}),
}
SCOPES: tuple[Scope, ...] = get_args(Scope)


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose rows a request can see, and what it may do with them. `key` is the public id of its key, if it has one."""

    tenant: int
    scope: KeyScope | None
    key: str | None = None

    def check(self, needed: Scope) -> None:
        if needed == "public" or (self.scope is not None and needed in GRANTS[self.scope]):
            return
        enough = " or ".join(scope for scope in GRANTS if needed in GRANTS[scope])
        raise NotAuthorised(f"This key has the scope {self.scope}, and this needs {needed}: use a key with {enough}.")


# Sees no rows and may do nothing: what public routes are called as.
NOBODY = Caller(0, None)
LOCAL = Caller(DEFAULT_TENANT, "admin")


class Door:
    async def admit(self, request: Request, needed: Scope) -> Caller:
        """Who this is, if they may do what needs this scope."""
        if needed == "public":
            return NOBODY
        LOCAL.check(needed)
        return LOCAL
