"""What machines ask before they send work: is it alive, is it ready, which version is it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from detent.api.context import Api
from detent.api.routing import Reply, Routes
from detent.schedule import tzdata_version
from detent.version import __version__

routes = Routes()


class Alive(Struct):
    status: Literal["ok"] = "ok"


class Ready(Struct, omit_defaults=True):
    """`checks` is there when asked for with ?verbose."""

    status: Literal["ready", "not ready"]
    checks: dict[str, bool] | None = None


class ReadyQuery(Struct, forbid_unknown_fields=True):
    verbose: bool = False


class Version(Struct):
    version: str
    api: str
    tzdata: str


@routes.get("/livez", scope="public")
async def live(api: Api) -> Alive:
    """Whether the process answers at all."""
    return Alive()


@routes.get("/readyz", scope="public")
async def ready(api: Api, query: ReadyQuery) -> Reply[Ready]:
    """Whether everything it needs is there: 200 or 503."""
    checks = api.readiness()
    good = all(checks.values())
    answer = Ready("ready" if good else "not ready", checks if query.verbose else None)
    return Reply(answer, 200 if good else 503)


@routes.get("/version", scope="public")
async def version(api: Api) -> Version:
    """Which detent this is."""
    return Version(__version__, "v1", tzdata_version())
