"""The text for Prometheus. Every metric has its line here: its name, its meaning and its source.

Metrics of the process are always present; metrics of its membership only while it is a member; metrics of the whole
cluster only while the database answers. Every process reports the same cluster metrics: take the largest, not the sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from detent.domain.schedule import tzdata_version
from detent.telemetry.metrics import (
    ENDS,
    KINDS,
    OUTCOMES,
    ClusterSignals,
    Distribution,
    Metrics,
    NodeGauges,
    QueueDepth,
)
from detent.version import __version__

if TYPE_CHECKING:
    from prometheus_client import Metric

NODE_STATES = ("alive", "draining", "silent", "evicted")


class Exposition:
    """The text, in the format that the client prefers. prometheus_client is imported on first use: that is slow."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def __call__(self, accept: str) -> tuple[bytes, str]:
        """The text and its content type."""
        from prometheus_client.exposition import choose_encoder

        snapshot: Any = Snapshot(self._metrics, await self._metrics.cluster())
        encode, content_type = choose_encoder(accept)
        return encode(snapshot), content_type


class Snapshot:
    """All metrics at one moment, as a collector of prometheus_client."""

    def __init__(self, metrics: Metrics, cluster: ClusterSignals | None) -> None:
        self._metrics = metrics
        self._cluster = cluster

    def collect(self) -> Iterator[Metric]:
        yield from _build()
        yield from _counters(self._metrics)
        yield from _refusals(self._metrics)
        yield from _runs(self._metrics)
        yield from _expectations(self._metrics)
        yield from _spans(self._metrics)
        yield from _certificate(self._metrics)
        yield from _circuits(self._metrics)
        yield from _transport(self._metrics)
        gauges = self._metrics.gauges()
        yield from _membership(gauges is not None, self._cluster is not None)
        if gauges is not None:
            yield from _node(gauges)
        if self._cluster is not None:
            yield from _cluster(self._cluster)


def every_metric() -> Iterator[Metric]:
    """All metrics with nothing counted yet, for the manual."""
    metrics = Metrics()
    metrics.certificate_expires_at = 0.0
    metrics.transport_up = False
    metrics.gauges = lambda: NodeGauges(0, 0, 0.0, 0.0, 0.0, 0.0, draining=False, held=False)
    nothing = ClusterSignals(0, 0.0, 0, 0.0, 0, 0, 0, {}, 0, 0, 0, 0, 0, 0.0, queues={"default": QueueDepth(0, 0.0)})
    return Snapshot(metrics, nothing).collect()


def _build() -> Iterator[Metric]:
    from prometheus_client.core import InfoMetricFamily

    facts = {"version": __version__, "tzdata": tzdata_version()}
    yield InfoMetricFamily("detent_build", "The version of detent and of its zone data.", facts)


def _counters(metrics: Metrics) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    for name, text, value in (
        ("elections", "Partitions that this process has taken.", metrics.elections),
        ("evictions", "Nodes that this process has evicted because their lease had ended.", metrics.evictions),
        ("memberships_lost", "Times that this process has lost its membership.", metrics.memberships_lost),
        ("rescued_runs", "Runs of lost nodes and workers that this process has returned.", metrics.rescued),
        ("ticks_fired", "Ticks that became runs.", metrics.fired),
        ("ticks_skipped", "Ticks that did not run because the previous run was not over.", metrics.overlaps),
        ("ticks_missed", "Ticks that passed while no scheduler could fire them, and did not run.", metrics.missed),
        ("catch_ups", "Jobs with past ticks to run: missed, from a pause, or to backfill.", metrics.catch_ups),
        ("large_catch_ups", "Catch-ups of a hundred or more ticks at once.", metrics.large_catch_ups),
        ("ticks_released", "Past ticks that were caught up or backfilled.", metrics.released),
        ("starts", "Attempts that were started.", metrics.starts),
        (
            "uncalled_runs",
            "Runs returned to their queue because their target could not be called here for now.",
            metrics.not_begun,
        ),
        (
            "put_off_runs",
            "Runs returned to their queue, to wait there, because their host does not answer or is busy for now.",
            metrics.put_off,
        ),
        ("circuits_opened", "Circuits of hosts that did not answer, opened by this process.", metrics.circuits_opened),
        ("retries", "Attempts that failed and are followed by another.", metrics.retries),
    ):
        yield CounterMetricFamily(f"detent_{name}", text, value)


