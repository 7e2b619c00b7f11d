"""Random requests for every route: paths, queries, headers and bodies that are nearly right.

Purely random bytes never get past the first check. So each request starts from one that the server accepts, and a few
of its parts are replaced: by values at the edge of their type, of another type, or not of the format at all.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from detent.dashboard import actions, views
from tests.api.test_edges import INSTANTS, SCHEDULES, ZONES
from tests.api.test_route_matrix import _bodies, _name, bodies
from tests.api.two_tenants import World

TEXTS: tuple[str, ...] = (
    *("", " ", ".", "..", "/", "\0", "a\0b", "\u202eevil", "\u200bzero", "\ufeff", "é" * 300, "😀", "\x1b[2J", "=1+1"),
    *(
        "null",
        "true",
        "-1",
        "0",
        "9" * 400,
        "1e400",
        "NaN",
        "a" * 5000,
        "*",
        "%",
        "'; --",
        "{{7*7}}",
        "../../etc/passwd",
    ),
    *(
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "\r\nX-Injected: 1",
        "\ud800",
        "//[",
        "http://[",
    ),
    *("name:*", "tag:a AND", "status:(", 'name:"', "next<", "after:9999", "a" * 70_000),
)
NUMBERS: tuple[Any, ...] = (0, -1, 1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64, 10**30, 1e308, -0.0, 0.1, 1e-320)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None] * 100, {"": ""}, {"type": "http"}, {"a" * 300: 1})
SEGMENTS = ("%00", "%2f", "%ff%fe", "%ed%a0%80", "%", "%zz", "..", "%e2%80%ae", "a" * 3000, "%0d%0a", "0", "-", "+")
RAW: tuple[bytes, ...] = (
    *(
        b"",
        b" ",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b"null",
        b"[]",
        b"{}",
        b'"text"',
        b"0",
        b"{",
        b'{"a":',
        b"\0",
        b"{}{}",
    ),
    *(b"[" * 20_000, b'{"a":' * 20_000, b"[" * 300 + b"]" * 300, b"1" * 5000, b"-", b"1e999999", b'{"a":1,"a":2}'),
    *(b'{"name":"\xed\xa0\x80"}', b'{"name":"\\ud800"}', b'{"name":"\\u0000"}', b"NaN", b"[1,]", b"{'a':1}", b"\n\n{}"),
)
HEADERS: tuple[str, ...] = (
    *("If-Match: *", 'If-Match: "1"', "If-Match: 9" + "9" * 400, 'If-Match: W/"1", "2"', "If-None-Match: *"),
    *("Idempotency-Key: a", f"Idempotency-Key: {'k' * 5000}", "Idempotency-Key: \xff", "Idempotency-Key:"),
    *("traceparent: 00-x", f"traceparent: 00-{'a' * 32}-{'b' * 16}-01", "Accept: \xff", "Accept: text/plain;q=x"),
    *(
        "Origin: null",
        "Origin: http://[",
        "Cookie: detent_session=\xff; a",
        f"Cookie: {'c=d; ' * 1000}",
        "Range: bytes=0-",
    ),
    *(
        "HX-Request: true",
        "Forwarded: for=1.2.3.4",
        "X-Forwarded-For: \xff",
        "Accept-Encoding: gzip",
        "Expect: 100-continue",
    ),
    *("X-Forwarded-Proto: https", "Content-Encoding: gzip", "TE: trailers", "Content-Type: text/plain", "Via: 1.1 x"),
)
MEDIA = ("application/json; charset=utf-16", "application/x-ndjson", "text/plain", "", "multipart/form-data", "\xff")
HOSTS = ("", "[::1", "[", "localhost:99999999", "localhost:x", "127.0.0.1:", "\xff", "localhost, evil", "a" * 3000)
METHODS = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "POST", "TRACE", "PROPFIND", "FUZZ", "CONNECT")
FORM_FIELDS = (
    *("name", "schedule", "timezone", "target_type", "url", "method", "headers", "payload", "action", "search", "id"),
    *("sure", "reason", "cursor", "at", "until", "revision", "key", "next", "job", "error", "run", "all", "rate"),
    *("matched", "changed", "skipped", "tags", "queue", "priority", "timeout_seconds", "starts_at", "body", "function"),
)
PAGE_QUERY = (
    "cursor",
    "search",
    "status",
    "job",
    "at",
    "from",
    "to",
    "limit",
    "next",
    "hours",
    "zoom",
    "error",
    "page",
)
# Routes that are in no description.
OTHER_ROUTES = (
    *(("GET", path) for path in ("/heartbeat", "/login", "/metrics", "/openapi.json", "/problems", "/problems/{slug}")),
    *(("GET", "/static/{name}"), ("POST", "/login"), ("POST", "/logout")),
    *(("GET", path) for path in ("/login/oidc", "/login/oidc/callback")),
)


class Route(NamedTuple):
    method: str
    path: str
    operation: Any
    """Its description; None for a page."""


class FuzzedRequest(NamedTuple):
    route: Route
    method: str
    raw: bytes


@dataclass
class Known:
    """What exists on the server, and what lets the requests in."""

    job: str
    run: str
    key: str
    authorization: str
    cookie: str
    csrf: str


def routes(document: Any) -> list[Route]:
    """Every route of the server."""
    described = [
        Route(method.upper(), path, operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    pages = [("GET", view.path) for view in views.ALL] + [("GET", f"/live{view.path}") for view in views.ALL]
    changes = [("POST", change.path) for change in actions.ALL]
    return described + [Route(method, path, None) for method, path in (*pages, *changes, *OTHER_ROUTES)]


class Fuzzer:
    def __init__(self, document: Any, known: Known, seed: int) -> None:
        self._document = document
        self._chance = random.Random(seed)
        self.known = known

    def requests(self) -> Iterator[FuzzedRequest]:
        """Without an end; as many for each route, in a mixed order."""
        every = routes(self._document)
        while True:
            self._chance.shuffle(every)
            yield from map(self._request, every)

    def _often(self, share: float) -> bool:
        return self._chance.random() < share

    def _request(self, route: Route) -> FuzzedRequest:
        method = self._chance.choice(METHODS) if self._often(0.08) else route.method
        media, body = self._body(route)
        target = self._path(route) + self._query(route)
        lines = [f"{method} {target} HTTP/1.1", *self._headers(media)]
        framed = self._framed(body, lines) if body is not None else b""
        head = "\r\n".join([*lines, "", ""])
        return FuzzedRequest(route, method, head.encode("latin-1", "replace") + framed)

    def _framed(self, body: bytes, lines: list[str]) -> bytes:
        if self._often(0.85):
            lines.append(f"Content-Length: {len(body)}")
            return body
        lines.append("Transfer-Encoding: chunked")
        cut = self._chance.randint(0, len(body))
        parts = [part for part in (body[:cut], body[cut:]) if part]
        return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"

    # --- the request line and the headers ---

    def _path(self, route: Route) -> str:
        path = route.path
        while "{" in path:
            start, _, rest = path.partition("{")
            name, _, rest = rest.partition("}")
            path = start + self._segment(route, name) + rest
        return path

    def _segment(self, route: Route, name: str) -> str:
        if self._often(0.3):
            return self._chance.choice(SEGMENTS)
        if self._often(0.1):
            return quote(self._chance.choice(TEXTS[:-1]), safe="", errors="surrogatepass")
        if "/runs/" in route.path:
            return self.known.run
        if "/keys/" in route.path:
            return self.known.key
        known = {"id": self.known.job, "queue": "default", "revision": "1", "slug": "busy", "name": "fuzzed"}
        return known.get(name, "x")

    def _query(self, route: Route) -> str:
        if self._often(0.4):
            return ""
        declared = [each for each in route.operation["parameters"] if each["in"] == "query"] if route.operation else []
        names = [each["name"] for each in declared] or list(PAGE_QUERY)
        pairs = [(name, self._text()) for name in names if self._often(0.4)]
        if self._often(0.1):
            pairs += [("unknown", "1"), *pairs[:1]]
        query = urlencode(pairs, errors="surrogatepass")[:12_000]
        return f"?{query}" + (
            self._chance.choice(("&%ff", "&\xff", "&a" * 80, "&=", "&;", "&%00=1")) if self._often(0.1) else ""
        )

    def _text(self) -> str:
        kind = self._chance.random()
        if kind < 0.4:
            return self._chance.choice(TEXTS)
        if kind < 0.6:
            return str(self._chance.choice(NUMBERS))
        if kind < 0.8:
            return self._chance.choice(INSTANTS)
        return self._chance.choice((*ZONES, self.known.job, self.known.run, "true", "dead", "succeeded", "10"))

    def _headers(self, media: str | None) -> list[str]:
        lines = [f"Host: {self._chance.choice(HOSTS) if self._often(0.05) else 'localhost'}"]
        if self._often(0.95):
            lines.append(f"Authorization: {self.known.authorization}")
        if self.known.cookie:
            lines.append(f"Cookie: {self.known.cookie}")
        if media is not None:
            lines.append(f"Content-Type: {self._chance.choice(MEDIA) if self._often(0.05) else media}")
        lines += self._chance.sample(HEADERS, self._chance.choice((0, 0, 0, 1, 1, 2)))
        return lines

    # --- the body ---

    def _body(self, route: Route) -> tuple[str | None, bytes | None]:
        """Its content type and its bytes."""
        content = route.operation.get("requestBody", {}).get("content", {}) if route.operation else {}
        if "application/json" in content:
            return "application/json", self._json(route)
        if route.operation is None and route.method == "POST":
            return "application/x-www-form-urlencoded", self._form()
        return (None, None) if self._often(0.95) else ("application/json", self._chance.choice(RAW))

    def _json(self, route: Route) -> bytes:
        if self._often(0.12):
            return self._chance.choice(RAW)
        world = World(job=self.known.job, run=self.known.run, dead_run=self.known.run)
        document = copy.deepcopy(self._chance.choice(_bodies(self._document, route.operation, bodies(world))))
        for _ in range(self._chance.choice((0, 1, 1, 2, 3))):
            document = self._changed(document, self._fields_of(route))
        if isinstance(document, dict) and "wait_seconds" in document:
            document["wait_seconds"] = 0  # no run ever comes
        raw = json.dumps(document).encode()
        return self._damaged(raw) if self._often(0.1) else raw

    def _fields_of(self, route: Route) -> list[str]:
        schema = route.operation["requestBody"]["content"]["application/json"]["schema"]
        named = self._document["components"]["schemas"].get(_name(schema), schema)
        return list(named.get("properties", {})) or ["name"]

    def _changed(self, document: Any, fields: list[str]) -> Any:
        """The document with one part replaced, left out or added."""
        if isinstance(document, list):
            place = self._chance.randrange(len(document) + 1)
            return [*document[:place], self._value("", None), *document[place + 1 :]]
        if not isinstance(document, dict) or self._often(0.05):
            return self._value("", document)
        name = self._chance.choice([*fields, *document])
        if self._often(0.1):
            return {key: value for key, value in document.items() if key != name} | {"unknown_field": 1}
        old = document.get(name)
        inner = isinstance(old, dict | list) and old and self._often(0.5)
        return {
            **document,
            name: self._changed(old, list(old)) if inner and isinstance(old, dict) else self._value(name, old),
        }

    def _value(self, name: str, old: Any) -> Any:
        if name == "schedule" and self._often(0.8):
            return self._chance.choice(SCHEDULES)
        kind = self._chance.random()
        if kind < 0.3:
            return self._chance.choice(TEXTS)
        if kind < 0.5:
            return self._chance.choice(NUMBERS)
        if kind < 0.65:
            return self._chance.choice(INSTANTS)
        if kind < 0.9:
            return copy.deepcopy(self._chance.choice(OTHERS))
        return [old] * 3 if self._often(0.5) else _nested(self._chance.choice((10, 70, 400)))

    def _damaged(self, raw: bytes) -> bytes:
        place = self._chance.randrange(len(raw) + 1)
        added = self._chance.choice((b"\xff", b"\0", b"\xed\xa0\x80", b"{", b",", b"", b"1" * 500))
        return raw[:place] + added + raw[place + self._chance.randrange(3) :]

    def _form(self) -> bytes:
        if self._often(0.08):
            return self._chance.choice((*RAW[:13], b"a=%ff", b"a&" * 3000, b"csrf=\xff"))
        pairs = [("csrf", self.known.csrf)] if self._often(0.9) else []
        names = self._chance.sample(FORM_FIELDS, self._chance.randrange(8))
        pairs += [(name, self._text() if self._often(0.7) else str(self._chance.choice(SCHEDULES))) for name in names]
        return urlencode(pairs, errors="surrogatepass").encode()


def _nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value] if depth % 2 else {"a": value}
    return value
