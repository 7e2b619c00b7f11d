"""The cluster: its nodes, the leaders of partitions, the load; and draining a node.

Only the default tenant sees hosts, addresses and the load of all tenants. Its administrators drain nodes.
"""

from __future__ import annotations

import contextlib

from detent.api.context import PREFIX, Api, check_default_tenant
from detent.api.routing import Routes
from detent.contract.cluster import Cluster, ClusterNode, FormerNode
from detent.errors import DetentError, NotFound
from detent.store.db import PoolName
from detent.store.jobs import DEFAULT_TENANT
from detent.store.tenant_wall import walled
from detent.store.upkeep import RUNS_CHANNEL

routes = Routes(PREFIX)


@routes.get("/cluster")
async def get_cluster(api: Api) -> Cluster:
    """Get the nodes, the leader of each partition, and the problems."""
    return await _cluster(api)


@routes.post("/cluster/nodes/{id}/drain", scope="admin")
async def drain_node(api: Api, id: str) -> ClusterNode:  # noqa: A002 - the name is part of the contract
    """Drain a node: it hands over its partitions, finishes its runs and takes no new ones."""
    return await _drain(api, id, True)


@routes.post("/cluster/nodes/{id}/resume", scope="admin")
async def resume_node(api: Api, id: str) -> ClusterNode:  # noqa: A002 - the name is part of the contract
    """End the draining of a node."""
    return await _drain(api, id, False)


@routes.post("/cluster/nodes/{id}/dismiss", scope="admin")
async def dismiss_node(api: Api, id: str) -> FormerNode:  # noqa: A002 - the name is part of the contract
    """Dismiss the loss of a node, so that it is no longer listed as a problem."""
    check_default_tenant(api, "Nodes are managed")
    await api.cluster.dismiss(id)
    for node in (await _cluster(api)).former_nodes:
        if node.id == id:
            return node
    raise NotFound(f"Node {id!r} was lost more than a day ago.")


async def _cluster(api: Api) -> Cluster:
    with walled(None):  # counts jobs and runs of all tenants, and names none
        return await api.cluster.describe(operator=api.tenant == DEFAULT_TENANT)


async def _drain(api: Api, name: str, draining: bool) -> ClusterNode:
    check_default_tenant(api, "Nodes are managed")
    await api.cluster.drain(name, draining)
    with contextlib.suppress(DetentError):  # best effort: otherwise the node notices on its next pass
        await api.store.upkeep.wake(RUNS_CHANNEL, "share", pool=PoolName.REQUEST)
    for node in (await _cluster(api)).nodes:
        if node.id == name:
            return node
    raise NotFound(f"Node {name!r} has just left.")
