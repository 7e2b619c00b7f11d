"""The examples for autoscalers: they parse, and what they read is what detent has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml

from detent.contract.queue import Queue
from detent.telemetry.exposition import every_metric

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "autoscaling"
FILES = sorted(FOLDER.iterdir())
METRIC = re.compile(r"\bdetent_[a-z0-9_]+")
ADAPTER = FOLDER / "prometheus-adapter.yaml"
ONE_QUEUE = re.compile(r'items\.#\(name=="reports"\)\.(\w+)')


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def triggers(kind: str) -> list[dict[str, Any]]:
    scaled = [document for path in FILES for document in documents(path) if document.get("kind") == "ScaledObject"]
    return [each["metadata"] for one in scaled for each in one["spec"]["triggers"] if each["type"] == kind]


def gauges_of_queues() -> set[str]:
    return {each.name for each in every_metric() if each.name.startswith("detent_queue_")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_metrics_that_an_example_names_exist(path: Path) -> None:
    named = set(METRIC.findall(json.dumps([d for d in documents(path) if d.get("kind") != "Secret"])))
    assert named - {"detent_queue_"} <= gauges_of_queues()


def test_keda_asks_prometheus_for_one_queue() -> None:
    queries = [each["query"] for each in triggers("prometheus")]
    assert {metric for query in queries for metric in METRIC.findall(query)} == gauges_of_queues()
    assert all('{queue="reports"}' in query for query in queries)


def test_keda_reads_numbers_of_the_api_that_are_zero_when_there_is_nothing_to_do() -> None:
    paths = json.loads((ROOT / "docs" / "openapi.json").read_text("utf-8"))["paths"]
    fields = []
    for trigger in triggers("metrics-api"):
        assert trigger["url"].partition(":8787")[2] in paths
        found = ONE_QUEUE.fullmatch(trigger["valueLocation"])
        assert found is not None
        fields.append(found[1])
    hints = get_type_hints(Queue)
    assert fields
    assert all(hints[field] in (int, float) for field in fields)
    assert "waiting" not in fields  # it counts runs that are due next week


def test_the_adapter_offers_the_metrics_that_the_autoscaler_asks_for() -> None:
    values, autoscaler = documents(ADAPTER)
    (rule,) = values["rules"]["external"]
    series = re.search(r'=~"(.+)"', rule["seriesQuery"])
    assert series is not None
    for metric in autoscaler["spec"]["metrics"]:
        assert re.fullmatch(series[1], metric["external"]["metric"]["name"])
        assert metric["external"]["metric"]["name"] in gauges_of_queues()
