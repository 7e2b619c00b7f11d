"""The producer of offers, and the topics and their depths. What blocks runs in threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from detent.runtime.clock import monotonic
from detent.transports.answering import ANSWER_SECONDS
from detent.transports.kafka_settings import (
    AWAY,
    MISSING_TOPIC,
    TOPIC_SETTINGS,
    KafkaAddress,
    common_settings,
    consumer_settings,
    kafka_words,
    producer_settings,
)
from detent.transports.transport import TransportAwayError

READ_SECONDS = 0.2
STEP_SECONDS = 0.5
CLOSE_SECONDS = 3.0
ATTEMPTS = 3
# The client waits by itself for what takes longer; this thread only must not wait for ever.
ASK_SECONDS = ANSWER_SECONDS + 1.0

Made = TypeVar("Made")


class OutgoingRecord(NamedTuple):
    topic: str
    key: bytes
    body: bytes
    partition: int = -1
    """-1: the key decides."""


class _Delivery:
    """The records of one `produce`. Reports arrive in the thread of the producer."""

    def __init__(self, count: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self.loop.create_future()
        self.missing = count
        self.untaken: list[OutgoingRecord] = []
        self.words = ""

    def report(self, record: OutgoingRecord, error: Any) -> None:
        self.missing -= 1
        if error is not None:
            if error.name() in MISSING_TOPIC:
                self.untaken.append(record)
            else:
                self.words = kafka_words(error)
        if not self.missing:
            self.end()

    def end(self, words: str = "") -> None:
        """From any thread. With words, it ends before all reports have come."""
        self.words = self.words or words
        with suppress(RuntimeError):  # the loop is closed: nothing waits for it
            self.loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class KafkaTopics:
    """Made in a thread: it loads the library."""

    def __init__(self, address: KafkaAddress, group: str) -> None:
        import confluent_kafka
        import confluent_kafka.admin
        import confluent_kafka.cimpl

        self._kafka = confluent_kafka
        self._address = address
        self._group = group
        self._partitions: dict[str, int] = {}
        self._creating = threading.Lock()
        self._failure: str | None = None
        self._deliveries: set[_Delivery] = set()
        self.common = common_settings(address, self._failed)
        self._producer = confluent_kafka.Producer(producer_settings(self.common))
        self._admin = confluent_kafka.admin
        self._observer: Any = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._read, name="detent-kafka", daemon=True)
        self._thread.start()

    def partitions(self, topic: str) -> int:
        return self._partitions.get(topic, 0)

    async def check(self) -> None:
        """Raises TransportAwayError if the cluster does not answer."""
        await self._ask(self._metadata)

    async def ensure(self, topics: Collection[str]) -> None:
        unknown = [topic for topic in topics if topic not in self._partitions]
        if unknown:
            await self._ask(lambda: self._create(unknown))

    def forget(self, topic: str) -> None:
        self._partitions.pop(topic, None)

    async def produce(self, records: Sequence[OutgoingRecord]) -> None:
        """Returns when the cluster has them all. A topic that was deleted is created again."""
        for _ in range(ATTEMPTS):
            if not records:
                return
            await self.ensure({record.topic for record in records})
            delivery = _Delivery(len(records))
            for record in records:
                self._produce(delivery, record)
            await self._delivered(delivery)
            if delivery.words:
                raise TransportAwayError(f"{self._address.servers} did not take an offer: {delivery.words}.")
            records = delivery.untaken
            for record in records:
                self.forget(record.topic)
        if records:
            raise TransportAwayError(f"The topic {records[0].topic} cannot be created on {self._address.servers}.")

    async def _delivered(self, delivery: _Delivery) -> None:
        """The client gives up by itself earlier, unless it hangs."""
        self._deliveries.add(delivery)
        try:
            async with asyncio.timeout(ASK_SECONDS * 2):
                await delivery.done
        except TimeoutError:
            raise TransportAwayError(f"{self._address.servers} did not answer in time.") from None
        finally:
            self._deliveries.discard(delivery)

    async def depths(self, topics: Collection[str]) -> dict[str, int]:
        await self.ensure(topics)
        return await self._ask(lambda: {topic: self._depth(topic) for topic in topics})

    def close(self) -> asyncio.Future[None]:
        """Begun when this returns, whether or not its end is waited for: the client has threads."""
        self._ending.set()
        return begin_in_thread(self._end)

    def _produce(self, delivery: _Delivery, record: OutgoingRecord) -> None:
        def report(error: Any, _: Any) -> None:
            delivery.report(record, error)

        try:
            self._producer.produce(
                record.topic, record.body, record.key, partition=record.partition, on_delivery=report
            )  # fmt: skip
        except BufferError:
            raise TransportAwayError(f"Too many offers wait for {self._address.servers} to take them.") from None
        except self._kafka.KafkaException as error:
            raise TransportAwayError(f"{self._address.servers}: {kafka_words(error.args[0])}.") from None

    async def _ask(self, question: Callable[[], Made]) -> Made:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await in_thread(question)
        except self._kafka.KafkaException as error:
            words = self._failure or kafka_words(error.args[0])
            raise TransportAwayError(f"{self._address.servers} cannot be used: {words}.") from None
        except TimeoutError:
            words = self._failure or f"no answer within {ASK_SECONDS:g} s"
            raise TransportAwayError(f"{self._address.servers} cannot be used: {words}.") from None

    # --- in threads ---

    def _read(self) -> None:
        while not self._ending.is_set():
            self._producer.poll(READ_SECONDS)

    def _end(self) -> None:
        self._thread.join(CLOSE_SECONDS)
        self._producer.purge()
        self._producer.flush(CLOSE_SECONDS)
        if self._observer is not None:
            with suppress(self._kafka.KafkaException, RuntimeError):
                self._observer.close()

    def _failed(self, error: Any) -> None:
        """The client would keep what it is to send, and try again for its whole time."""
        if error.name() in AWAY:
            self._failure = words = kafka_words(error)
            for delivery in tuple(self._deliveries):
                delivery.end(words)

    def _metadata(self, topic: str | None = None) -> Any:
        """In short steps: the client would wait for its whole time though it knows that no broker is there."""
        self._failure = None
        until = monotonic() + ANSWER_SECONDS
        while True:
            try:
                return self._producer.list_topics(topic, timeout=STEP_SECONDS)
            except self._kafka.KafkaException:
                if self._failure is not None or monotonic() > until:
                    raise

    def _create(self, topics: Sequence[str]) -> None:
        """Looked for first: a user that may not create topics can use those that others have created."""
        with self._creating:
            cluster = self._metadata()
            found = cluster.topics
            missing = [topic for topic in topics if topic not in found]
            # Without a known controller (mock brokers have none), a topic is created when a producer asks for it.
            if missing and cluster.controller_id in cluster.brokers:
                self._create_missing(missing)
            for topic in topics:
                described = found.get(topic) or self._metadata(topic).topics[topic]
                if described.partitions:
                    self._partitions[topic] = len(described.partitions)

    def _create_missing(self, topics: Sequence[str]) -> None:
        new = [
            self._kafka.cimpl.NewTopic(
                topic, self._address.partitions, replication_factor=self._address.replication, config=TOPIC_SETTINGS
            )
            for topic in topics
        ]
        client = self._admin.AdminClient(self.common)
        for created in client.create_topics(new, request_timeout=ANSWER_SECONDS).values():
            try:
                created.result(ANSWER_SECONDS)
            except self._kafka.KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise

    def _depth(self, topic: str) -> int:
        """What the group has not finished: from its positions, or from the beginning, to the ends."""
        if self._observer is None:
            self._observer = self._kafka.Consumer(consumer_settings(self.common, self._group))
        places = [self._kafka.TopicPartition(topic, number) for number in range(self.partitions(topic))]
        waiting = 0
        for place in self._observer.committed(places, timeout=ANSWER_SECONDS):
            low, high = self._observer.get_watermark_offsets(place, timeout=ANSWER_SECONDS)
            waiting += high - max(low, place.offset)
        return waiting


async def in_thread(work: Callable[[], Made]) -> Made:
    return await begin_in_thread(work)


def begin_in_thread(work: Callable[[], Made]) -> asyncio.Future[Made]:
    """In a thread of its own: the loop has few, which others need, and a broker that does not answer would keep
    them."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Made] = loop.create_future()

    def hand_over(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def run() -> None:
        result: Any = None
        failed: BaseException | None = None
        try:
            result = work()
        except BaseException as error:
            failed = error
        with suppress(RuntimeError):  # the loop is closed: nothing waits for it
            loop.call_soon_threadsafe(hand_over, result, failed)

    threading.Thread(target=run, name="detent-kafka", daemon=True).start()
    return future
