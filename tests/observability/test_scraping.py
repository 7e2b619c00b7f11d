"""What a real node tells at /metrics after real runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client import Metric

from detent.domain.job import HttpTarget, JobSpec
from detent.domain.run import Call, Failed, Outcome, Succeeded
from detent.jobs import JobOperations
from detent.store import Store
from detent.telemetry.exposition import every_metric
from detent.telemetry.metrics import KINDS, Metrics
from tests.observability.scraping import samples, scrape, serving
from tests.support.sessions import StartSession
from tests.support.waiting import until

NAME = "a-name-that-must-not-be-told"


async def by_name(call: Call) -> Outcome:
    return Failed("broken", retryable=False) if "broken" in call.job else Succeeded()


async def trigger(store: Store, name: str, **fields: Any) -> str:
    spec = JobSpec(schedule="every 1h", target=HttpTarget(url="http://127.0.0.1:9/"), name=name, **fields)
    (job,) = await JobOperations(store).registration.add([spec])
    await JobOperations(store).lifecycle.trigger(job.id)
    return str(job.id)


@pytest.fixture
async def told(store: Store, start: StartSession) -> AsyncIterator[tuple[list[str], list[Metric]]]:
    """The ids of two jobs, of which one has failed, and what was scraped then."""
    metrics = Metrics()
    metrics.certificate_expires_at = 1.0  # a server with a certificate reports one metric more
    metrics.transport_up = True  # and so does a node on a transport
    session = await start(by_name, metrics=metrics)
    ids = [await trigger(store, f"{NAME}-{end}") for end in ("fine", "broken")]
    await until(lambda: sum(metrics.ends.values()) == 2, 10, "two runs to end")
    async with serving(store, session, metrics) as url:
        yield ids, await scrape(url)


async def test_a_node_exposes_its_own_and_the_cluster_metrics(told: tuple[list[str], list[Metric]]) -> None:
    _, families = told
    found = samples(families)
    assert (found["detent_starts_total"], found["detent_runs_total"], found["detent_attempts_total"]) == (2, 2, 2)
    assert found["detent_start_lateness_seconds_count"] == found["detent_run_duration_seconds_count"] == 2
    assert (found["detent_dead_letters"], found["detent_schedule_gap_ticks"]) == (1, 0)
    assert (found["detent_partitions_led"], found["detent_partitions_without_leader"]) == (256, 0)
    assert (found["detent_database_up"], found["detent_member"], found["detent_nodes"]) == (1, 1, 1)
    (attempts,) = [family for family in families if family.name == "detent_attempts"]
    counted = {(s.labels["target"], s.labels["outcome"]): s.value for s in attempts.samples if s.value}
    assert counted == {("http", "succeeded"): 1, ("http", "failed"): 1}


async def test_what_is_reported_is_what_the_manual_lists(told: tuple[list[str], list[Metric]]) -> None:
    _, families = told
    assert [(family.name, family.type) for family in families] == [
        (family.name, "gauge" if family.type == "info" else family.type) for family in listed()
    ]


def listed() -> list[Metric]:
    """The metrics in the form that a scraper reads: the old text format has no type `info`."""
    families = list(every_metric())
    for family in families:
        if family.type == "info":
            family.name = f"{family.name}_info"
    return families


async def test_no_label_names_a_job(told: tuple[list[str], list[Metric]]) -> None:
    ids, families = told
    labels = {value for family in families for sample in family.samples for value in sample.labels.values()}
    assert not {value for value in labels if NAME in value or any(job in value for job in ids)}
    kinds = {s.labels["target"] for family in families for s in family.samples if "target" in s.labels}
    assert kinds == set(KINDS)
