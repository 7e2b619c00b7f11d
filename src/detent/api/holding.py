"""POST /cluster/pause and /cluster/resume: one switch for all ticks, whoever's they are."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from detent.api.context import PREFIX, Api, check_default_tenant
from detent.api.routing import Routes
from detent.contract.cluster import Ticks

routes = Routes(PREFIX)

Reason = Annotated[str, Meta(min_length=1, max_length=1000)]


class HoldRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Why nothing is to fire, for whoever looks at the cluster."""

    reason: Reason


@routes.post("/cluster/pause", scope="admin")
async def pause_all(api: Api, body: HoldRequest) -> Ticks:
    """Let no tick of any job fire until they are resumed; runs that have been fired go on."""
    check_default_tenant(api, "The cluster is paused")
    by = "this machine" if api.caller.key is None else f"key {api.caller.key}"
    return Ticks(await api.cluster.pause_ticks(by, body.reason))


@routes.post("/cluster/resume", scope="admin")
async def resume_all(api: Api) -> Ticks:
    """Let ticks fire again. Those that fell into the pause are late or missed, by each job's own rule."""
    check_default_tenant(api, "The cluster is resumed")
    await api.cluster.resume_ticks()
    return Ticks(None)
