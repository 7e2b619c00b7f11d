"""A dead run is forwarded though the node that saw it die is killed before."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import Nodes
from tests.support.sink import Sink, http_target
from tests.support.waiting import until
from tests.topics.brokers import NatsBroker

TOPIC = "dead-runs"
RUNS = 20


@pytest.fixture
def nats() -> Iterator[NatsBroker]:
    with tempfile.TemporaryDirectory(prefix="detent-test-", ignore_cleanup_errors=True) as folder:
        broker = NatsBroker(Path(folder))
        broker.start()
        yield broker
        broker.kill()


async def test_runs_that_died_on_a_killed_node_are_forwarded_by_another(
    cluster: Nodes, look: Any, sink: Sink, nats: NatsBroker
) -> None:
    """The broker is away while they die, so that none is forwarded before the kill."""
    await nats.create(TOPIC)
    nats.kill()
    victim = await cluster.start("serve")
    topic = {"url": nats.url, "topic": TOPIC}
    # Without `statuses`, the circuit of a host that answers 503 opens, and its runs wait instead of dying.
    target = http_target(sink, "fail/99") | {"statuses": {"no_retry": [503]}}
    job = {"name": "task", "target": target, "max_retries": 0, "dead_letter_topic": topic}
    victim.client.create_job(job | {"payload": {"order": 17}})
    for number in range(RUNS):
        victim.client.enqueue("task", {"order": number})
    noted = "SELECT count(*) FROM dead_letters WHERE error IS NOT NULL"
    await until(lambda: _at_least(look, noted, RUNS), 60, "every dead run to be refused once")
    await victim.kill()
    nats.start()
    await cluster.start("serve")
    await until(lambda: _at_least(look, "SELECT -count(*) FROM dead_letters", 0), 120, "all to be forwarded")
    messages = await nats.read(TOPIC)
    assert sorted(message.payload["payload"]["order"] for message in messages) == list(range(RUNS))
    assert len({message.payload["run_id"] for message in messages}) == RUNS


async def _at_least(look: Any, query: str, count: int) -> bool:
    return bool(await look.fetchval(query) >= count)