def _circuits(metrics: Metrics) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    text = "Hosts that do not answer: runs that would call them wait, but for one probe at a time."
    yield GaugeMetricFamily("detent_circuits_open", text, metrics.circuits_open)


def _transport(metrics: Metrics) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    if metrics.transport_up is None:
        return
    text = "1 while this process reaches the broker that carries offers; only where DETENT_QUEUE names one."
    yield GaugeMetricFamily("detent_transport_up", text, float(metrics.transport_up))
    for name, text, value in (
        ("offers_sent", "Offers of runs that the broker has acknowledged.", metrics.offers_sent),
        ("offers_taken", "Offers that this process has taken from the broker.", metrics.offers_taken),
        (
            "offers_stale",
            "Offers whose run did not wait any more: claimed by another worker, or ended.",
            metrics.offers_stale,
        ),
        (
            "transport_fallbacks",
            "Times that this process lost the broker and went on through PostgreSQL.",
            metrics.transport_fallbacks,
        ),
    ):
        yield CounterMetricFamily(f"detent_{name}", text, value)


def _certificate(metrics: Metrics) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    if metrics.certificate_expires_at is not None:
        text = "When the certificate of the API expires, in Unix time; only where this process serves HTTPS."
        yield GaugeMetricFamily("detent_tls_certificate_expiry_timestamp_seconds", text, metrics.certificate_expires_at)


def _refusals(metrics: Metrics) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    refused = CounterMetricFamily(
        "detent_refused_writes", "Writes that the database refused because they came too late.", labels=["write"]
    )
    refused.add_metric(["fire"], metrics.refused_fires)
    refused.add_metric(["settle"], metrics.refused_settles)
    yield refused


def _expectations(metrics: Metrics) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    missed = CounterMetricFamily(
        "detent_expectations_missed", "Ticks that did not start or finish as expected.", labels=["expectation"]
    )
    for expectation, count in metrics.expectations_missed.items():
        missed.add_metric([expectation], count)
    yield missed
    notices = CounterMetricFamily("detent_notices", "Attempts to send a notification about that.", labels=["result"])
    for result, count in metrics.notices.items():
        notices.add_metric([result], count)
    yield notices
    letters = CounterMetricFamily(
        "detent_dead_letters", "Attempts to forward a dead run to a topic.", labels=["result"]
    )
    for result, count in metrics.dead_letters.items():
        letters.add_metric([result], count)
    yield letters


def _runs(metrics: Metrics) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    ends = CounterMetricFamily("detent_runs", "Runs that ended here, by what they called.", labels=["target", "status"])
    attempts = CounterMetricFamily(
        "detent_attempts", "Attempts that ended here, by what they called.", labels=["target", "outcome"]
    )
    for kind in KINDS:
        for status in ENDS:
            ends.add_metric([kind, status.value], metrics.ends[kind, status])
        for outcome in OUTCOMES:
            attempts.add_metric([kind, outcome], metrics.attempts[kind, outcome])
    yield ends
    yield attempts


def _spans(metrics: Metrics) -> Iterator[Metric]:
    from prometheus_client.core import HistogramMetricFamily

    text = "From the tick to the start of its first attempt, jitter_seconds included, a staggered release not."
    lateness = HistogramMetricFamily("detent_start_lateness_seconds", text)
    lateness.add_metric([], *_buckets(metrics.lateness))
    yield lateness
    text = "From the start of an attempt to its end, by what was called."
    duration = HistogramMetricFamily("detent_run_duration_seconds", text, labels=["target"])
    for kind in KINDS:
        duration.add_metric([kind], *_buckets(metrics.duration[kind]))
    yield duration


def _buckets(spans: Distribution) -> tuple[list[tuple[str, float]], float]:
    buckets: list[tuple[str, float]] = [
        (repr(float(bound)), count) for bound, count in zip(spans.bounds, spans.counts, strict=True)
    ]
    return [*buckets, ("+Inf", spans.count)], spans.total


def _membership(member: bool, answers: bool) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    yield GaugeMetricFamily("detent_member", "1 while this process is a node of the cluster.", float(member))
    yield GaugeMetricFamily("detent_database_up", "1 while the database answers this process.", float(answers))


