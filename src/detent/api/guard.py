"""Protects the API and the pages from web pages of others, and decides what comes from this machine.

While the cluster has no key, requests from this machine need none (`auth.py`), and a web page in the user's browser can
send one. So such a request must name this machine as its host, which a page that rebinds its own name cannot do. Once
every request needs a key, any host name is answered. A change must never come from another origin.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from detent.api import problems
from detent.api.problems import Refusal
from detent.errors import DetentError

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
# A proxy on this machine would make requests of the whole world look local. Most add one of these headers.
PROXY_HEADERS = frozenset({"forwarded", "via", "x-real-ip"})
PROXY_HEADER_PREFIX = "x-forwarded"
_HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::[0-9]*)?")


class OriginGuard:
    def __init__(self, app: ASGIApp, keys_needed: Callable[[], Awaitable[bool]]) -> None:
        self._app = app
        self._keys_needed = keys_needed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = await self._refusal(scope["method"], headers)
        if refusal is not None:
            await problems.answer(refusal, headers)(scope, receive, send)
            return
        # Routes are matched before a part of the path is decoded, so that a name may have a slash in it.
        path = scope["raw_path"].decode("latin-1") if scope.get("raw_path") else scope["path"]
        await self._app({**scope, "path": path}, receive, send)

    async def _refusal(self, method: str, headers: Headers) -> Refusal | None:
        host = _host(headers)
        if not await self._answers_to(host):
            named = host or "no host"
            detail = f"This cluster has no keys yet, so it answers to localhost only, and the request names {named!r}: "
            return Refusal(421, "wrong-host", detail + "use http://localhost or its address.")
        others = [origin for origin in headers.getlist("origin") if _host_of(origin) != host.lower()]
        if others and method not in SAFE:
            return Refusal(
                403, "cross-origin", f"Changes from web pages of another origin, here {others[0]!r}, are refused."
            )
        return None

    async def _answers_to(self, host: str) -> bool:
        """Also true if the database cannot say whether keys are needed: routes that are public need no database, and
        the others ask again and find that this host is not this machine."""
        if is_loopback(host_name(host)):
            return True
        try:
            return await self._keys_needed()
        except DetentError:
            return True


def comes_directly(request: HTTPConnection) -> bool:
    """Whether a request comes from this machine, names it, and was not passed on by a proxy."""
    return (
        request.client is not None
        and is_loopback(request.client.host)
        and is_loopback(host_name(_host(request.headers)))
        and not any(_is_of_a_proxy(name.lower()) for name in request.headers)
    )


def _host(headers: Headers) -> str:
    """The Host header. Several are joined, which makes no valid host: another program might read a different one."""
    return ", ".join(headers.getlist("host"))


def _is_of_a_proxy(header: str) -> bool:
    return header in PROXY_HEADERS or header.startswith(PROXY_HEADER_PREFIX)


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def host_name(host: str) -> str:
    """The host without its port: example.org:80, 127.0.0.1:80, [::1]:80. Anything else is left as it is."""
    found = _HOST.fullmatch(host)
    return found[1].strip("[]") if found else host


def is_loopback(host: str) -> bool:
    name = host.lower().rstrip(".").strip("[]")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
