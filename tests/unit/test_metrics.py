"""What a process counts, and its text for Prometheus."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

from prometheus_client.parser import text_string_to_metric_families

from detent.metrics import Distribution, Exposition, Metrics, Standing
from detent.states import RunStatus

STANDING = Standing(
    partitions_led=86, partitions_flapping=2, heartbeat_age=0.5, lease_remaining=4.5, clock_offset=-0.25,
    draining=False, held=True,
)  # fmt: skip


def seconds(*values: float) -> list[timedelta]:
    return [timedelta(seconds=value) for value in values]


def exposed(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels."""
    text, _ = Exposition(metrics)("text/plain")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_spans_are_counted_up_to_each_bound() -> None:
    spans = Distribution((0.1, 1, 10))
    spans.add(seconds(0.05, 0.1, 0.5))
    spans.add(seconds(20, 1))
    assert (spans.counts, spans.count) == ([2, 4, 4], 5)
    assert spans.total == timedelta(seconds=21.65)


def test_the_text_has_what_was_counted() -> None:
    metrics = Metrics()
    metrics.elections, metrics.evictions, metrics.rescued, metrics.starts = 256, 1, 7, 9
    metrics.refused_fires, metrics.refused_settles = 2, 3
    metrics.ends[RunStatus.DEAD] = 4
    metrics.lateness.add(seconds(0.004))
    found = exposed(metrics)
    assert found["detent_elections_total",] == 256
    assert found["detent_evictions_total",] == 1
    assert found["detent_rescued_runs_total",] == 7
    assert found["detent_starts_total",] == 9
    assert (found["detent_refused_writes_total", "fire"], found["detent_refused_writes_total", "settle"]) == (2, 3)
    assert (found["detent_runs_total", "dead"], found["detent_runs_total", "succeeded"]) == (4, 0)
    assert found["detent_start_lateness_seconds_bucket", "0.0025"] == 0
    assert found["detent_start_lateness_seconds_bucket", "0.005"] == 1
    assert found["detent_start_lateness_seconds_bucket", "+Inf"] == found["detent_start_lateness_seconds_count",] == 1


def test_a_member_tells_of_its_place_and_others_do_not() -> None:
    metrics = Metrics()
    assert ("detent_partitions_led",) not in exposed(metrics)
    metrics.standing = lambda: STANDING
    found = exposed(metrics)
    assert (found["detent_partitions_led",], found["detent_leader_status",]) == (86, 1)
    assert found["detent_partitions_flapping",] == 2
    assert (found["detent_heartbeat_age_seconds",], found["detent_lease_remaining_seconds",]) == (0.5, 4.5)
    assert (found["detent_clock_offset_seconds",], found["detent_held",], found["detent_draining",]) == (-0.25, 1, 0)


def test_the_build_is_told_and_no_label_can_grow() -> None:
    metrics = Metrics()
    metrics.standing = lambda: STANDING
    before = exposed(metrics)
    assert len([key for key in before if key[0] == "detent_build_info"]) == 1
    metrics.ends[RunStatus.SUCCEEDED] += 1_000_000
    assert exposed(metrics).keys() == before.keys()
    assert len(before) < 150


def test_whoever_prefers_openmetrics_gets_it() -> None:
    text, kind = Exposition(Metrics())("application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")


def test_counting_does_not_load_what_makes_the_text() -> None:
    code = "import sys, detent.session; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
