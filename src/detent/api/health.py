"""Probes and metrics: is the process alive, is it ready, which version is it, what does it count."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from detent.api.context import Api, Readiness
from detent.api.own_calls import OwnCallGuard
from detent.api.routing import JSON_HEADERS, Reply, Routes
from detent.contract.server import Version
from detent.domain.schedule import tzdata_version
from detent.telemetry.exposition import Exposition
from detent.telemetry.health import ReadinessCheck, summary
from detent.telemetry.metrics import Metrics
from detent.version import __version__

routes = Routes()


class Alive(Struct):
    status: Literal["ok"] = "ok"


class ReadyQuery(Struct, forbid_unknown_fields=True):
    verbose: bool = False


@routes.get("/livez", scope="public")
async def live(api: Api) -> Alive:
    """Whether the process answers at all."""
    return Alive()


@routes.get("/readyz", scope="public", or_else=(503,))
async def ready(api: Api, query: ReadyQuery) -> Reply[ReadinessCheck]:
    """Whether the process is ready for work: 200 or 503."""
    answer, status = summary(await api.readiness(), query.verbose)
    return Reply(answer, status)


@routes.get("/version", scope="public")
async def version(api: Api) -> Version:
    """The version of detent and of its zone data."""
    return Version(__version__, "v1", tzdata_version())


def metrics_route(metrics: Metrics) -> Route:
    """GET /metrics, as text."""
    expose = Exposition(metrics)

    async def show(request: Request) -> Response:
        text, kind = await expose(request.headers.get("accept", ""))
        return Response(text, headers={**JSON_HEADERS, "Content-Type": kind})

    return Route("/metrics", show)


def create_probes(readiness: Readiness, metrics: Metrics) -> Starlette:
    """The same probes for processes without an API, and nothing else."""

    async def alive(request: Request) -> Response:
        return _json(Alive(), 200)

    async def is_ready(request: Request) -> Response:
        return _json(*summary(await readiness(), "verbose" in request.query_params))

    app = Starlette(
        routes=[Route("/livez", alive), Route("/readyz", is_ready), metrics_route(metrics)],
        middleware=[Middleware(OwnCallGuard)],
    )
    app.state.close = _nothing_to_close
    return app


async def _nothing_to_close() -> None:
    return


def _json(answer: Alive | ReadinessCheck, status: int) -> Response:
    return Response(msgspec.json.encode(answer), status, JSON_HEADERS, media_type="application/json")
