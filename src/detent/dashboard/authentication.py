"""Authentication of dashboard visitors, and protection against cross-site requests.

Whether a visitor needs a key is decided as for the API (`api/auth.py`). One who does logs in with it; the browser then
holds a session token, never the key. Every change carries a CSRF token that only a page of this server contains.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from detent.api.access_watch import OpenAccess
from detent.api.auth import LOCAL, Caller
from detent.api.context import Api
from detent.api.failed_lookups import ValidDigests
from detent.api.problems import trace_of
from detent.dashboard.people import ATTEMPT_COOKIE, ATTEMPT_SECONDS, People
from detent.domain.audit_event import Actor, NewEvent
from detent.domain.roles import Scope
from detent.errors import NotAuthorised
from detent.store.audit_log import acting
from detent.store.keys import read_key
from detent.store.person_sessions import PersonHolder
from detent.store.web_sessions import LASTS, SessionHolder, session_digest

COOKIE = "detent_session"
CSRF_HEADER = "x-csrf-token"


@dataclass(frozen=True, slots=True)
class Visitor:
    """An authenticated visitor. Changes must carry `csrf`; `session` is the session token, None without a login."""

    caller: Caller
    csrf: str
    session: str | None = None

    @property
    def access(self) -> OpenAccess:
        """The session or key whose end, or change of roles, closes this visitor's streams."""
        digest = None if self.session is None else session_digest(self.session)
        return OpenAccess(self.caller.key, digest, self.caller.bindings)

    def may(self, scope: Scope) -> bool:
        return self.caller.may(scope)


class VisitorAuthenticator:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._secret = secrets.token_bytes(32)
        self._valid = ValidDigests(api.store.web_sessions.valid_digests)
        self.people = People.of(api)

    async def visitor(self, request: Request) -> Visitor | None:
        """The visitor behind a request; None: a login is needed."""
        if await self._api.authenticator.keyless_allowed(request):
            return Visitor(LOCAL, self._csrf("local"))
        token = request.cookies.get(COOKIE, "")
        digest, address = session_digest(token), self._api.authenticator.clients.of(request)
        if digest is None:
            return None
        holder = await self._holder(digest, address)
        if isinstance(holder, PersonHolder) and self.people is not None:
            holder = await self.people.checked(token, digest, holder)
        if holder is None:
            return None
        if isinstance(holder, PersonHolder):
            return await self._person(holder, token)
        caller = Caller(holder.tenant, holder.scope, holder.key, holder.name, holder.bindings)
        await self._api.authenticator.count(caller)
        return Visitor(caller, _derived(token), token)

    async def _person(self, holder: PersonHolder, token: str) -> Visitor:
        person = holder.person
        caller = Caller(holder.tenant, None, None, person.shown, holder.bindings, person.subject)
        await self._api.authenticator.count(caller)
        return Visitor(caller, _derived(token), token)

    async def _holder(self, digest: bytes, address: str) -> SessionHolder | PersonHolder | None:
        find = partial(self._found, digest)
        return await self._api.authenticator.failures.look_up(address, digest, find, self._valid)

    async def _found(self, digest: bytes) -> SessionHolder | PersonHolder | None:
        """People who logged in at a provider that is no longer set have no session."""
        of_key = await self._api.store.web_sessions.holder(digest)
        if of_key is not None or self.people is None:
            return of_key
        return await self._api.store.person_sessions.holder(digest)

    async def log_in(self, key: str, request: Request) -> str | None:
        """The token of a new session; None: the key is not valid."""
        authenticator = self._api.authenticator
        address, request_id = authenticator.clients.of(request), trace_of(request.headers)
        caller = await authenticator.authenticate(key, address)
        if caller is None or caller.key is None:
            claimed = read_key(key.strip())
            await self._refuse(Actor("unknown", claimed and claimed.id, None, address, request_id), None)
            return None
        await authenticator.count(caller)
        actor = Actor("key", caller.key, caller.name, address, request_id)
        try:
            caller.check("read")
        except NotAuthorised:
            await self._refuse(actor, caller.tenant)
            raise
        with acting(actor):
            return await self._api.store.web_sessions.open(caller.key, tenant=caller.tenant, name=caller.name)

    async def _refuse(self, actor: Actor, tenant: int | None) -> None:
        await self._api.refusals.record(NewEvent("session.refuse", tenant, "key", actor.id, actor.name), actor)

    async def log_out(self, visitor: Visitor, request: Request) -> str | None:
        """Returns where the browser goes to log out of the OpenID provider as well, if it can."""
        digest = None if visitor.session is None else session_digest(visitor.session)
        if visitor.session is None or digest is None:
            return None
        caller = visitor.caller
        with acting(self.actor(visitor, request)):
            if caller.user is not None and self.people is not None:
                return await self.people.log_out(visitor.session, digest)
            await self._api.store.web_sessions.close(
                visitor.session, caller.key, tenant=caller.tenant, name=caller.name
            )
        self._api.access.check_now()
        return None

    def attempt_actor(self, request: Request) -> Actor:
        """Who tries to log in."""
        return Actor("unknown", None, None, self._api.authenticator.clients.of(request), trace_of(request.headers))

    def actor(self, visitor: Visitor, request: Request) -> Actor:
        """Who acts, for the audit log."""
        return self._api.authenticator.actor(visitor.caller, request, trace_of(request.headers))

    async def permit(self, request: Request, visitor: Visitor, csrf: str, scope: Scope, path: str) -> None:
        """Raise unless the change comes from a page of this server, and this visitor may make it."""
        try:
            self.check_change(request, visitor, csrf)
            visitor.caller.check(scope)
        except NotAuthorised as error:
            actor, tenant = self.actor(visitor, request), visitor.caller.concerned
            await self._api.refusals.note(error, actor, tenant, f"POST {path}")
            raise

    def check_change(self, request: Request, visitor: Visitor, given: str) -> None:
        """Raise unless the change comes from a page of this server."""
        sent = request.headers.get(CSRF_HEADER) or given
        if not hmac.compare_digest(sent.encode(), visitor.csrf.encode()):
            raise NotAuthorised("The page has expired: reload it and try again.")

    def _csrf(self, subject: str) -> str:
        return hmac.new(self._secret, subject.encode(), hashlib.sha256).hexdigest()


