"""Protects a server without keys from web pages.

A server on loopback trusts every caller, and a web page in the user's browser can be one. So a request must name this
server as its host, which a page that rebinds its own name cannot do, and a change must not come from another origin. A
server that other machines can reach requires keys instead (`auth.py`), and answers to any name.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from detent.api import problems
from detent.api.problems import Refusal

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class LocalGuard:
    def __init__(self, app: ASGIApp, local: bool) -> None:
        self._app = app
        self._local = local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope["method"], headers)
        if refusal is not None:
            await problems.answer(refusal, headers)(scope, receive, send)
            return
        # Routes are matched before a part of the path is decoded, so that a name may have a slash in it.
        path = scope["raw_path"].decode("latin-1") if scope.get("raw_path") else scope["path"]
        await self._app({**scope, "path": path}, receive, send)

    def _refusal(self, method: str, headers: Headers) -> Refusal | None:
        host = headers.get("host", "")
        if self._local and not is_loopback(host_name(host)):
            detail = f"This server answers to localhost only, and the request names {host or 'no host'!r}: "
            return Refusal(421, "wrong-host", detail + "use http://localhost or its address.")
        origin = headers.get("origin")
        if origin is not None and method not in SAFE and _host_of(origin) != host.lower():
            return Refusal(
                403, "cross-origin", f"Changes from web pages of another origin, here {origin!r}, are refused."
            )
        return None


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def host_name(host: str) -> str:
    """The host without its port: example.org:80, 127.0.0.1:80, [::1]:80."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def is_loopback(host: str) -> bool:
    name = host.lower().rstrip(".").strip("[]")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
