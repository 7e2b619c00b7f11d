"""The cluster in the public API: nodes, leaders of partitions, lag and throughput."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from detent.contract.page import Instant

NodeState = Literal["alive", "draining", "evicted"]
FormerState = Literal["left", "lost"]


class NodeCircuit(Struct, frozen=True, kw_only=True):
    """A host that does not answer calls of a node's worker: runs that would call it wait and use up no attempt, but for
    one at a time, the next at `next_probe_at`. `put_off` is how often a run was returned to its queue for that."""

    host: str
    port: int
    opened_at: Instant
    next_probe_at: Instant
    put_off: int


class ClusterNode(Struct, frozen=True, kw_only=True):
    """A node as of its last heartbeat. `lease_ms` is the time left until other nodes consider it lost,
    `clock_offset_ms` how far its clock is ahead of the database's, `partitions` how many it leads, `running` how many
    unfinished runs it has claimed. A `draining` node hands over its work; an `evicted` node is gone, and other nodes
    take over from it. `circuits` are the hosts that do not answer its calls. Hosts, addresses, circuits and numbers of
    runs are shown to the default tenant only, whose administrators
    manage the cluster."""

    id: str
    state: NodeState
    roles: list[str]
    host: str | None
    pid: int | None
    address: str | None
    started_at: Instant
    heartbeat_age_ms: int
    lease_ms: int
    clock_offset_ms: float
    version: str
    tzdata: str
    partitions: int
    running: int | None
    circuits: list[NodeCircuit] | None = None


class NodeTakeOver(Struct, frozen=True, kw_only=True):
    """What `node` took over from a node that ended: the number of `partitions` that it led from then on, and
    the number of `runs` that it returned to their queues; `at` is when it finished. Numbers of runs are shown to the
    default tenant only."""

    node: str
    partitions: int
    runs: int | None
    at: Instant


class FormerNode(Struct, frozen=True, kw_only=True):
    """A node that ended within the last day. A node that `left` shut down cleanly; a `lost` node stopped answering
    after `last_seen_at`, and other nodes took over its work. `partitions` is how many it led then. `back_as` is the id
    under which it, or its replacement on the same host, joined again. An operator may have `dismissed` its loss."""

    id: str
    state: FormerState
    roles: list[str]
    host: str | None
    pid: int | None
    address: str | None
    version: str
    tzdata: str
    started_at: Instant
    last_seen_at: Instant
    ended_at: Instant
    partitions: int
    taken_over_by: list[NodeTakeOver]
    back_as: str | None
    dismissed: bool


class ClusterPartition(Struct, frozen=True, kw_only=True):
    """The leader of a partition, its term, and for how long it has led. Null: no leader yet."""

    partition: int
    node: str | None
    term: int
    age_ms: int | None


class TakeOver(Struct, frozen=True, kw_only=True):
    """A node took this many partitions at once."""

    at: Instant
    node: str
    partitions: int


class Elections(Struct, frozen=True, kw_only=True):
    """How many times a partition got a new leader in the `last_hour`; the partitions that are `flapping`, which changed
    leaders again although no node joined or left; and the newest take-overs."""

    last_hour: int
    flapping: list[int]
    recent: list[TakeOver]


class ClusterHold(Struct, frozen=True, kw_only=True):
    """No tick fires anywhere until an operator resumes the cluster."""

    at: Instant
    by: str | None
    reason: str


class TickState(Struct, frozen=True):
    """Whether ticks fire: `held` is null when they do."""

    held: ClusterHold | None


class Lag(Struct, frozen=True, kw_only=True):
    """How long the oldest work has waited: a tick that is due, a run that is ready to be claimed. Null: none waits."""

    oldest_due_ms: int | None
    oldest_ready_ms: int | None


class Throughput(Struct, frozen=True, kw_only=True):
    """How many runs of all tenants ended in the last 10 and the last 60 seconds."""

    last_10s: int
    last_60s: int


class Cluster(Struct, frozen=True, kw_only=True):
    """The nodes, those that ended within a day, the leader of each partition, how far behind the work is, and in
    `problems` what an operator should check, one sentence each."""

    nodes: list[ClusterNode]
    former_nodes: list[FormerNode]
    partitions: list[ClusterPartition]
    elections: Elections
    held: ClusterHold | None
    lag: Lag
    throughput: Throughput | None
    problems: list[str]
