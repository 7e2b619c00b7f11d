"""Messages to topics of Kafka, by librdkafka with its idempotent producer.

The client has threads and sockets of its own. The addresses of brokers, those of the URL and those that the cluster
advertises, are checked by the rules of the tenant before the first message and again every `CHECK_SECONDS`; where the
connection has no TLS, the first servers are given to the client as the addresses that were checked. Between two checks
it may connect to a broker that the cluster has newly advertised.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from detent.domain.run import Failed
from detent.domain.topics import has_tls
from detent.runtime.clock import monotonic
from detent.targets.guard import AddressRefusedError
from detent.targets.topics.kafka_settings import (
    REFUSED_CLIENT,
    bootstrap_of,
    client_settings,
    failure_of,
    words_of,
)
from detent.targets.topics.publisher import Answer, BrokerAddress, BrokerRefusedError, Dial, Receipt, TopicMessage

CHECK_SECONDS = 60.0
METADATA_SECONDS = 10.0
STEP_SECONDS = 1.0
BROKER_SECONDS = 2.0
CLOSE_SECONDS = 3.0
POLL_SECONDS = 0.5

Made = TypeVar("Made")


def open_publisher(address: BrokerAddress, dial: Dial) -> KafkaPublisher:
    return KafkaPublisher(address, dial)


class KafkaPublisher:
    def __init__(self, address: BrokerAddress, dial: Dial) -> None:
        self._address = address
        self._dial = dial
        self._default_port = 9093 if has_tls(str(address.url)) else 9092
        self._client: KafkaClient | None = None
        self._checked_at = 0.0

    async def publish(self, messages: Sequence[TopicMessage]) -> Sequence[Answer]:
        client = await self._open()
        if monotonic() - self._checked_at >= CHECK_SECONDS:
            await self._check_brokers(client)
        return await client.send(messages)

    async def _open(self) -> KafkaClient:
        if self._client is not None and self._client.failure is None:
            return self._client
        await self.close()
        servers = [await self._checked(host, port) for host, port in bootstrap_of(self._address, self._default_port)]
        loop = asyncio.get_running_loop()
        self._client = await _in_thread(lambda: KafkaClient(self._address, servers, loop), KafkaClient.close)
        self._checked_at = float("-inf")
        return self._client

    async def _checked(self, host: str, port: int) -> tuple[str, int]:
        """The server, connected to once under the rules of the tenant. Its name is kept for TLS, whose certificate then
        proves that the client reaches what the name means; otherwise the name could mean another address later."""
        with await self._dial(host, port) as connection:
            address = connection.getpeername()[0]
        return (host, port) if self._address.tls is not None else (address, port)

    async def _check_brokers(self, client: KafkaClient) -> None:
        """The brokers that the cluster advertises. A broker that is down is no reason to stop, a refused one is. One
        after the other: a dial remembers the refusal of its last call only."""
        for host, port in await client.brokers():
            try:
                async with asyncio.timeout(BROKER_SECONDS):
                    (await self._dial(host, port)).close()
            except AddressRefusedError:
                raise
            except OSError:
                continue
        self._checked_at = monotonic()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await _in_thread(client.close)


async def _in_thread(work: Callable[[], Made], discard: Callable[[Made], None] | None = None) -> Made:
    """In a thread of its own: the loop has few, which others need, and a server that does not answer would keep them.
    `discard` gets what was made after the caller was cancelled."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Made] = loop.create_future()

    def hand_over(result: Made | None, error: BaseException | None) -> None:
        if not future.done() and error is not None:
            future.set_exception(error)
        elif not future.done():
            future.set_result(cast("Made", result))
        elif discard is not None and error is None:
            threading.Thread(target=discard, args=(result,), name="detent-kafka", daemon=True).start()

    def run() -> None:
        result: Made | None = None
        failed: BaseException | None = None
        try:
            result = work()
        except BaseException as error:
            failed = error
        with suppress(RuntimeError):  # the loop is closed: nothing waits for it
            loop.call_soon_threadsafe(hand_over, result, failed)

    threading.Thread(target=run, name="detent-kafka", daemon=True).start()
    return await future


class _Batch:
    """Messages that wait for their delivery reports, which arrive in the client's thread."""

    def __init__(self, size: int, loop: asyncio.AbstractEventLoop) -> None:
        self.answers: list[Answer | None] = [None] * size
        self.missing = size
        self.done: asyncio.Future[None] = loop.create_future()


