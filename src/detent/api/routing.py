"""Typed routes: a handler's annotations say what it reads and what it answers.

A handler takes `api` first. A parameter named `body` is the JSON body (optional where its type allows None), `query`
the query parameters as a struct, `hung_up` a function that returns once the client has gone (for those that wait, after
the body is read), and every other one is a part of the path. It answers with a value, with a `Reply`
where the status or headers depend on the case, or with None for 204. The same annotations make the OpenAPI document.

Every route says in its decorator which scope it needs (`api/auth.py`); only GET has a default, `read`. The handler's
`api` is the caller's own: what it reads or changes, it reads or changes with `tenant=api.tenant`.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from detent.api import problems
from detent.api.auth import SCOPES, Scope
from detent.api.context import Api
from detent.api.reading import check_content_type, decode_body, decode_query, decode_segment, read_body

Answer = TypeVar("Answer")
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])

JSON_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Reply(Generic[Answer]):
    """An answer with a status or headers of its own."""

    def __init__(self, value: Answer, status: int | None = None, **headers: str) -> None:
        self.value = value
        self.status = status
        self.headers = {name.replace("_", "-"): text for name, text in headers.items()}


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """For routes that have no query parameters."""


class Endpoint:
    """One method of one path."""

    def __init__(
        self,
        method: str,
        path: str,
        handler: Callable[..., Awaitable[Any]],
        status: int,
        other_status: Iterable[int],
        scope: Scope,
    ) -> None:
        if scope not in SCOPES:
            raise ValueError(f"{method} {path} needs the scope {scope!r}, which is none of {', '.join(SCOPES)}.")
        hints = typing.get_type_hints(handler)
        self.scope = scope
        self.method = method
        self.path = path
        self.handler = handler
        self.status = status
        self.other_status = tuple(other_status)
        self.answer = _inner(hints.pop("return"), Reply)
        self.query = hints.pop("query", NoQuery)
        hints.pop("hung_up", None)
        body = hints.pop("body", None)
        self.body = None if body is None else _without_none(body)
        self.body_required = self.body is body
        self.takes = frozenset(inspect.signature(handler).parameters) - {"api"}
        self.path_parameters = [name for name in hints if name != "api"]

    @property
    def summary(self) -> str:
        return inspect.cleandoc(self.handler.__doc__ or "").partition("\n")[0]

    async def __call__(self, api: Api, request: Request) -> Response:
        given: dict[str, Any] = {name: decode_segment(request.path_params[name]) for name in self.path_parameters}
        query = decode_query(request.scope["query_string"], self.query)
        if "query" in self.takes:
            given["query"] = query
        if self.body is not None:
            given["body"] = await self._read(api, request)
        if "hung_up" in self.takes:
            given["hung_up"] = partial(_hung_up, request)
        return self._render(await self.handler(api, **given))

    async def _read(self, api: Api, request: Request) -> Any:
        if self.body_required:
            check_content_type(request)
        raw = await read_body(request, api.max_body_bytes)
        if not self.body_required:
            if not raw.strip():
                return None
            check_content_type(request)
        return decode_body(raw, typing.cast("type[Any]", self.body))

    def _render(self, value: Any) -> Response:
        reply = value if isinstance(value, Reply) else Reply(value)
        status = reply.status or self.status
        if reply.value is None:
            return Response(None, status, {**JSON_HEADERS, **reply.headers})
        content = msgspec.json.encode(reply.value)
        return Response(content, status, {**JSON_HEADERS, **reply.headers}, media_type="application/json")


class Routes:
    """The endpoints under one prefix, collected by decorators."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self.endpoints: list[Endpoint] = []

    def get(self, *paths: str, scope: Scope = "read") -> Callable[[Handler], Handler]:
        return self._add("GET", paths, 200, (), scope)

    def post(
        self, *paths: str, scope: Scope, status: int = 200, or_else: Iterable[int] = ()
    ) -> Callable[[Handler], Handler]:
        return self._add("POST", paths, status, or_else, scope)

    def put(
        self, *paths: str, scope: Scope, status: int = 200, or_else: Iterable[int] = ()
    ) -> Callable[[Handler], Handler]:
        return self._add("PUT", paths, status, or_else, scope)

    def delete(self, *paths: str, scope: Scope) -> Callable[[Handler], Handler]:
        return self._add("DELETE", paths, 204, (), scope)

    def _add(
        self, method: str, paths: Iterable[str], status: int, or_else: Iterable[int], scope: Scope
    ) -> Callable[[Handler], Handler]:
        def add(handler: Handler) -> Handler:
            for path in paths:
                self.endpoints.append(Endpoint(method, self._prefix + path, handler, status, or_else, scope))
            return handler

        return add


def starlette_routes(api: Api, endpoints: Iterable[Endpoint]) -> list[Route]:
    """One route for each path, so that 405 names every method that the path has."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [Route(path, _dispatcher(api, methods), methods=list(methods)) for path, methods in by_path.items()]


def _dispatcher(api: Api, methods: Mapping[str, Endpoint]) -> Callable[[Request], Awaitable[Response]]:
    async def dispatch(request: Request) -> Response:
        endpoint = methods["GET" if request.method == "HEAD" else request.method]
        try:
            caller = await api.door.admit(request, endpoint.scope)
            return await endpoint(dataclasses.replace(api, caller=caller), request)
        except Exception as error:
            return problems.answer(error, request.headers)

    return dispatch


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _inner(annotation: Any, wrapper: type) -> Any:
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is wrapper else annotation


def _without_none(annotation: Any) -> Any:
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation
    members = [member for member in typing.get_args(annotation) if member is not type(None)]
    return members[0] if len(members) == 1 else annotation
