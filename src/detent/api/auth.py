"""Authentication and authorisation of requests.

Every request needs a key, with one exception: while the cluster has no key at all, a request that comes directly from
this machine counts as one of an administrator of the default tenant. The first key ends that on every node. The address
on which a process listens does not matter. A key that is sent is always checked, and every bad key is refused with the
same message.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request

from detent.api.client_addresses import ClientAddresses
from detent.api.failed_lookups import FailedLookups, ValidDigests
from detent.api.guard import comes_directly
from detent.api.limits import TenantLimiter
from detent.api.problems import Refusal
from detent.domain.audit_event import Actor
from detent.domain.roles import (
    GRANTS,
    PERMITTED,
    BoundRole,
    Grant,
    JobLimits,
    KeyScope,
    Scope,
    grants_of,
    holds_everywhere,
    limits_for,
)
from detent.errors import NotAuthorised
from detent.runtime.service import Batcher
from detent.store.jobs import DEFAULT_TENANT
from detent.store.keys import Credential, KeyStore, read_key

CACHED_SECONDS = 2.0  # a key that is revoked, or expires, is refused by every node after this at the latest
MAX_CACHED = 10_000


@dataclass(frozen=True, slots=True)
class Caller:
    """The tenant whose rows a request can see, and what it may do. `key` is the public id of its key, if it has one,
    and `user` the id of the person, as the OpenID provider calls them; `name` is the name of either. `bindings` are
    its roles, besides the scope of its key."""

    tenant: int
    scope: KeyScope | None
    key: str | None = None
    name: str | None = None
    bindings: tuple[BoundRole, ...] = ()
    user: str | None = None
    callback: tuple[int, str] | None = None
    """Of a target that reports about its run: the token of the attempt, and the credential."""

    def __repr__(self) -> str:
        return f"Caller({self.tenant}, {self.scope}, {self.by!r})"

    @property
    def by(self) -> str:
        """The name that is recorded with a change."""
        if self.user is not None:
            return self.name or f"user:{self.user}"
        if self.callback is not None:
            return "callback"
        if self.key is None:
            return "local, no key"
        return self.name or f"key:{self.key}"

    @property
    def is_known(self) -> bool:
        return self.scope is not None or self.user is not None

    @property
    def concerned(self) -> int | None:
        """The tenant that the events of its refusals belong to; None: nobody is known."""
        return self.tenant if self.is_known else None

    @property
    def wall(self) -> int | None:
        """The tenant that its statements are held to. None for administrators of the default tenant, who manage all
        tenants, and for public routes, which report on the node."""
        manages_all = self.tenant == DEFAULT_TENANT and self.may("admin")
        return None if manages_all or not self.is_known else self.tenant

    @property
    def grants(self) -> tuple[Grant, ...]:
        return grants_of(self.scope, self.bindings)

    @property
    def role(self) -> str:
        """The scope and the roles in one word or a few, for people."""
        own = () if self.scope in (None, "bound") else (str(self.scope),)
        return ", ".join(dict.fromkeys((*own, *(each.role for each in self.bindings)))) or "no role"

    def may(self, needed: Scope) -> bool:
        """Whether it may do this with some jobs at least."""
        return needed == "public" or any(needed in grant.permitted for grant in self.grants)

    def may_everywhere(self, needed: Scope) -> bool:
        """Whether it may do this with every job that it can see or change at all."""
        return holds_everywhere(self.grants, needed)

    def limits(self, needed: Scope) -> JobLimits | None:
        """The jobs with which it may do this; None: all of its tenant."""
        return None if needed == "public" else limits_for(self.grants, needed)

    def check(self, needed: Scope) -> None:
        if self.may(needed):
            return
        if self.user is not None or self.scope == "bound":
            whose = "You have" if self.user is not None else "This key has"
            enough = " or ".join(role for role in PERMITTED if needed in PERMITTED[role])
            raise NotAuthorised(f"{whose} {_roles(self.role)}, and this needs {needed}: ask for the role {enough}.")
        enough = " or ".join(scope for scope in GRANTS if needed in GRANTS[scope])
        raise NotAuthorised(f"This key has the scope {self.scope}, and this needs {needed}: use a key with {enough}.")


def _roles(text: str) -> str:
    return text if text == "no role" else f"the role {text}"


# Sees no rows and may do nothing: the caller of public routes.
ANONYMOUS = Caller(0, None)
LOCAL = Caller(DEFAULT_TENANT, "admin")


class KeyAuthenticator:
    def __init__(
        self,
        keys: KeyStore,
        limiter: TenantLimiter,
        failures: FailedLookups,
        *,
        keys_required: bool,
        clients: ClientAddresses | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`keys_required`: every request needs a key, even while the cluster has none. `clients` knows the proxies in
        front of it."""
        self._keys = keys
        self._limiter = limiter
        self._keys_needed = keys_required
        self._is_keyed = Batcher(self._ask_for_all)
        self._now = now
        self._valid = ValidDigests(keys.valid_digests, now)
        self.clients = clients or ClientAddresses()
        self.failures = failures
        self._cached: dict[bytes, tuple[float, Caller | None]] = {}

    async def authorise(self, request: Request, needed: Scope) -> Caller:
        """The caller, if it has this scope; otherwise an error that says what is missing."""
        caller = await self.identify(request, needed)
        caller.check(needed)
        return caller

    async def identify(self, request: Request, needed: Scope) -> Caller:
        """The caller, whatever its scope; public routes have an anonymous caller."""
        if needed == "public":
            return ANONYMOUS
        if "authorization" not in request.headers and await self.keyless_allowed(request):
            return LOCAL
        return await self._identify(request)

    def actor(self, caller: Caller, request: Request, request_id: str) -> Actor:
        """Who acts, for the audit log. Of a request without a valid key, the id of the key that it named."""
        address = self.clients.of(request)
        if caller.key is not None:
            return Actor("key", caller.key, caller.name, address, request_id)
        if caller.user is not None:
            return Actor("user", caller.user, caller.name, address, request_id)
        if caller.callback is not None:
            return Actor("unknown", None, caller.by, address, request_id)
        if caller.scope is not None:
            return Actor("local", None, caller.by, address, request_id)
        claimed = _credential(request.headers)
        return Actor("unknown", claimed and claimed.id, None, address, request_id)

    async def keyless_allowed(self, request: HTTPConnection) -> bool:
        """Whether this request needs no key. Raises if the database, which decides, does not answer."""
        return comes_directly(request) and not await self.keys_needed()

    async def keys_needed(self) -> bool:
        """Whether every request needs a key. A no is never remembered, so that the first key counts on every node
        from its commit on. A yes is final: keys are revoked, not removed."""
        if not self._keys_needed and await self._is_keyed(None):
            self._keys_needed = True
        return self._keys_needed

    async def _ask_for_all(self, waiting: Sequence[None]) -> list[bool]:
        """One statement for all requests that came before it, so that many at once do not take many connections."""
        return [await self._keys.cluster_is_keyed()] * len(waiting)

    async def authenticate(self, text: str, address: str) -> Caller | None:
        """The caller whose key this text is, for a login. Guessing is limited as for every request."""
        return await self._look_up(read_key(text.strip()), address)

    async def count(self, caller: Caller) -> None:
        """Count one request against the limit of its tenant."""
        await self._limiter.take(caller.tenant)

    def evict(self, key_id: str) -> None:
        """Refuse this key from now on: it was revoked."""
        for digest, (_, caller) in list(self._cached.items()):
            if caller is not None and caller.key == key_id:
                del self._cached[digest]

    async def _identify(self, request: Request) -> Caller:
        credential = _credential(request.headers)
        caller = self._known(credential) or await self._look_up(credential, self.clients.of(request))
        if caller is None:
            raise no_key() if "authorization" not in request.headers else bad_key()
        await self.count(caller)
        return caller

    def _known(self, credential: Credential | None) -> Caller | None:
        until, caller = self._cached.get(credential.digest, (0.0, None)) if credential else (0.0, None)
        return caller if self._now() < until else None

    async def _look_up(self, credential: Credential | None, address: str) -> Caller | None:
        if credential is None:
            return None
        until = self._now() + CACHED_SECONDS
        find = partial(self._keys.holder, credential)
        holder = await self.failures.look_up(address, credential.digest, find, self._valid)
        if holder is None:
            return None
        if len(self._cached) >= MAX_CACHED:
            self._cached.clear()
        caller = Caller(holder.tenant, holder.scope, credential.id, holder.name, holder.bindings)
        self._cached[credential.digest] = (until, caller)
        return caller


def _credential(headers: Headers) -> Credential | None:
    text = bearer_text(headers)
    return None if text is None else read_key(text)


def bearer_text(headers: Headers) -> str | None:
    given = headers.getlist("authorization")
    scheme, _, text = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return text.strip() if scheme.lower() == "bearer" else None


def no_key() -> Refusal:
    return Refusal(
        401,
        "not-authenticated",
        "This request needs a key: send the header Authorization: Bearer dtn_…; the detent command takes the key from "
        "DETENT_API_KEY or from a context (`detent context add`), and `detent key create --local` creates one.",
        {"WWW-Authenticate": 'Bearer realm="detent"'},
    )


def bad_key() -> Refusal:
    return Refusal(
        401,
        "not-authenticated",
        "This key is not valid here: it is mistyped, expired, revoked or of another server; use another.",
        {"WWW-Authenticate": 'Bearer realm="detent", error="invalid_token"'},
    )