def _derived(token: str) -> str:
    """Derived from the session token, so that every node can check it; the token cannot be computed from it."""
    return hmac.new(token.encode(), b"csrf", hashlib.sha256).hexdigest()


def set_attempt_cookie(response: Response, request: Request, attempt: str | None) -> None:
    """Unlike the session's, it is sent when another site, the provider, leads here. None deletes it."""
    age = 0 if attempt is None else ATTEMPT_SECONDS
    response.set_cookie(
        ATTEMPT_COOKIE,
        attempt or "",
        max_age=age,
        httponly=True,
        samesite="lax",
        secure=_secure(request),
        path="/login",
    )


def _secure(request: Request) -> bool:
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"


def set_cookie(response: Response, request: Request, token: str | None) -> None:
    """None deletes the cookie."""
    secure = _secure(request)
    age = 0 if token is None else int(LASTS.total_seconds())
    response.set_cookie(COOKIE, token or "", max_age=age, httponly=True, samesite="strict", secure=secure, path="/")


def login_path(request: Request) -> str:
    """The login page, which returns here afterwards."""
    query = request.scope["query_string"].decode("latin-1")  # as it was sent: it may be no UTF-8
    here = request.scope["path"] + (f"?{query}" if query else "")
    return "/login" if here == "/" else f"/login?next={quote(here, safe='/')}"


def safe_next(text: str | None) -> str:
    """The requested path if it is on this server, else `/`."""
    try:
        parts = urlsplit(text or "/")
    except ValueError:
        return "/"
    if parts.scheme or parts.netloc or not parts.path.startswith("/") or parts.path.startswith(("//", "/\\")):
        return "/"
    return parts.path + (f"?{parts.query}" if parts.query else "")
