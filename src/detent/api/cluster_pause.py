"""POST /cluster/pause and /cluster/resume: one switch for the ticks of all tenants."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from detent.api.context import PREFIX, Api, check_default_tenant
from detent.api.routing import Routes
from detent.contract.cluster import TickState

routes = Routes(PREFIX)

Reason = Annotated[str, Meta(min_length=1, max_length=1000)]


class HoldRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Why nothing is to fire, shown with the cluster."""

    reason: Reason


@routes.post("/cluster/pause", scope="admin")
async def pause_all(api: Api, body: HoldRequest) -> TickState:
    """Pause all ticks of all jobs until they are resumed; runs that were fired continue."""
    check_default_tenant(api, "The cluster is paused")
    by = f"key {api.caller.key}" if api.caller.key is not None else api.by if api.caller.user else "this machine"
    return TickState(await api.cluster.pause_ticks(by, body.reason))


@routes.post("/cluster/resume", scope="admin")
async def resume_all(api: Api) -> TickState:
    """Resume all ticks. Those that came due during the pause run late or are missed, as each job's settings say."""
    check_default_tenant(api, "The cluster is resumed")
    await api.cluster.resume_ticks()
    return TickState(None)
