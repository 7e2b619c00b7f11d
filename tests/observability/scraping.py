"""What a real node answers at /metrics."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from detent.api.app import create_app
from detent.node.cluster_signals import CachedSignals
from detent.node.server import ApiServer
from detent.node.session import Session
from detent.settings.settings import Settings
from detent.store import Store
from detent.telemetry.health import Check
from detent.telemetry.metrics import Metrics


async def _ready() -> dict[str, Check]:
    return {}


@asynccontextmanager
async def serving(store: Store, session: Session | None, metrics: Metrics) -> AsyncIterator[str]:
    """The address of an API that tells the metrics of a session."""
    if session is not None:
        metrics.gauges = session.gauges
    metrics.cluster = CachedSignals(lambda: store)
    app = create_app(store, settings=Settings(), readiness=_ready, metrics=metrics)
    async with ApiServer(app, "127.0.0.1", 0) as server:
        yield server.url


async def scrape(url: str) -> list[Metric]:
    def ask() -> str:
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
            return text

    return list(text_string_to_metric_families(await asyncio.to_thread(ask)))


def samples(families: list[Metric]) -> dict[str, float]:
    """By name, added up over labels."""
    found: dict[str, float] = {}
    for family in families:
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found