def _node(gauges: NodeGauges) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    for name, text, value in (
        ("partitions_led", "Partitions that this node leads.", gauges.partitions_led),
        (
            "partitions_flapping",
            "Partitions that this node took again in the last hour although no node joined or left.",
            gauges.partitions_flapping,
        ),
        ("leader_status", "1 while this node leads any partition.", gauges.partitions_led > 0),
        ("heartbeat_age_seconds", "Age of the last heartbeat that was answered.", gauges.heartbeat_age),
        ("heartbeat_interval_seconds", "The interval between two heartbeats.", gauges.heartbeat_interval),
        ("lease_remaining_seconds", "Time until this node stops trusting its membership.", gauges.lease_remaining),
        ("clock_offset_seconds", "How far this node's clock is ahead of the database's.", gauges.clock_offset),
        ("draining", "1 while this node is draining.", gauges.draining),
        ("held", "1 while no tick fires anywhere.", gauges.held),
        ("ticks_unsent", "Ticks that this node holds, due for more than a second.", gauges.ticks_unsent),
        ("oldest_unsent_seconds", "How long the oldest of them has been due; 0: none is.", gauges.oldest_unsent),
        (
            "fires_failing_seconds",
            "How long all fires of this node have failed; 0: the last one succeeded.",
            gauges.fires_failing,
        ),
        ("worker_slots", "How many runs this node's worker may execute at once.", gauges.slots),
        (
            "tenants_held_back",
            "How many tenants wait on this node although a slot is free, because they hold their share of the slots.",
            gauges.tenants_held_back,
        ),
        (
            "handlers_short",
            "How many kinds of handlers cannot be called now, because threads, loop or processes are all busy.",
            gauges.handlers_short,
        ),
    ):
        yield GaugeMetricFamily(f"detent_{name}", text, float(value))
    held = GaugeMetricFamily("detent_runs_held", "Runs that this node's worker has claimed.", labels=["state"])
    held.add_metric(["running"], gauges.running)
    held.add_metric(["waiting"], gauges.waiting)
    yield held


def _queues(signals: ClusterSignals) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    text = "Runs that wait for a worker in the queues of this name, of all tenants; of the 100 deepest."
    waiting = GaugeMetricFamily("detent_queue_runs_ready", text, labels=["queue"])
    text = "How long the oldest of them has waited; 0: none does."
    oldest = GaugeMetricFamily("detent_queue_oldest_ready_seconds", text, labels=["queue"])
    for name, depth in signals.queues.items():
        waiting.add_metric([name], depth.runs)
        oldest.add_metric([name], depth.oldest)
    yield waiting
    yield oldest


def _cluster(signals: ClusterSignals) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    for name, text, value in (
        ("ticks_due", "Ticks that are due and have not fired.", signals.ticks_due),
        ("oldest_due_seconds", "How long the oldest of them has been due; 0: none is.", signals.oldest_due),
        ("runs_ready", "Runs that are ready and wait for a worker: the depth of all queues.", signals.runs_ready),
        ("oldest_ready_seconds", "How long the oldest of them has waited; 0: none does.", signals.oldest_ready),
        (
            "schedule_gap_ticks",
            "Ticks whose time has come and that have not started: those due and those ready.",
            signals.ticks_due + signals.runs_ready,
        ),
        ("jobs_overdue", "Jobs that have not been executed for twice their interval.", signals.jobs_overdue),
        ("dead_letters", "Dead runs that were neither redriven nor discarded.", signals.dead_letters),
        ("catch_up_backlog_ticks", "Missed or backfilled ticks that are still to run.", signals.catch_up_ticks),
        ("zone_data_releases", "Different releases of the zone data that nodes have.", signals.zone_data_releases),
        ("node_versions", "Different versions of detent that nodes run.", signals.versions),
        (
            "partitions_without_leader",
            "Partitions that no live node leads: their jobs do not fire.",
            signals.partitions_without_leader,
        ),
        (
            "partition_elections",
            "The most elections that one partition has had in the last hour.",
            signals.partition_elections,
        ),
        (
            "incidents_open",
            "Open incidents: jobs that missed a deadline, for which a notification was sent.",
            signals.incidents_open,
        ),
        (
            "jobs_set_aside",
            "Jobs whose tick cannot be fired, for example because the schedule cannot be read; they are retried.",
            signals.jobs_set_aside,
        ),
        ("database_answer_seconds", "How long the database took to answer this.", signals.answer_seconds),
    ):
        yield GaugeMetricFamily(f"detent_{name}", text, float(value))
    yield from _queues(signals)
    nodes = GaugeMetricFamily("detent_nodes", "Nodes that are alive or not yet removed.", labels=["state"])
    for state in NODE_STATES:
        nodes.add_metric([state], signals.nodes.get(state, 0))
    yield nodes
