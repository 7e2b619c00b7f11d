"""A node with topic jobs: its worker fills in secrets, sends, and the run ends with the receipt of the broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from detent.runtime.envelope import generate_master_key
from tests.support.processes import Node, Nodes
from tests.support.waiting import until
from tests.topics.brokers import PASSWORD, USER, Broker, NatsBroker, RedisBroker, running_broker

KINDS: dict[str, type[Broker]] = {"redis": RedisBroker, "nats": NatsBroker}


@pytest.fixture(params=KINDS)
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with running_broker(KINDS[request.param], secured=True) as found:
        yield found


@pytest.fixture
async def node(cluster: Nodes) -> AsyncIterator[Node]:
    yield await cluster.start("serve", DETENT_SECRET_KEY=generate_master_key())


async def ended(node: Node, run: str) -> dict[str, Any]:
    def over() -> Any:
        found = node.client.get_run(run)
        return found if found["finished_at"] else None

    found: dict[str, Any] = await until(over, 20, "the run to end")
    return found


async def test_runs_send_messages_with_credentials_of_a_secret(node: Node, broker: Broker) -> None:
    await broker.create("orders")
    node.client.set_secret("broker-password", PASSWORD)
    credentials = {"username": USER, "password": {"secret": "broker-password"}}
    target = {"type": "topic", "url": broker.url, "topic": "orders", "credentials": credentials}
    job = node.client.create_job({"name": "send", "schedule": {"every": "1h"}, "target": target, "payload": {"n": 1}})
    assert job["warnings"] == []
    run = await ended(node, node.client.trigger_job("send")["id"])
    assert (run["status"], run["attempt"]) == ("succeeded", 1)
    assert run["result"]["stream"] == "orders"
    (message,) = await broker.read("orders")
    assert message.payload == {"n": 1}
    assert message.headers["Detent-Run-Id"] == run["id"]
    assert message.headers["Idempotency-Key"] == run["idempotency_key"]
    node.client.set_secret("broker-password", "another-password")
    dead = await until(lambda: _dead(node), 30, "a run with the new value of the secret")
    assert "another-password" not in str(dead)
    assert dead["attempt"] == 1


async def _dead(node: Node) -> dict[str, Any] | None:
    """A worker may use the former value for a moment."""
    run = await ended(node, node.client.trigger_job("send")["id"])
    return run if run["status"] == "dead" else None
