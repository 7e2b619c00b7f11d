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
from functools import partial
from queue import Empty, SimpleQueue
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
        servers = await self._reachable(bootstrap_of(self._address, self._default_port))
        loop = asyncio.get_running_loop()
        self._client = await _in_thread(lambda: KafkaClient(self._address, servers, loop), KafkaClient.close)
        self._checked_at = float("-inf")
        return self._client

    async def _reachable(self, given: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """The servers that are up. Raises AddressRefusedError if one is refused, and OSError if all are down."""
        found: list[tuple[str, int]] = []
        failed: OSError | None = None
        for host, port in given:
            try:
                async with asyncio.timeout(BROKER_SECONDS if len(given) > 1 else None):
                    found.append(await self._checked(host, port))
            except AddressRefusedError:
                raise
            except OSError as error:  # TimeoutError is one
                failed = failed or (error if error.args else _no_answer())
        if failed is not None and not found:
            raise failed
        return found

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


def _no_answer() -> TimeoutError:
    return TimeoutError(None, f"no answer within {BROKER_SECONDS:g} s")


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
    """Messages that are sent together. The thread of the client writes the answers, the loop reads them in the end."""

    def __init__(self, messages: Sequence[TopicMessage], peer: str, done: asyncio.Future[list[Answer]]) -> None:
        self.messages = messages
        self.done = done
        self.missing = len(messages)
        self._peer = peer
        self._answers: list[Answer | None] = [None] * len(messages)

    def report(self, number: int, error: Any, record: Any) -> None:
        """The client calls it once for each message that it has taken."""
        if error is None:
            self.answer(number, Receipt({"partition": record.partition(), "offset": record.offset()}))
        else:
            self.answer(number, failure_of(self._peer, error))

    def answer(self, number: int, answer: Answer) -> None:
        self._answers[number] = answer
        self.missing -= 1

    def answers(self, otherwise: Failed) -> list[Answer]:
        """`otherwise`: for messages without a report."""
        return [otherwise if answer is None else answer for answer in self._answers]


class KafkaClient:
    """A producer and its thread, which gives it whole batches and waits for their delivery reports. A batch crosses to
    the thread and back in one step each: every report needs the interpreter lock for itself, and a loop that produces
    and handles messages meanwhile would wait for it as often."""

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
        self._batches: SimpleQueue[_Batch] = SimpleQueue()
        self._ending = threading.Event()
        self._producer = confluent_kafka.Producer(client_settings(address, servers, self._failed))
        self._thread = threading.Thread(target=self._work, name="detent-kafka", daemon=True)
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
        batch = _Batch(messages, self._peer, self._loop.create_future())
        self._batches.put(batch)
        return await batch.done

    def close(self) -> None:
        """Blocks until what is under way has been sent or given up."""
        self._ending.set()
        self._thread.join(CLOSE_SECONDS * 2)

    # --- in the thread of the client ---

    def _work(self) -> None:
        while not self._ending.is_set():
            try:
                batch = self._batches.get(timeout=POLL_SECONDS)
            except Empty:
                self._producer.poll(0)  # which also reports errors of the client
            else:
                self._send(batch)
        self._end()
        while not self._batches.empty():
            self._hand_over(self._batches.get())

    def _send(self, batch: _Batch) -> None:
        for number, message in enumerate(batch.messages):
            self._produce(batch, number, message)
        while batch.missing and self.failure is None and not self._ending.is_set():
            self._producer.poll(POLL_SECONDS)
        if self._ending.is_set():
            self._end()
        self._hand_over(batch)

    def _produce(self, batch: _Batch, number: int, message: TopicMessage) -> None:
        try:
            self._producer.produce(
                message.topic, message.body, message.key, on_delivery=partial(batch.report, number),
                headers={"Content-Type": message.content_type, **message.headers},
            )  # fmt: skip
        except BufferError:
            batch.answer(number, Failed(f"Too many messages wait for {self._peer} to acknowledge them."))
        except self._kafka.KafkaException as error:
            batch.answer(number, failure_of(self._peer, error.args[0]))

    def _end(self) -> None:
        self._producer.purge()
        self._producer.flush(CLOSE_SECONDS)

    def _hand_over(self, batch: _Batch) -> None:
        closed = Failed(f"The connection to {self._peer} was closed before the message was acknowledged.")
        with suppress(RuntimeError):  # the loop is closed: no run waits for it
            self._loop.call_soon_threadsafe(_answer, batch.done, batch.answers(self.failure or closed))

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


def _answer(done: asyncio.Future[list[Answer]], answers: list[Answer]) -> None:
    if not done.done():  # else no run waits for it
        done.set_result(answers)
