"""The path under which another application serves the API and the dashboard.

Both know only paths of their own, such as /jobs. This takes the path of the mount from requests, and puts it before
every path of an answer: links and forms of pages, live updates, redirects, cookies. A page escapes the quotes of all
values that users wrote, so nothing in such a value looks like the attributes that are changed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LINK = re.compile(
    rb'((?<=[\s])(?:href|src|action|hx-get|hx-post|hx-sse:connect|data-href|data-stale)="|(?<=;) url=)/(?!/)'
)
_PATH_HEADERS = frozenset({b"location", b"hx-redirect"})
_COOKIE_PATH = re.compile(rb"(; ?path=)/", re.IGNORECASE)
_WITH_LINKS = (b"text/html", b"text/event-stream")


class BasePath:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        base = _base(scope)
        if not base:
            await self._app(scope, receive, send)
            return
        await self._app(_within(scope, base), receive, _Answer(quote(base).encode(), send))


def _base(scope: Scope) -> str:
    """Starlette and FastAPI name it in `root_path`. Litestar only removes it from `path`: then it is what the path has
    in addition where it is given as it was sent."""
    named: str = scope.get("root_path", "").rstrip("/")
    sent, path = unquote((scope.get("raw_path") or b"").decode("latin-1")), scope["path"]
    if named or sent == path or not sent.rstrip("/").endswith(path.rstrip("/")):
        return named
    return sent.rstrip("/").removesuffix(path.rstrip("/"))


def _within(scope: Scope, base: str) -> Scope:
    path = scope["path"].removeprefix(base) if _is_below(scope["path"], base) else scope["path"]
    raw = scope.get("raw_path")
    if raw and _is_below(unquote(raw.decode("latin-1")), base):
        raw = _without(raw, base.count("/"))
    return {**scope, "root_path": "", "path": path or "/", "raw_path": raw or b"/" if raw is not None else None}


def _is_below(path: str, base: str) -> bool:
    return path == base or path.startswith(f"{base}/")


def _without(raw: bytes, segments: int) -> bytes:
    """The path as it was sent, without its first segments: one and the same path can be escaped in several ways."""
    parts = raw.split(b"/", segments + 1)
    return b"/" + parts[-1] if len(parts) > segments + 1 else b""


class _Answer:
    """Holds the start of an answer back until its body is known, whose length changes."""

    def __init__(self, base: bytes, send: Send) -> None:
        self._base = base
        self._send = send
        self._start: Message = {}
        self._has_links = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = {**message, "headers": [*self._headers(message["headers"])]}
            return
        if message["type"] == "http.response.body":
            body = message.get("body", b"")
            changed = _LINK.sub(rb"\1" + self._base + b"/", body) if self._has_links else body
            await self._begin(len(changed) - len(body))
            message = {**message, "body": changed}
        await self._send(message)

    def _headers(self, headers: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[bytes, bytes]]:
        for name, value in headers:
            known = name.lower()
            if known == b"content-type":
                self._has_links = value.startswith(_WITH_LINKS)
            if known in _PATH_HEADERS and value.startswith(b"/") and not value.startswith(b"//"):
                value = self._base + value
            elif known == b"set-cookie":
                value = _COOKIE_PATH.sub(rb"\1" + self._base + b"/", value)
            yield name, value

    async def _begin(self, longer: int) -> None:
        """Pages are sent in one piece; an answer of several has no length in its headers."""
        start, self._start = self._start, {}
        if start:
            headers = [
                (name, b"%d" % (int(value) + longer) if name.lower() == b"content-length" else value)
                for name, value in start["headers"]
            ]
            await self._send({**start, "headers": headers})
