"""A member of the consumer group, and the thread in which all calls of its client are made.

It reads only as much as takes ask for: what is read is with this process. While nothing asks, its partitions are
paused, and it is polled all the same, because a member that does not poll stops the group when workers come and go.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from detent.runtime.clock import monotonic
from detent.transports.kafka_settings import FORBIDDEN, MISSING_TOPIC, kafka_words

POLL_SECONDS = 0.1
PAUSE_SECONDS = 0.3
# Of the offers that a worker may hold; more at once would not be faster.
MAX_AT_ONCE = 1000


class TopicPlace(NamedTuple):
    topic: str
    partition: int


class Record(NamedTuple):
    place: TopicPlace
    offset: int
    body: bytes


class MemberListener(Protocol):
    """Called in the loop, in the order in which things happened."""

    def records_read(self, member: GroupMember, records: Sequence[Record]) -> None: ...

    def partitions_assigned(self, member: GroupMember, places: Collection[TopicPlace]) -> None: ...

    def partitions_revoked(self, member: GroupMember, places: Collection[TopicPlace]) -> None: ...

    def topic_missing(self, member: GroupMember, topic: str) -> None: ...

    def member_failed(self, member: GroupMember, words: str) -> None: ...


class GroupMember:
    def __init__(self, settings: dict[str, Any], topics: Collection[str], listener: MemberListener) -> None:
        self._settings = settings
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._topics = frozenset(topics)
        self._subscribed: frozenset[str] = frozenset()
        self._wanted = 0
        self._wanted_at = monotonic()
        self._positions: dict[TopicPlace, int] = {}
        self._paused = False
        self._changed = threading.Event()
        self._ending = threading.Event()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="detent-kafka-member", daemon=True)
        self._thread.start()

    # --- in the loop ---

    @property
    def topics(self) -> frozenset[str]:
        return self._topics

    def subscribe(self, topics: Collection[str]) -> None:
        """To these, and no longer to others."""
        self._topics = frozenset(topics)
        self._changed.set()

    def want(self, number: int) -> None:
        with self._lock:
            self._wanted = number
            if number:
                self._wanted_at = monotonic()
        self._changed.set()

    def commit(self, positions: Mapping[TopicPlace, int]) -> None:
        """Soon: an offer whose position is lost is read again, and found to be claimed."""
        with self._lock:
            self._positions.update(positions)

    def leave(self) -> asyncio.Future[None]:
        """Commits, and gives its partitions to others. The answer is done when it has left."""
        self._ending.set()
        self._changed.set()
        return self._ended

    # --- in the thread ---

    def _run(self) -> None:
        import confluent_kafka

        try:
            consumer = confluent_kafka.Consumer(self._settings)
            try:
                while not self._ending.is_set():
                    self._step(confluent_kafka, consumer)
                self._commit(confluent_kafka, consumer, wait=True)
            finally:
                consumer.close()
        except (confluent_kafka.KafkaException, RuntimeError) as error:
            words = kafka_words(error.args[0]) if isinstance(error, confluent_kafka.KafkaException) else str(error)
            self.tell(self._listener.member_failed, words)
        finally:
            self._tell_end()

    def _step(self, kafka: Any, consumer: Any) -> None:
        self._subscribe(consumer)
        self._commit(kafka, consumer, wait=False)
        with self._lock:
            wanted = min(self._wanted, MAX_AT_ONCE)
            idle = monotonic() - self._wanted_at > PAUSE_SECONDS
        if wanted or idle:
            self._pause(consumer, paused=not wanted)
            self._poll(consumer, wanted)
        else:
            self._changed.wait(POLL_SECONDS)
            self._changed.clear()

    def _subscribe(self, consumer: Any) -> None:
        topics = self._topics
        if topics != self._subscribed:
            consumer.subscribe(
                sorted(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )  # fmt: skip
            self._subscribed = topics

    def _pause(self, consumer: Any, *, paused: bool) -> None:
        if paused != self._paused:
            (consumer.pause if paused else consumer.resume)(consumer.assignment())
            self._paused = paused

    def _poll(self, consumer: Any, wanted: int) -> None:
        """The first is waited for; what else is here comes with it."""
        first = consumer.poll(POLL_SECONDS)
        if first is None:
            return
        rest = consumer.consume(wanted - 1, 0) if wanted > 1 else []
        records = []
        for message in (first, *rest):
            error = message.error()
            place = TopicPlace(message.topic() or "", message.partition() or 0)
            if error is None:
                records.append(Record(place, message.offset(), message.value() or b""))
            elif error.name() in MISSING_TOPIC:
                self.tell(self._listener.topic_missing, place.topic)
            elif error.name() in FORBIDDEN:
                self.tell(self._listener.member_failed, kafka_words(error))
        if records:
            with self._lock:
                self._wanted = max(0, self._wanted - len(records))
            self.tell(self._listener.records_read, records)

    def _commit(self, kafka: Any, consumer: Any, *, wait: bool) -> None:
        with self._lock:
            positions, self._positions = self._positions, {}
        if positions:
            offsets = [kafka.TopicPartition(*place, offset) for place, offset in positions.items()]
            with suppress(kafka.KafkaException):  # the group has changed: what is read again is found to be claimed
                consumer.commit(offsets=offsets, asynchronous=not wait)

    def _assigned(self, consumer: Any, partitions: Sequence[Any]) -> None:
        consumer.incremental_assign(partitions)
        if self._paused:
            consumer.pause(partitions)
        self.tell(self._listener.partitions_assigned, _places(partitions))

    def _revoked(self, consumer: Any, partitions: Sequence[Any]) -> None:
        import confluent_kafka

        self._commit(confluent_kafka, consumer, wait=True)
        consumer.incremental_unassign(partitions)
        self.tell(self._listener.partitions_revoked, _places(partitions))

    def _lost(self, consumer: Any, partitions: Sequence[Any]) -> None:
        consumer.incremental_unassign(partitions)
        self.tell(self._listener.partitions_revoked, _places(partitions))

    def tell(self, listen: Callable[[GroupMember, Any], None], what: Any) -> None:
        """Has the loop call it, after what was told before."""
        with suppress(RuntimeError):  # the loop is closed: nothing waits for it
            self._loop.call_soon_threadsafe(listen, self, what)

    def _tell_end(self) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


def _places(partitions: Sequence[Any]) -> list[TopicPlace]:
    return [TopicPlace(partition.topic, partition.partition) for partition in partitions]
