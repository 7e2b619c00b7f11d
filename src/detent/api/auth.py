"""Authentication and authorisation of requests.

A server that listens on loopback only treats every caller as the administrator of the default tenant. Any other server
requires a key. A key that is sent is always checked, and every bad key is refused with the same message.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from starlette.datastructures import Headers
from starlette.requests import Request

from detent.api.limits import Limiter, network_of
from detent.api.problems import Refusal
from detent.contract.key import KeyScope
from detent.errors import NotAuthorised
from detent.store.jobs import DEFAULT_TENANT
from detent.store.keys import Credential, KeyStore, read_key

# What a route requires. `public` requires nothing, not even a key.
Scope = Literal["public", "read", "work", "operate", "write", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

# What a key of each scope may do: each includes those before it, except `work`, which can only execute runs.
GRANTS: dict[KeyScope, frozenset[Scope]] = {
    "read": frozenset({"read"}),
    "work": frozenset({"work"}),
    "operate": frozenset({"read", "work", "operate"}),
    "write": frozenset({"read", "work", "operate", "write"}),
    "admin": frozenset({"read", "work", "operate", "write", "admin"}),
}

REMEMBERED_SECONDS = 2.0  # a key that is revoked, or expires, is refused by every node after this at the latest
MOST_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Caller:
    """The tenant whose rows a request can see, and its scope. `key` is the public id of its key, if it has one, and
    `name` the name of that key."""

    tenant: int
    scope: KeyScope | None
    key: str | None = None
    name: str | None = None

    @property
    def by(self) -> str:
        """The name that is recorded with a change."""
        if self.key is None:
            return "local, no key"
        return self.name or f"key:{self.key}"

    @property
    def wall(self) -> int | None:
        """The tenant that its statements are held to. None for administrators of the default tenant, who manage all
        tenants, and for public routes, which report on the node."""
        manages_all = self.tenant == DEFAULT_TENANT and self.scope == "admin"
        return None if manages_all or self.scope is None else self.tenant

    def check(self, needed: Scope) -> None:
        if needed == "public" or (self.scope is not None and needed in GRANTS[self.scope]):
            return
        enough = " or ".join(scope for scope in GRANTS if needed in GRANTS[scope])
        raise NotAuthorised(f"This key has the scope {self.scope}, and this needs {needed}: use a key with {enough}.")


# Sees no rows and may do nothing: the caller of public routes.
ANONYMOUS = Caller(0, None)
LOCAL = Caller(DEFAULT_TENANT, "admin")


class KeyAuthenticator:
    def __init__(
        self, keys: KeyStore, limiter: Limiter, *, local: bool, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`local`: only this machine can reach the server."""
        self._keys = keys
        self._limiter = limiter
        self._local = local
        self._now = now
        self._remembered: dict[bytes, tuple[float, Caller | None]] = {}

    async def authorise(self, request: Request, needed: Scope) -> Caller:
        """The caller, if it has this scope; otherwise an error that says what is missing."""
        if needed == "public":
            return ANONYMOUS
        if self._local and "authorization" not in request.headers:
            return LOCAL
        caller = await self._identify(request)
        caller.check(needed)
        return caller

    @property
    def local(self) -> bool:
        """Whether this server needs no key."""
        return self._local

    async def authenticate(self, text: str, address: str) -> Caller | None:
        """The caller whose key this text is, for a login. Guessing is limited as for every request."""
        self.count_unauthenticated(address)
        return await self._look_up(read_key(text.strip()))

    def count(self, key_id: str) -> None:
        """Count one request of a session with this key."""
        self._limiter.take(f"key {key_id}")

    def count_unauthenticated(self, address: str) -> None:
        """Count one unauthenticated request against its network."""
        self._limiter.take(network_of(address))

    def forget(self, key_id: str) -> None:
        """Refuse this key from now on: it was revoked."""
        for digest, (_, caller) in list(self._remembered.items()):
            if caller is not None and caller.key == key_id:
                del self._remembered[digest]

    async def _identify(self, request: Request) -> Caller:
        credential = _credential(request.headers)
        caller = self._known(credential)
        if caller is None:
            # Counted before the lookup, so that guessing is slow and costs the database little.
            self._limiter.take(network_of(request.client.host) if request.client else "")
            caller = await self._look_up(credential)
        if caller is None:
            raise _no_key() if "authorization" not in request.headers else _bad_key()
        self._limiter.take(f"key {caller.key}")
        return caller

    def _known(self, credential: Credential | None) -> Caller | None:
        until, caller = self._remembered.get(credential.digest, (0.0, None)) if credential else (0.0, None)
        return caller if self._now() < until else None

    async def _look_up(self, credential: Credential | None) -> Caller | None:
        if credential is None:
            return None
        until = self._now() + REMEMBERED_SECONDS
        holder = await self._keys.holder(credential)
        if holder is None:
            return None
        if len(self._remembered) >= MOST_REMEMBERED:
            self._remembered.clear()
        caller = Caller(holder.tenant, holder.scope, credential.id, holder.name)
        self._remembered[credential.digest] = (until, caller)
        return caller


def _credential(headers: Headers) -> Credential | None:
    given = headers.getlist("authorization")
    scheme, _, text = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return read_key(text.strip()) if scheme.lower() == "bearer" else None


def _no_key() -> Refusal:
    return Refusal(
        401,
        "not-authenticated",
        "This server requires a key: send the header Authorization: Bearer dtn_…, or set DETENT_API_KEY.",
        {"WWW-Authenticate": 'Bearer realm="detent"'},
    )


def _bad_key() -> Refusal:
    return Refusal(
        401,
        "not-authenticated",
        "This key is not valid here: it is mistyped, expired, revoked or of another server; use another.",
        {"WWW-Authenticate": 'Bearer realm="detent", error="invalid_token"'},
    )
