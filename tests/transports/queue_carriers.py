"""RabbitMQ, SQS and Kafka in the contract suite of transports."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.transports.carriers import Carrier


class RabbitCarrier(Carrier):
    broker_name = "rabbitmq"
    module = "rabbitmq"
    deduplicates = False

    async def empty(self, cluster: str) -> None:
        import aiormq

        broker: Any = self.broker
        async with aiormq.connect(broker.server.url) as connection:
            channel = await connection.channel()
            for queue in range(10):
                for band in ("high", "normal", "low"):
                    await channel.queue_delete(f"detent.{cluster}.{queue}.{band}")


class SqsCarrier(Carrier):
    broker_name = "sqs"
    module = "sqs"
    by_priority = False
    deduplicates = False
    can_secure = can_encrypt = False  # moto takes every key, and its server has no TLS

    def address(self, user: str = "AKIATEST", password: str = "secret", port: int | None = None) -> str:
        return f"sqs://{user}:{password}@127.0.0.1:{port or self.broker.port}/?region=eu-central-1"

    async def empty(self, cluster: str) -> None:
        broker: Any = self.broker
        await asyncio.to_thread(_delete_queues, broker.server.client, f"detent-{cluster}-")


def _delete_queues(client: Any, prefix: str) -> None:
    for url in client.list_queues(QueueNamePrefix=prefix).get("QueueUrls", []):
        client.delete_queue(QueueUrl=url)
