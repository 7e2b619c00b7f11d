"""Nodes run on uvloop, whose transports are not those of asyncio."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import uvloop
from yarl import URL

from detent.targets.topics import amqp, mqtt
from detent.targets.topics.publisher import BrokerAddress, OpenPublisher, Receipt, TopicMessage
from tests.support.relay import dial, relay_to, tls_of
from tests.topics.conftest import Start


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(("broker", "opener"), [("rabbitmq", amqp.open_publisher), ("mosquitto", mqtt.open_publisher)])
def test_messages_are_acknowledged(
    start_broker: Start, broker: str, opener: OpenPublisher, tls: bool, tmp_path: Path
) -> None:
    server = start_broker(broker)
    server_tls, client_tls = tls_of(tmp_path)

    async def publish() -> None:
        async with relay_to(server.port, server_tls if tls else None) as relay:
            address = BrokerAddress(URL(server.url).with_port(relay.port), tls=client_tls if tls else None)
            publisher = opener(address, dial)
            try:
                messages = [TopicMessage("orders", b"1", {}, "key", str(number)) for number in range(10)]
                answers = await publisher.publish(messages)
            finally:
                await publisher.close()
        assert all(isinstance(answer, Receipt) for answer in answers)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(publish())
