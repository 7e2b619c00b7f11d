"""Verbs about the cluster, its nodes and the server itself."""

from __future__ import annotations

from typing import Any

from detent.client.operation import Operation, Request
from detent.client.requests import PREFIX, reader
from detent.client.transport import segment
from detent.contract.cluster import Cluster, ClusterNode, FormerNode, TickState
from detent.contract.server import Version


def get_cluster() -> Request[Cluster]:
    """Get the nodes, the leader of each partition, and the problems."""
    return Request("GET", f"{PREFIX}/cluster", reader(Cluster))


def pause_all(reason: str) -> Request[TickState]:
    """Stop all ticks of all jobs until they are resumed; runs that have fired continue."""
    return Request("POST", f"{PREFIX}/cluster/pause", reader(TickState), body={"reason": reason})


def resume_all() -> Request[TickState]:
    """Resume all ticks. Those of the pause are late or missed, by each job's policy."""
    return Request("POST", f"{PREFIX}/cluster/resume", reader(TickState))


def drain_node(node: str) -> Request[ClusterNode]:
    """Ask a node to hand over what it leads, finish what it runs, and claim nothing new."""
    return Request("POST", f"{PREFIX}/cluster/nodes/{segment(node)}/drain", reader(ClusterNode))


def resume_node(node: str) -> Request[ClusterNode]:
    """Withdraw the drain of a node."""
    return Request("POST", f"{PREFIX}/cluster/nodes/{segment(node)}/resume", reader(ClusterNode))


def dismiss_node(node: str) -> Request[FormerNode]:
    """Acknowledge that a node was lost, so that it is no longer a problem."""
    return Request("POST", f"{PREFIX}/cluster/nodes/{segment(node)}/dismiss", reader(FormerNode))


def version() -> Request[Version]:
    """Get the version of the server."""
    return Request("GET", "/version", reader(Version))


def liveness() -> Request[dict[str, Any]]:
    """Ask whether the server process answers."""
    return Request("GET", "/livez", reader(dict[str, Any]))


def readiness() -> Request[dict[str, Any]]:
    """Get every readiness check of the server, whether it is ready or not."""
    return Request("GET", "/readyz", reader(dict[str, Any]), query={"verbose": "true"}, answers=(503,))


class ClusterVerbs:
    """The verbs of the clients about the cluster and the server."""

    get_cluster = Operation(get_cluster)
    pause_all = Operation(pause_all)
    resume_all = Operation(resume_all)
    drain_node = Operation(drain_node)
    resume_node = Operation(resume_node)
    dismiss_node = Operation(dismiss_node)
    version = Operation(version)
    liveness = Operation(liveness)
    readiness = Operation(readiness)
