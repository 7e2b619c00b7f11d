"""RabbitMQ and mosquitto in the contract suite. RabbitMQ takes ten seconds to start: one server has the listeners and
users of all variants, and a broker of the suite is a view of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from tests.support.brokers import MAX_MESSAGE_BYTES, PASSWORD, USER, Mosquitto, RabbitMQ
from tests.support.servers import Server, require_servers
from tests.topics.brokers import BROKERS, Broker, Received

SILENT_SECONDS = 0.5
"""After so long without another message, a session of MQTT has none left."""


class _View(Broker):
    server: Any
    started: ClassVar[Server | None] = None

    def __init__(self, folder: Path, *, secured: bool = False, encrypted: bool = False) -> None:
        super().__init__(folder, secured=secured)
        require_servers()
        self.server = self.shared(folder)
        self.folder = self.server.folder
        self.port = self.server.tls_port if encrypted else self.server.port
        self.authority = self.server.authority if encrypted else None

    @classmethod
    def shared(cls, folder: Path) -> Server:
        """A test process that ran out of tests for a while has stopped its servers: the next test starts one anew."""
        if cls.started is None or not cls.started.folder.exists():
            cls.started = cls.server_kind()(folder)
        return cls.started

    @classmethod
    def server_kind(cls) -> type[Server]:
        raise NotImplementedError

    def command(self) -> list[str]:
        command: list[str] = self.server.command()
        return command

    def start(self) -> None:
        self.server.ensure()

    def ensure(self) -> None:
        self.server.ensure()

    def kill(self) -> None:
        self.server.kill()


class RabbitBroker(_View):
    """A durable queue for each topic, by the default exchange."""

    name = "rabbitmq"
    protocol = "amqp"
    server: RabbitMQ
    cloudevent_prefix = "cloudEvents_"
    too_large = MAX_MESSAGE_BYTES + 1
    kills = 1
    illegal_topics = ("line\nbreak", "/", "q" * 256, f"{'e' * 256}/key", f"events/{'k' * 256}")

    @classmethod
    def server_kind(cls) -> type[Server]:
        return RabbitMQ

    async def create(self, topic: str) -> None:
        import aiormq

        async with aiormq.connect(self.server.url) as connection:
            await (await connection.channel()).queue_declare(topic, durable=True)

    async def read(self, topic: str) -> list[Received]:
        import aiormq

        found = []
        async with aiormq.connect(self.server.url) as connection:
            channel = await connection.channel()
            while (each := await channel.basic_get(topic)).header.properties.message_id is not None:
                headers = {str(name): str(text) for name, text in (each.header.properties.headers or {}).items()}
                found.append(Received(each.body, headers))
        return found  # what was not acknowledged stays in the queue


class MosquittoBroker(_View):
    """A session that has subscribed to the topic, and for which the broker keeps messages while it is away."""

    name = "mosquitto"
    protocol = "mqtt"
    server: Mosquitto
    cloudevent_prefix = ""
    too_large = MAX_MESSAGE_BYTES + 1
    durable = False  # it writes to disk later
    slow = 4  # to read back: its window for a subscriber has 20 messages
    illegal_topics = ("orders/#", "orders/+/new", "$SYS/broker", "line\nbreak")

    def __init__(self, folder: Path, *, secured: bool = False, encrypted: bool = False) -> None:
        super().__init__(folder, secured=secured, encrypted=encrypted)
        if secured:
            self.port = self.server.guarded_port

    @classmethod
    def server_kind(cls) -> type[Server]:
        return Mosquitto

    def _client(self, topic: str) -> Any:
        """On the listener that the target uses: the settings of listeners, and their sessions, are apart."""
        import aiomqtt
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        kept = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # the library has no types here
        kept.SessionExpiryInterval = 3600
        return aiomqtt.Client(
            "127.0.0.1",
            self.port,
            identifier=f"reader-{topic}",
            protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=False,
            properties=kept,
            tls_context=self.context(),
            username=USER if self.secured else None,
            password=PASSWORD if self.secured else None,
        )

    async def create(self, topic: str) -> None:
        async with self._client(topic) as client:
            await client.subscribe(topic, qos=1)

    async def read(self, topic: str) -> list[Received]:
        found: list[Received] = []
        async with self._client(topic) as client:
            with suppress(TimeoutError):
                while True:
                    async with asyncio.timeout(SILENT_SECONDS):
                        each = await anext(client.messages)
                    found.append(Received(bytes(each.payload), dict(each.properties.UserProperty)))
        return found


BROKERS.update({"rabbitmq": RabbitBroker, "mosquitto": MosquittoBroker})
