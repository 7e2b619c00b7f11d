"""What a process counts of itself, and its text for Prometheus.

Counting must cost the hot path next to nothing: a counter is an attribute, a distribution takes a whole batch at a
time, and no label is looked up for a row. Names, labels and buckets appear only when somebody asks for the text. Labels
have few values that are known beforehand; figures of single jobs are the API's. One instance lives as long as its
process, through all of its memberships, and all counting is done on the process's main loop.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from detent.schedule import tzdata_version
from detent.states import RunStatus
from detent.version import __version__

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

LATENESS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
DURATION = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)
ENDS = (RunStatus.SUCCEEDED, RunStatus.DEAD, RunStatus.CANCELLED)


class Distribution:
    """How many spans of time were as short as each bound, and what they were together."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * len(bounds)
        self.count = 0
        self.total = timedelta()
        self._limits = [timedelta(seconds=bound) for bound in bounds]

    def add(self, spans: Iterable[timedelta]) -> None:
        ordered = sorted(spans)
        self.count += len(ordered)
        self.total += sum(ordered, timedelta())
        for position, limit in enumerate(self._limits):
            self.counts[position] += bisect_right(ordered, limit)


class Standing(NamedTuple):
    """What a process that is a member of the cluster knows of its place in it; ages and ends in seconds."""

    partitions_led: int
    partitions_flapping: int
    heartbeat_age: float
    lease_remaining: float
    clock_offset: float
    draining: bool
    held: bool


class Metrics:
    def __init__(self) -> None:
        # Set by the process that has one: None while it is not a member.
        self.standing: Callable[[], Standing | None] = lambda: None
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
        self.retries = 0
        self.ends = dict.fromkeys(ENDS, 0)
        self.lateness = Distribution(LATENESS)
        self.duration = Distribution(DURATION)


class Exposition:
    """The text, in the form that whoever asks prefers. Made when first asked for: importing its maker takes a while."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._registry: CollectorRegistry | None = None

    def __call__(self, accept: str) -> tuple[bytes, str]:
        """The text and its content type."""
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder

        if self._registry is None:
            self._registry = CollectorRegistry(auto_describe=False)
            self._registry.register(self)
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def collect(self) -> Iterator[Metric]:
        yield from _build()
        yield from _counters(self._metrics)
        yield from _runs(self._metrics)
        standing = self._metrics.standing()
        if standing is not None:
            yield from _gauges(standing)


def _build() -> Iterator[Metric]:
    from prometheus_client.core import InfoMetricFamily

    facts = {"version": __version__, "tzdata": tzdata_version()}
    yield InfoMetricFamily("detent_build", "Which detent this is, and which zone data it has.", facts)


def _counters(metrics: Metrics) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    for name, text, value in (
        ("elections", "Partitions that this process has taken.", metrics.elections),
        ("evictions", "Nodes that this process has evicted because their lease had ended.", metrics.evictions),
        ("memberships_lost", "Times that this process has lost its place.", metrics.memberships_lost),
        ("rescued_runs", "Runs of lost nodes that this process has returned.", metrics.rescued),
        ("ticks_fired", "Ticks that became runs.", metrics.fired),
        ("ticks_skipped", "Ticks that did not run because the run before was not over.", metrics.overlaps),
        ("ticks_missed", "Ticks that passed while nobody could fire them, and did not run.", metrics.missed),
        ("catch_ups", "Jobs that were given past ticks to run: missed, of a pause, or to backfill.", metrics.catch_ups),
        ("large_catch_ups", "Times that a hundred or more of these were to run at once.", metrics.large_catch_ups),
        ("ticks_released", "Ticks that were made up for, or backfilled.", metrics.released),
        ("starts", "Attempts that were started.", metrics.starts),
        ("retries", "Attempts that failed and are followed by another.", metrics.retries),
    ):
        yield CounterMetricFamily(f"detent_{name}", text, value)
    refused = CounterMetricFamily(
        "detent_refused_writes", "Writes that the database refused because they came too late.", labels=["write"]
    )
    refused.add_metric(["fire"], metrics.refused_fires)
    refused.add_metric(["settle"], metrics.refused_settles)
    yield refused


def _runs(metrics: Metrics) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    ends = CounterMetricFamily("detent_runs", "Runs that ended here.", labels=["status"])
    for status, count in metrics.ends.items():
        ends.add_metric([status.value], count)
    yield ends
    for name, text, spans in (
        (
            "detent_start_lateness_seconds",
            "From the tick to the start of its first attempt, jitter_seconds included.",
            metrics.lateness,
        ),
        ("detent_run_duration_seconds", "From the start of an attempt to its end.", metrics.duration),
    ):
        buckets = [(repr(float(bound)), count) for bound, count in zip(spans.bounds, spans.counts, strict=True)]
        buckets.append(("+Inf", spans.count))
        yield HistogramMetricFamily(name, text, buckets, spans.total.total_seconds())


def _gauges(standing: Standing) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    for name, text, value in (
        ("partitions_led", "Partitions that this node leads.", standing.partitions_led),
        (
            "partitions_flapping",
            "Partitions that this node took again without a reason in the last hour.",
            standing.partitions_flapping,
        ),
        ("leader_status", "1 while this node leads any partition.", standing.partitions_led > 0),
        ("heartbeat_age_seconds", "Since the last heartbeat that came back.", standing.heartbeat_age),
        ("lease_remaining_seconds", "Until this node no longer trusts its place.", standing.lease_remaining),
        ("clock_offset_seconds", "How far this node's clock is ahead of the database's.", standing.clock_offset),
        ("draining", "1 while this node was asked to hand over.", standing.draining),
        ("held", "1 while no tick fires anywhere.", standing.held),
    ):
        yield GaugeMetricFamily(f"detent_{name}", text, float(value))
