"""The metrics of one process.

Counting must cost the hot path next to nothing: a counter is an attribute, a distribution takes a whole batch at a
time, and no label is looked up for a row. Names, labels and buckets appear only when /metrics is read
(`exposition.py`). Labels have few values, all known beforehand; the API has the figures of single jobs. One instance
lives as long as its process, through all of its memberships, and all counting happens on the process's main loop.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from detent.domain.states import RunStatus

LATENESS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
DURATION = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)
ENDS = (RunStatus.SUCCEEDED, RunStatus.DEAD, RunStatus.CANCELLED)

# What a run calls. `pull`: a worker that pulls executes it; `unknown`: the job's definition no longer exists.
Kind = Literal["http", "python", "shell", "topic", "celery", "pull", "unknown"]
KINDS: tuple[Kind, ...] = ("http", "python", "shell", "topic", "celery", "pull", "unknown")
EXPECTATIONS = ("start", "finish")
DEAD_LETTERS = ("forwarded", "failed", "given_up")
NOTICES = ("sent", "failed", "given_up")
OUTCOMES = ("succeeded", "failed", "timeout", "cancelled")


class Distribution:
    """How many durations were at most as long as each bound, and their sum, all in seconds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * len(bounds)
        self.count = 0
        self.total = 0.0

    def add(self, spans: Iterable[float]) -> None:
        """Numbers are sorted in a fifth of the time that timedeltas take."""
        ordered = sorted(spans)
        self.count += len(ordered)
        self.total += sum(ordered)
        for position, limit in enumerate(self.bounds):
            self.counts[position] += bisect_right(ordered, limit)


class NodeGauges(NamedTuple):
    """The state of a process that is a member of the cluster; durations in seconds."""

    partitions_led: int
    partitions_flapping: int
    heartbeat_age: float
    heartbeat_interval: float
    lease_remaining: float
    clock_offset: float
    draining: bool
    held: bool
    running: int = 0
    waiting: int = 0
    slots: int = 0
    tenants_held_back: int = 0
    ticks_unsent: int = 0
    oldest_unsent: float = 0.0
    fires_failing: float = 0.0
    handlers_short: int = 0


class QueueDepth(NamedTuple):
    """Runs that wait for a worker in the queues of one name, and for how many seconds the oldest has."""

    runs: int
    oldest: float


class ClusterSignals(NamedTuple):
    """The state of the whole cluster, read from the database; ages in seconds, 0 where nothing waits."""

    ticks_due: int
    oldest_due: float
    runs_ready: int
    oldest_ready: float
    jobs_overdue: int
    dead_letters: int
    catch_up_ticks: int
    nodes: dict[str, int]
    zone_data_releases: int
    versions: int
    partitions_without_leader: int
    partition_elections: int
    incidents_open: int
    answer_seconds: float
    jobs_set_aside: int = 0
    queues: Mapping[str, QueueDepth] = MappingProxyType({})


async def _unknown() -> ClusterSignals | None:
    return None


class Metrics:
    def __init__(self) -> None:
        # Set by the node: None while it is not a member.
        self.gauges: Callable[[], NodeGauges | None] = lambda: None
        # Set by the node: None while the database does not answer.
        self.cluster: Callable[[], Awaitable[ClusterSignals | None]] = _unknown
        # Unix time; None: this process serves no HTTPS.
        self.certificate_expires_at: float | None = None
        self.elections = 0
        self.evictions = 0
        self.memberships_lost = 0
        self.rescued = 0
        self.refused_fires = 0
        self.refused_settles = 0
        self.fired = 0
        self.overlaps = 0
        self.missed = 0
        self.catch_ups = 0
        self.large_catch_ups = 0
        self.released = 0
        self.starts = 0
        self.not_begun = 0
        self.put_off = 0
        self.circuits_open = 0
        self.circuits_opened = 0
        self.retries = 0
        # Of the transport; None: PostgreSQL is the queue.
        self.transport_up: bool | None = None
        self.offers_sent = 0
        self.offers_taken = 0
        self.offers_stale = 0
        self.transport_fallbacks = 0
        self.ends: Counter[tuple[Kind, RunStatus]] = Counter()
        self.attempts: Counter[tuple[Kind, str]] = Counter()
        self.expectations_missed = dict.fromkeys(EXPECTATIONS, 0)
        self.dead_letters = dict.fromkeys(DEAD_LETTERS, 0)
        self.notices = dict.fromkeys(NOTICES, 0)
        self.lateness = Distribution(LATENESS)
        self.duration = {kind: Distribution(DURATION) for kind in KINDS}
