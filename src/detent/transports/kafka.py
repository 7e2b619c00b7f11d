"""Offers in Kafka: a topic for each channel, `detent.<cluster>.<queue>`, read by one consumer group for the cluster.

The key of an offer is its job. A partition is with one worker at a time, and the group has one position in it: it moves
over finished offers only, and stays at the first that is not finished (`kafka_positions.py`). Kafka can neither return
nor hold a single record. What is given back, or held for too long, is therefore sent again, into a partition of another
worker where there is one, and then counts as finished. When a worker comes, goes or is lost, the partitions are
distributed again, and whoever gets one begins at its position: what was taken from it and not finished returns.

A worker that does not take leaves the group after `IDLE_SECONDS`, so that its partitions go to workers that do. What it
has not finished then is sent again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from detent.domain.offer import Offer, RunOffer, decode_offer, encode_offer
from detent.runtime.clock import monotonic
from detent.transports.answering import words_of
from detent.transports.arrivals import Arrivals
from detent.transports.kafka_member import GroupMember, Record, TopicPlace
from detent.transports.kafka_positions import PartitionPositions
from detent.transports.kafka_settings import AWAY, consumer_settings, kafka_words, read_kafka_address
from detent.transports.kafka_topics import KafkaTopics, OutgoingRecord, begin_in_thread
from detent.transports.transport import HOLD_SECONDS, ChannelDepth, TakenOffer, TransportAwayError

IDLE_SECONDS = 3.0
# With offers in hand: it does not take while the database is slow, and should not lose them for it.
HOLDING_IDLE_SECONDS = 8.0
WATCH_SECONDS = 0.1
CLOSE_SECONDS = 3.0


def open_transport(address: str, cluster: str, *, hold_seconds: float = HOLD_SECONDS) -> KafkaTransport:
    import confluent_kafka  # noqa: F401 - a library that is missing is reported at once

    return KafkaTransport(address, cluster, hold_seconds)


class _Receipt(NamedTuple):
    positions: PartitionPositions
    """Of this assignment of the partition: after the next one, others count."""
    place: TopicPlace
    offset: int


class KafkaTransport:
    name = "kafka"
    delays = False

    def __init__(self, address: str, cluster: str, hold_seconds: float) -> None:
        self._address = read_kafka_address(address)
        self._prefix = f"detent.{cluster}."
        self._hold = hold_seconds
        self._topics: KafkaTopics | None = None
        self._making: asyncio.Future[KafkaTopics] | None = None
        self._member: GroupMember | None = None
        self._arrivals = Arrivals()
        self._asked: dict[int, float] = {}
        """The queues whose topics are read, and when a take has asked for them last."""
        self._positions: dict[TopicPlace, PartitionPositions] = {}
        self._held: dict[_Receipt, tuple[TakenOffer, float]] = {}
        self._limits = 0
        self._asked_at = 0.0
        self._failures = 0
        self._failure = ""
        self._is_away = False
        self._watch: asyncio.TimerHandle | None = None
        self._background: set[asyncio.Task[None]] = set()

    # --- the scheduler's side ---

    async def open(self) -> None:
        await (await self._opened()).check()
        self._is_away = False

    async def send(self, offers: Sequence[Offer]) -> None:
        if offers:
            await (await self._opened()).produce([self._record(offer) for offer in offers])

    async def depth(self, queues: Collection[int]) -> Mapping[int, ChannelDepth]:
        """What is taken counts until it is finished. Kafka does not say how old a record is without reading it."""
        topics = {self._topic(queue): queue for queue in queues}
        found = await (await self._opened()).depths(topics) if topics else {}
        return {queue: ChannelDepth(found[topic]) for topic, queue in topics.items()}

    # --- the worker's side ---

    async def take(self, queues: Collection[int], limit: int, now: datetime, wait_seconds: float) -> list[TakenOffer]:
        """What is sent is due: `now` is not needed."""
        if not queues or limit < 1:
            return []
        until, failures = monotonic() + wait_seconds, self._failures
        self._limits += limit
        try:
            with self._arrivals.asking(queues):
                while True:
                    found = self._arrivals.pop(queues, limit)
                    left = until - monotonic()
                    if found or left <= 0:
                        return self._hold_on(found)
                    if self._failures != failures:
                        raise TransportAwayError(f"{self._address.servers} cannot be used: {self._failure}.")
                    await self._join(queues)
                    await self._arrivals.wait(left)
        finally:
            self._limits -= limit
            self._asked_at = monotonic()
            self._want()

    async def finish(self, taken: Sequence[TakenOffer]) -> None:
        self._finish([each.receipt for each in self._still_held(taken)])

    async def give_back(self, taken: Sequence[TakenOffer]) -> None:
        await self._send_again(self._still_held(taken))

    async def extend(self, taken: Sequence[TakenOffer]) -> None:
        self._hold_on(self._still_held(taken))

    def _still_held(self, taken: Sequence[TakenOffer]) -> list[TakenOffer]:
        """What else there was has returned, because of its partition or its time."""
        if taken and self._is_away:
            raise TransportAwayError(f"{self._address.servers} cannot be used: {self._failure}.")
        return [each for each in taken if each.receipt in self._held]

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        try:
            with suppress(TimeoutError, TransportAwayError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._send_all_again()
        finally:
            ends = self._end()  # also if this call is cancelled: otherwise the threads would not end
        if ends:
            await asyncio.wait(ends, timeout=CLOSE_SECONDS)

    def _end(self) -> list[asyncio.Future[None]]:
        """Begin to end the clients, even if nothing awaits the futures. These are done when the clients have ended."""
        left = self._leave()
        topics, self._topics = self._topics, None
        making, self._making = self._making, None
        if making is not None and topics is None:
            making.add_done_callback(_close_made)
        return [end for end in (left, None if topics is None else topics.close()) if end is not None]

    def _finish(self, receipts: Collection[_Receipt]) -> None:
        for receipt in receipts:
            self._held.pop(receipt, None)
            receipt.positions.finished(receipt.offset)
        self._commit({receipt.place for receipt in receipts if self._is_current(receipt)})

    def _commit(self, places: Collection[TopicPlace]) -> None:
        moved = {place: position for place in places if (position := self._positions[place].advance()) is not None}
        if moved and self._member is not None:
            self._member.commit(moved)

    def _is_current(self, receipt: _Receipt) -> bool:
        return self._positions.get(receipt.place) is receipt.positions

    def _hold_on(self, taken: list[TakenOffer]) -> list[TakenOffer]:
        until = monotonic() + self._hold
        self._held.update({each.receipt: (each, until) for each in taken})
        return taken

    async def _send_again(self, taken: Sequence[TakenOffer]) -> None:
        """Into partitions that are not of this worker, as far as there are any."""
        if not taken:
            return
        topics = await self._opened()
        records = []
        for each in taken:
            topic = each.receipt.place.topic
            others = [
                number for number in range(topics.partitions(topic)) if TopicPlace(topic, number) not in self._positions
            ]
            records.append(self._record(each.offer)._replace(partition=random.choice(others) if others else -1))
        await topics.produce(records)
        self._finish([each.receipt for each in taken])

    async def _send_all_again(self) -> None:
        """Before it leaves the group: otherwise, what is finished behind something unfinished would return too."""
        if not self._is_away:
            self._hold_on(self._arrivals.pop_all())
            await self._send_again([taken for taken, _ in self._held.values()])

    # --- membership ---

    async def _opened(self) -> KafkaTopics:
        """Made once, though the call that began it is cancelled."""
        if self._topics is not None:
            return self._topics
        if self._making is None:
            self._making = begin_in_thread(lambda: KafkaTopics(self._address, self._prefix.rstrip(".")))
        making = self._making
        try:
            self._topics = await asyncio.shield(making)
        except Exception as error:  # of the client, which does not accept a setting or finds no file
            raise TransportAwayError(f"The client for {self._address.servers} failed: {words_of(error)}.") from error
        finally:
            if making.done() and self._making is making:
                self._making = None
        return self._topics

    async def _join(self, queues: Collection[int]) -> None:
        names = {self._topic(queue) for queue in self._read_by(queues)}
        topics = await self._opened()
        if self._member is None or not names <= self._member.topics:
            await topics.ensure(names)
        if self._member is None:
            settings = consumer_settings(topics.common, self._prefix.rstrip("."))
            settings["error_cb"] = self._client_failed
            self._member = GroupMember(settings, names, self)
        elif names != self._member.topics:
            self._member.subscribe(names)
        self._want()
        if self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._look)

    def _read_by(self, queues: Collection[int]) -> Collection[int]:
        """These, and those that were asked for a moment ago: to change what is read interrupts the group."""
        now = monotonic()
        self._asked.update(dict.fromkeys(queues, now))
        self._asked = {
            queue: at
            for queue, at in self._asked.items()
            if now - at < IDLE_SECONDS or self._arrivals.is_awaited(queue)
        }
        return self._asked

    def _want(self) -> None:
        if self._member is not None:
            self._member.want(max(0, self._limits - len(self._arrivals)))

    def _leave(self) -> asyncio.Future[None] | None:
        member, self._member = self._member, None
        self._positions.clear()
        self._held.clear()
        self._arrivals.discard(lambda _: True)
        return None if member is None else member.leave()

    def records_read(self, member: GroupMember, records: Sequence[Record]) -> None:
        if member is not self._member:
            return
        arrived, unknown = [], []
        for record in records:
            positions = self._positions.setdefault(record.place, PartitionPositions())
            positions.delivered(record.offset)
            receipt = _Receipt(positions, record.place, record.offset)
            offer = decode_offer(record.body)
            if offer is None or self._topic(offer.queue) != record.place.topic:
                unknown.append(receipt)
            else:
                arrived.append((offer, receipt))
        self._finish(unknown)
        self._arrivals.add(arrived)

    def partitions_assigned(self, member: GroupMember, places: Collection[TopicPlace]) -> None:
        if member is self._member:
            self._positions.update({place: PartitionPositions() for place in places})

    def partitions_revoked(self, member: GroupMember, places: Collection[TopicPlace]) -> None:
        if member is self._member:
            for place in places:
                self._positions.pop(place, None)
            self._arrivals.discard(lambda receipt: not self._is_current(receipt))
            self._held = {receipt: held for receipt, held in self._held.items() if self._is_current(receipt)}

    def topic_missing(self, member: GroupMember, topic: str) -> None:
        """It was deleted. The next take creates it again, and the group begins anew."""
        if member is self._member and self._topics is not None:
            self._topics.forget(topic)
            self._leave()
            self._arrivals.wake()

    def member_failed(self, member: GroupMember, words: str) -> None:
        if member is self._member:
            self._fail(words)

    def _client_failed(self, error: Any) -> None:
        """In the thread of the member."""
        if error.name() in AWAY or error.fatal():
            member = self._member
            if member is not None:
                member.tell(self.member_failed, kafka_words(error))

    def _fail(self, words: str) -> None:
        self._failures += 1
        self._failure = words
        self._is_away = True
        self._leave()
        self._arrivals.wake()

    # --- what no take asks for, and holds that end ---

    def _look(self) -> None:
        self._watch = None
        now = monotonic()
        over = [taken for taken, until in self._held.values() if until <= now]
        returned = [*self._arrivals.unasked(), *over]
        idle = HOLDING_IDLE_SECONDS if self._held else IDLE_SECONDS
        if returned:
            self._hold_on(returned)  # until they are sent again; what fails is tried again after that
            self._want()  # some were counted as what a take would get
            self._in_background(self._send_again(returned))
        elif not self._limits and now - self._asked_at > idle and not self._background:
            self._in_background(self._leave_idle())
        if self._member is not None:
            self._watch = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._look)

    async def _leave_idle(self) -> None:
        await self._send_all_again()
        if not self._limits:
            self._leave()

    def _in_background(self, step: Coroutine[Any, Any, None]) -> None:
        """What fails here is tried again when its hold ends once more, or returns with its partition."""

        async def run() -> None:
            with suppress(TransportAwayError):
                await step

        task = asyncio.create_task(run())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _record(self, offer: Offer) -> OutgoingRecord:
        key = offer.job if isinstance(offer, RunOffer) else offer.queue
        return OutgoingRecord(self._topic(offer.queue), str(key).encode(), encode_offer(offer))

    def _topic(self, queue: int) -> str:
        return f"{self._prefix}{queue}"


def _close_made(making: asyncio.Future[KafkaTopics]) -> None:
    if not making.cancelled() and making.exception() is None:
        making.result().close()
