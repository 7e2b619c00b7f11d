"""The cluster: who is there, who leads what, how the work goes; and asking a node to hand over.

Where nodes are, and how much all tenants do together, is told to the default tenant. Its administrators drain nodes.
"""

from __future__ import annotations

import contextlib

from detent.api.context import PREFIX, Api, check_default_tenant
from detent.api.routing import Routes
from detent.contract.cluster import Cluster, ClusterNode, FormerNode
from detent.errors import DetentError, NotFound
from detent.store.db import PoolName
from detent.store.jobs import DEFAULT_TENANT
from detent.store.upkeep import RUNS_CHANNEL

routes = Routes(PREFIX)


@routes.get("/cluster")
async def get_cluster(api: Api) -> Cluster:
    """Look at the nodes, at who leads each partition, and at what is wrong."""
    return await _look(api)


@routes.post("/cluster/nodes/{id}/drain", scope="admin")
async def drain_node(api: Api, id: str) -> ClusterNode:  # noqa: A002 - the name is part of the contract
    """Ask a node to hand over what it leads, to finish what it runs, and to take nothing new."""
    return await _drain(api, id, True)


@routes.post("/cluster/nodes/{id}/resume", scope="admin")
async def resume_node(api: Api, id: str) -> ClusterNode:  # noqa: A002 - the name is part of the contract
    """Let a node that is draining take part again."""
    return await _drain(api, id, False)


@routes.post("/cluster/nodes/{id}/dismiss", scope="admin")
async def dismiss_node(api: Api, id: str) -> FormerNode:  # noqa: A002 - the name is part of the contract
    """Take note that a node was lost, so that it is no longer among the problems."""
    check_default_tenant(api, "Nodes are looked after")
    await api.store.cluster.dismiss(id)
    for node in (await _look(api)).former_nodes:
        if node.id == id:
            return node
    raise NotFound(f"Node {id!r} was lost more than a day ago.")


async def _look(api: Api) -> Cluster:
    return await api.store.cluster.look(operator=api.tenant == DEFAULT_TENANT)


async def _drain(api: Api, name: str, draining: bool) -> ClusterNode:
    check_default_tenant(api, "Nodes are looked after")
    await api.store.cluster.drain(name, draining)
    with contextlib.suppress(DetentError):  # a hint: without it, the node sees it at its next look
        await api.store.upkeep.wake(RUNS_CHANNEL, "share", pool=PoolName.REQUEST)
    for node in (await _look(api)).nodes:
        if node.id == name:
            return node
    raise NotFound(f"Node {name!r} has just left.")
