"""Typed routes: a handler's annotations declare what it reads and what it answers.

A handler takes `api` first. A parameter named `body` is the JSON body (optional where its type allows None), `query`
the query parameters as a struct, `headers` the request headers that its struct names, `disconnected` a function that
returns once the client has left (for handlers that wait after the body is read). Every other parameter is a part of the
path. A handler returns a value, a `Reply` where the status or headers vary, or None for 204. The same annotations
generate the OpenAPI document.

A route that creates something sets `once`: it accepts an Idempotency-Key (`api/idempotency.py`).

The decorator of every route names the scope that it needs (`domain/roles.py`); only GET has a default, `read`. The
handler's `api` knows the caller, and the handler passes `tenant=api.tenant` to everything that it reads or changes.
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
from detent.api.auth import ANONYMOUS, Caller
from detent.api.conditions import tag_of
from detent.api.context import Api
from detent.api.idempotency import served_once
from detent.api.request_parsing import (
    Upload,
    check_content_type,
    decode_body,
    decode_headers,
    decode_query,
    decode_segment,
    media_type,
    read_body,
)
from detent.api.role_limits import admitted
from detent.api.visibility import for_caller
from detent.contract.job import Job
from detent.domain.roles import SCOPES, Scope
from detent.store.audit_log import acting

Answer = TypeVar("Answer")
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])

JSON_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Reply(Generic[Answer]):
    """An answer with its own status or headers."""

    def __init__(self, value: Answer, status: int | None = None, **headers: str) -> None:
        self.value = value
        self.status = status
        self.headers = {name.replace("_", "-"): text for name, text in headers.items()}

    @staticmethod
    def empty(status: int, **headers: str) -> Reply[Any]:
        """An answer that has only a status and headers."""
        return Reply(None, status, **headers)


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """For routes that have no query parameters."""


class NoHeaders(msgspec.Struct):
    """For routes that read no headers."""


class Endpoint:
    """One method of one path."""

    def __init__(
        self,
        method: str,
        path: str,
        handler: Callable[..., Awaitable[Any]],
        *,
        scope: Scope,
        status: int = 200,
        or_else: Iterable[int] = (),
        once: bool = False,
        registers: bool = False,
        callback: bool = False,
    ) -> None:
        """`once`: it may have an idempotency key. `registers`: it registers jobs, for which it needs a second
        connection. `callback`: the target of the run may send it, with the credential of its call."""
        if scope not in SCOPES:
            raise ValueError(f"{method} {path} needs the scope {scope!r}, which is not one of {', '.join(SCOPES)}.")
        hints = typing.get_type_hints(handler)
        self.scope = scope
        self.method = method
        self.path = path
        self.handler = handler
        self.status = status
        self.other_status = tuple(or_else)
        self.once = once
        self.registers = registers
        self.callback = callback
        self.answer = _inner(hints.pop("return"), Reply)
        self.query = hints.pop("query", NoQuery)
        self.headers = hints.pop("headers", NoHeaders)
        hints.pop("disconnected", None)
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
        if "headers" in self.takes:
            given["headers"] = decode_headers(request.headers, self.headers)
        raw = b"" if self.body is None else await self._receive(api, request)
        if "disconnected" in self.takes:
            given["disconnected"] = partial(_disconnected, request)

        async def serve() -> Response:
            if self.body is not None:
                given["body"] = self._decode(raw, request)
            return self._render(await self.handler(api, **given))

        if not self.once:
            return await serve()
        return await served_once(api, request, raw, serve, registers=self.registers)

    async def _receive(self, api: Api, request: Request) -> bytes:
        if self.body_required:
            check_content_type(request, self.media_types)
        upload = self.upload
        limit = api.max_body_bytes if upload is None else upload.max_bytes
        raw = await read_body(request, limit)
        if not self.body_required and raw.strip():
            check_content_type(request, self.media_types)
        return raw

    def _decode(self, raw: bytes, request: Request) -> Any:
        if not self.body_required and not raw.strip():
            return None
        if self.upload is not None:
            return self.upload(raw, media_type(request))
        return decode_body(raw, typing.cast("type[Any]", self.body))

    @property
    def upload(self) -> type[Upload] | None:
        """The type of a body that is not one JSON document."""
        return self.body if isinstance(self.body, type) and issubclass(self.body, Upload) else None

    @property
    def media_types(self) -> tuple[str, ...]:
        return ("application/json",) if self.upload is None else self.upload.media_types

    def _render(self, value: Any) -> Response:
        if isinstance(value, Response):  # a stream
            return value
        reply = value if isinstance(value, Reply) else Reply(value)
        status = reply.status or self.status
        headers = {**JSON_HEADERS, **reply.headers}
        if isinstance(reply.value, Job):
            headers["ETag"] = tag_of(reply.value.revision)
        if reply.value is None:
            return Response(None, status, headers)
        return Response(msgspec.json.encode(reply.value), status, headers, media_type="application/json")


class Routes:
    """The endpoints under one prefix, collected by decorators."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self.endpoints: list[Endpoint] = []

    def get(self, *paths: str, scope: Scope = "read", or_else: Iterable[int] = ()) -> Callable[[Handler], Handler]:
        return self._add("GET", paths, scope=scope, or_else=or_else)

    def post(
        self,
        *paths: str,
        scope: Scope,
        status: int = 200,
        or_else: Iterable[int] = (),
        once: bool = False,
        registers: bool = False,
        callback: bool = False,
    ) -> Callable[[Handler], Handler]:
        options = {"once": once, "registers": registers, "callback": callback}
        return self._add("POST", paths, scope=scope, status=status, or_else=or_else, **options)

    def put(self, *paths: str, scope: Scope, or_else: Iterable[int] = ()) -> Callable[[Handler], Handler]:
        return self._add("PUT", paths, scope=scope, or_else=or_else)

    def patch(self, *paths: str, scope: Scope) -> Callable[[Handler], Handler]:
        return self._add("PATCH", paths, scope=scope)

    def delete(self, *paths: str, scope: Scope) -> Callable[[Handler], Handler]:
        return self._add("DELETE", paths, scope=scope, status=204)

    def _add(self, method: str, paths: Iterable[str], **options: Any) -> Callable[[Handler], Handler]:
        def add(handler: Handler) -> Handler:
            shown = for_caller(handler, _inside)
            for path in paths:
                self.endpoints.append(Endpoint(method, self._prefix + path, shown, **options))
            return shown

        return add