class KafkaClient:
    """A producer and the thread that reads its reports. What a read brings crosses to the loop in one step."""

    def __init__(
        self, address: BrokerAddress, servers: Sequence[tuple[str, int]], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Loads the library: blocks for a while."""
        import confluent_kafka

        self.failure: Failed | None = None
        self._reached = False
        self._kafka = confluent_kafka
        self._peer = address.url.authority
        self._loop = loop
        self._batches: set[_Batch] = set()
        self._reports: list[tuple[_Batch, int, Answer]] = []
        self._ending = threading.Event()
        self._producer = confluent_kafka.Producer(client_settings(address, servers, self._failed))
        self._thread = threading.Thread(target=self._read, name="detent-kafka", daemon=True)
        self._thread.start()

    async def brokers(self) -> list[tuple[str, int]]:
        """As the cluster advertises them. Raises OSError if none answers. It is asked in short steps, because the
        client does not end a question when the cluster refuses its credentials."""
        until = monotonic() + METADATA_SECONDS
        while True:
            try:
                metadata = await _in_thread(lambda: self._producer.list_topics(timeout=STEP_SECONDS))
            except self._kafka.KafkaException as error:
                if self.failure is not None and not self.failure.retryable:
                    raise BrokerRefusedError(self.failure.error) from None
                if self.failure is not None:
                    raise ConnectionError(None, self.failure.error.rstrip(".")) from None
                if monotonic() >= until:
                    raise ConnectionError(None, words_of(error.args[0])) from None
            else:
                self._reached = True
                return [(broker.host, broker.port) for broker in metadata.brokers.values()]

    async def send(self, messages: Sequence[TopicMessage]) -> list[Answer]:
        batch = _Batch(len(messages), self._loop)
        self._batches.add(batch)
        try:
            for number, message in enumerate(messages):
                failed = self._produce(batch, number, message)
                if failed is not None:
                    self._answer(batch, number, failed)
            await batch.done
        finally:
            self._batches.discard(batch)
        return [answer for answer in batch.answers if answer is not None]

    def _produce(self, batch: _Batch, number: int, message: TopicMessage) -> Failed | None:
        def report(error: Any, record: Any) -> None:
            answer: Answer
            if error is None:
                answer = Receipt({"partition": record.partition(), "offset": record.offset()})
            else:
                answer = failure_of(self._peer, error)
            self._reports.append((batch, number, answer))

        headers = {"Content-Type": message.content_type, **message.headers}
        try:
            self._producer.produce(
                message.topic, message.body, message.key.encode(), on_delivery=report,
                headers=[(name, value.encode()) for name, value in headers.items()],
            )  # fmt: skip
        except BufferError:
            return Failed(f"Too many messages wait for {self._peer} to acknowledge them.")
        except self._kafka.KafkaException as error:
            return failure_of(self._peer, error.args[0])
        return None

    # --- in the thread of the client ---

    def _read(self) -> None:
        while not self._ending.is_set():
            self._producer.poll(POLL_SECONDS)
            self._hand_over()
        self._producer.purge()
        self._producer.flush(CLOSE_SECONDS)
        self._hand_over()

    def _hand_over(self) -> None:
        if self._reports:
            reports, self._reports = self._reports, []
            self._call_in_loop(self._take, reports)

    def _failed(self, error: Any) -> None:
        """An error of the client, not of a message. It would repeat the same credentials without end, and after a fatal
        one it sends nothing more: the next batch gets a new client."""
        if error.name() in REFUSED_CLIENT:
            # Later, a broker that restarts may have broken off: the next client learns whether it is refused.
            self.failure = Failed(f"{self._peer} refused the connection: {words_of(error)}.", retryable=self._reached)
        elif error.name() == "_SSL" and not self._reached:  # later, one of the brokers may restart
            self.failure = Failed(f"TLS with {self._peer} failed: {words_of(error)}.")
        elif error.fatal():
            self.failure = Failed(f"The connection to {self._peer} was given up: {words_of(error)}.")
        if self.failure is not None:
            self._call_in_loop(self._fail, self.failure)

    def _call_in_loop(self, step: Any, *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(step, *arguments)
        except RuntimeError:  # the loop is closed: no run waits for it
            return

    # --- in the loop ---

    def _take(self, reports: Sequence[tuple[_Batch, int, Answer]]) -> None:
        for batch, number, answer in reports:
            self._answer(batch, number, answer)

    def _fail(self, failed: Failed) -> None:
        for batch in list(self._batches):
            for number, answer in enumerate(batch.answers):
                if answer is None:
                    self._answer(batch, number, failed)

    def _answer(self, batch: _Batch, number: int, answer: Answer) -> None:
        if batch.answers[number] is None:
            batch.answers[number] = answer
            batch.missing -= 1
            if not batch.missing and not batch.done.done():
                batch.done.set_result(None)

    def close(self) -> None:
        """Blocks until what is under way has been sent or given up."""
        self._ending.set()
        self._thread.join(CLOSE_SECONDS * 2)
