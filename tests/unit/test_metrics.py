"""What a process counts, and its text for Prometheus."""

from __future__ import annotations

import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from detent.domain.states import RunStatus
from detent.telemetry.exposition import Exposition
from detent.telemetry.metrics import ClusterSignals, Distribution, Metrics, NodeGauges

GAUGES = NodeGauges(
    partitions_led=86,
    partitions_flapping=2,
    heartbeat_age=0.5,
    heartbeat_interval=1.5,
    lease_remaining=4.5,
    clock_offset=-0.25,
    draining=False,
    held=True,
    running=3,
    waiting=2,
    slots=10,
)
SIGNALS = ClusterSignals(
    ticks_due=4,
    oldest_due=1.5,
    runs_ready=3,
    oldest_ready=0.5,
    jobs_overdue=1,
    dead_letters=2,
    catch_up_ticks=70,
    nodes={"alive": 2, "silent": 1},
    zone_data_releases=1,
    versions=2,
    partitions_without_leader=86,
    partition_elections=3,
    incidents_open=4,
    answer_seconds=0.01,
)


async def told() -> ClusterSignals:
    return SIGNALS


async def exposed(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels, in the order of their names."""
    text, _ = await Exposition(metrics)("text/plain")
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_spans_are_counted_up_to_each_bound() -> None:
    spans = Distribution((0.1, 1, 10))
    spans.add([0.05, 0.1, 0.5])
    spans.add([20, 1])
    assert (spans.counts, spans.count) == ([2, 4, 4], 5)
    assert spans.total == pytest.approx(21.65)


async def test_the_text_has_what_was_counted() -> None:
    metrics = Metrics()
    metrics.elections, metrics.evictions, metrics.rescued, metrics.starts = 256, 1, 7, 9
    metrics.refused_fires, metrics.refused_settles = 2, 3
    metrics.ends["shell", RunStatus.DEAD] = 4
    metrics.attempts["http", "timeout"] = 6
    metrics.lateness.add([0.004])
    metrics.duration["python"].add([0.3, 2])
    found = await exposed(metrics)
    assert found["detent_elections_total",] == 256
    assert found["detent_evictions_total",] == 1
    assert found["detent_rescued_runs_total",] == 7
    assert found["detent_starts_total",] == 9
    assert (found["detent_refused_writes_total", "fire"], found["detent_refused_writes_total", "settle"]) == (2, 3)
    assert (found["detent_runs_total", "dead", "shell"], found["detent_runs_total", "succeeded", "shell"]) == (4, 0)
    assert (found["detent_attempts_total", "timeout", "http"], found["detent_attempts_total", "failed", "http"]) == (
        6,
        0,
    )
    assert found["detent_start_lateness_seconds_bucket", "0.0025"] == 0
    assert found["detent_start_lateness_seconds_bucket", "0.005"] == 1
    assert found["detent_start_lateness_seconds_bucket", "+Inf"] == found["detent_start_lateness_seconds_count",] == 1
    assert found["detent_run_duration_seconds_bucket", "0.5", "python"] == 1
    assert found["detent_run_duration_seconds_count", "python"] == 2
    assert found["detent_run_duration_seconds_sum", "python"] == 2.3
    assert found["detent_run_duration_seconds_count", "http"] == 0


async def test_only_a_member_reports_its_membership() -> None:
    metrics = Metrics()
    found = await exposed(metrics)
    assert ("detent_partitions_led",) not in found
    assert found["detent_member",] == 0
    metrics.gauges = lambda: GAUGES
    found = await exposed(metrics)
    assert (found["detent_member",], found["detent_partitions_led",], found["detent_leader_status",]) == (1, 86, 1)
    assert found["detent_partitions_flapping",] == 2
    assert (found["detent_heartbeat_age_seconds",], found["detent_lease_remaining_seconds",]) == (0.5, 4.5)
    assert found["detent_heartbeat_interval_seconds",] == 1.5
    assert (found["detent_clock_offset_seconds",], found["detent_held",], found["detent_draining",]) == (-0.25, 1, 0)
    assert (found["detent_runs_held", "running"], found["detent_runs_held", "waiting"]) == (3, 2)


async def test_the_cluster_is_reported_while_the_database_answers() -> None:
    metrics = Metrics()
    found = await exposed(metrics)
    assert found["detent_database_up",] == 0
    assert ("detent_dead_letters",) not in found
    metrics.cluster = told
    found = await exposed(metrics)
    assert found["detent_database_up",] == 1
    assert (found["detent_ticks_due",], found["detent_runs_ready",], found["detent_schedule_gap_ticks",]) == (4, 3, 7)
    assert [found["detent_nodes", state] for state in ("alive", "draining", "silent", "evicted")] == [2, 0, 1, 0]


async def test_the_build_is_reported_and_no_label_can_grow() -> None:
    metrics = Metrics()
    metrics.gauges = lambda: GAUGES
    metrics.cluster = told
    before = await exposed(metrics)
    assert len([key for key in before if key[0] == "detent_build_info"]) == 1
    metrics.ends["http", RunStatus.SUCCEEDED] += 1_000_000
    metrics.attempts["http", "succeeded"] += 1_000_000
    assert (await exposed(metrics)).keys() == before.keys()
    assert len(before) < 300


async def test_a_client_that_prefers_openmetrics_gets_it() -> None:
    text, kind = await Exposition(Metrics())("application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")


def test_counting_does_not_load_what_makes_the_text() -> None:
    code = "import sys, detent.node.session; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
