"""GET /cluster: who is there, who leads what, and how well their clocks agree."""

from __future__ import annotations

from detent.api.context import PREFIX, Api
from detent.api.routing import Routes
from detent.shapes import Cluster

routes = Routes(PREFIX)


@routes.get("/cluster")
async def get_cluster(api: Api) -> Cluster:
    """Look at the nodes, and at who leads each partition."""
    return await api.store.cluster.look()
