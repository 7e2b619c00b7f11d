"""The cluster as people read it: nodes, who leads what, how the work goes. Part of the public contract, as `shapes`."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from detent.contract.page import Instant

NodeState = Literal["alive", "draining", "evicted"]
FormerState = Literal["left", "lost"]


class ClusterNode(Struct, frozen=True, kw_only=True):
    """A node as it last told of itself. `lease_ms` is how long others wait for its next heartbeat, `clock_offset_ms`
    how far its clock is ahead of the database's, `partitions` how many it leads, `running` how many runs it holds. One
    that is `draining` was asked to hand over; one that is `evicted` is gone, and others are taking over from it. Hosts,
    addresses and numbers of runs are told to the default tenant, whose administrators look after the cluster."""

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


class NodeTakeOver(Struct, frozen=True, kw_only=True):
    """What `node` took over from one that ended: so many partitions, which it leads since then, and so many runs, which
    it returned to their queues; `at` is when it had. Numbers of runs are told to the default tenant."""

    node: str
    partitions: int
    runs: int | None
    at: Instant


class FormerNode(Struct, frozen=True, kw_only=True):
    """A node that ended within the last day. One that `left` did so in good order; one that is `lost` stopped answering
    after `last_seen_at`, and others took over what it held. `partitions` is how many it led then. `back_as` is the node
    under whose id it, or its replacement on the same host, joined again. An operator may have `dismissed` its loss."""

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
    """Who leads a partition, under which term, and for how long. No node: nobody yet."""

    partition: int
    node: str | None
    term: int
    age_ms: int | None


class TakeOver(Struct, frozen=True, kw_only=True):
    """A node took so many partitions at once."""

    at: Instant
    node: str
    partitions: int


class Elections(Struct, frozen=True, kw_only=True):
    """How often a partition was taken in the `last_hour`; the partitions that are `flapping`, which changed hands again
    although no node came or went; and the newest take-overs."""

    last_hour: int
    flapping: list[int]
    recent: list[TakeOver]


class ClusterHold(Struct, frozen=True, kw_only=True):
    """No tick fires anywhere until somebody resumes."""

    at: Instant
    by: str | None
    reason: str


class TickState(Struct, frozen=True):
    """Whether ticks fire: `held` is null when they do."""

    held: ClusterHold | None


class Lag(Struct, frozen=True, kw_only=True):
    """How long the oldest work has waited: a tick that is due to be fired, a run that is ready to be claimed. Null:
    none waits."""

    oldest_due_ms: int | None
    oldest_ready_ms: int | None


class Throughput(Struct, frozen=True, kw_only=True):
    """How many runs of all tenants ended in the last seconds."""

    last_10s: int
    last_60s: int


class Cluster(Struct, frozen=True, kw_only=True):
    """The nodes, those that ended within a day, who leads each partition, how far behind the work is, and in `problems`
    what an operator should look at, a sentence each."""

    nodes: list[ClusterNode]
    former_nodes: list[FormerNode]
    partitions: list[ClusterPartition]
    elections: Elections
    held: ClusterHold | None
    lag: Lag
    throughput: Throughput | None
    problems: list[str]