def _inside(answer: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(answer, Reply):
        answer.value = change(answer.value)
        return answer
    return change(answer)


def starlette_routes(api: Api, endpoints: Iterable[Endpoint]) -> list[Route]:
    """One route for each path, so that 405 names every method that the path has."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [Route(path, _dispatcher(api, methods), methods=list(methods)) for path, methods in by_path.items()]


def _dispatcher(api: Api, methods: Mapping[str, Endpoint]) -> Callable[[Request], Awaitable[Response]]:
    async def dispatch(request: Request) -> Response:
        endpoint = methods["GET" if request.method == "HEAD" else request.method]
        caller, request_id = ANONYMOUS, problems.trace_of(request.headers)
        try:
            caller = await _identify(api, endpoint, request)
            actor = api.authenticator.actor(caller, request, request_id)
            with admitted(caller, endpoint.scope, endpoint.path), acting(actor):
                return await endpoint(dataclasses.replace(api, caller=caller), request)
        except Exception as error:
            actor = api.authenticator.actor(caller, request, request_id)
            await api.refusals.note(error, actor, caller.concerned, f"{endpoint.method} {endpoint.path}")
            return problems.answer(error, request.headers, request_id)

    return dispatch


async def _identify(api: Api, endpoint: Endpoint, request: Request) -> Caller:
    target = await api.callbacks.identify(request) if endpoint.callback else None
    return target or await api.authenticator.identify(request, endpoint.scope)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _inner(annotation: Any, wrapper: type) -> Any:
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is wrapper else annotation


def _without_none(annotation: Any) -> Any:
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation
    members = [member for member in typing.get_args(annotation) if member is not type(None)]
    return members[0] if len(members) == 1 else annotation
