"""Who looks at the dashboard, and that a change comes from its own pages.

On loopback whoever reaches the server is its administrator, as for the API. Elsewhere somebody logs in with a key, and
their browser holds the token of a session: never the key itself. Every change carries a second token, which only a page
of this server can have read.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from detent.api.auth import GRANTS, LOCAL, Caller, Scope
from detent.api.context import Api
from detent.errors import NotAuthorised
from detent.store.web_sessions import LASTS

COOKIE = "detent_session"
CSRF_HEADER = "x-csrf-token"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who may look. `csrf` is what their changes carry, `session` the token of a browser that logged in."""

    caller: Caller
    csrf: str
    session: str | None = None

    def may(self, scope: Scope) -> bool:
        return self.caller.scope is not None and scope in GRANTS[self.caller.scope]


class Entrance:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._secret = secrets.token_bytes(32)

    async def visitor(self, request: Request) -> Visitor | None:
        """Who this is; None: they have to log in."""
        if self._api.authenticator.local:
            return Visitor(LOCAL, self._csrf("loopback"))
        token = request.cookies.get(COOKIE)
        holder = await self._api.store.web_sessions.holder(token) if token else None
        if token is None or holder is None:
            self._api.authenticator.count_unauthenticated(request.client.host if request.client else "")
            return None
        self._api.authenticator.count(holder.key)
        caller = Caller(holder.tenant, holder.scope, holder.key, holder.name)
        return Visitor(caller, _derived(token), token)

    async def log_in(self, key: str, address: str) -> str | None:
        """The token of a new session; None: this key is not taken, or may not look at anything."""
        caller = await self._api.authenticator.authenticate(key, address)
        if caller is None or caller.key is None:
            return None
        caller.check("read")
        return await self._api.store.web_sessions.open(caller.key)

    async def log_out(self, visitor: Visitor) -> None:
        if visitor.session is not None:
            await self._api.store.web_sessions.close(visitor.session)

    def check_change(self, request: Request, visitor: Visitor, given: str) -> None:
        """Raise unless the change comes from a page of ours."""
        sent = request.headers.get(CSRF_HEADER) or given
        if not hmac.compare_digest(sent.encode(), visitor.csrf.encode()):
            raise NotAuthorised("This page is too old, or the change is not from it: reload the page and try again.")

    def _csrf(self, who: str) -> str:
        return hmac.new(self._secret, who.encode(), hashlib.sha256).hexdigest()


def _derived(token: str) -> str:
    """From the token of the session, so that every node can check it; it does not tell the token."""
    return hmac.new(token.encode(), b"csrf", hashlib.sha256).hexdigest()


def set_cookie(response: Response, request: Request, token: str | None) -> None:
    """None: the browser forgets it."""
    secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
    age = 0 if token is None else int(LASTS.total_seconds())
    response.set_cookie(COOKIE, token or "", max_age=age, httponly=True, samesite="strict", secure=secure, path="/")


def login_path(request: Request) -> str:
    """Where to log in, to come back here afterwards."""
    here = request.scope["path"] + (f"?{request.url.query}" if request.url.query else "")
    return "/login" if here == "/" else f"/login?next={quote(here, safe='/')}"


def safe_next(text: str | None) -> str:
    """A path of ours to go on with, whatever was asked for."""
    parts = urlsplit(text or "/")
    if parts.scheme or parts.netloc or not parts.path.startswith("/") or parts.path.startswith(("//", "/\\")):
        return "/"
    return parts.path + (f"?{parts.query}" if parts.query else "")
