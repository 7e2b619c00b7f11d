"""Offers in RabbitMQ: quorum queues with publisher confirms and manual acknowledgement.

    detent.<cluster>.<queue>.<band>    durable quorum queue: offers of one queue whose priority is high, normal or low

Quorum queues of RabbitMQ 3 have no priorities, and those of RabbitMQ 4 have two that take turns. A queue for each band
is the same with all versions, and strict: a take gives what is in a higher band first.

A consumer is pushed at most as many offers as a take asked for (its prefetch), and exists while takes ask for its
queue. `basic.get` instead is one entry in the log of the quorum queue for each offer (100 at a time, with RabbitMQ 3.10
on one machine: 300/s, where a consumer had 8,000/s), and would have to be repeated to wait. RabbitMQ knows no end of a
hold: it returns the offers of a lost connection at once, and this transport returns what a live worker has forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import NamedTuple

from pamqp.commands import Confirm
from yarl import URL

from detent.domain.offer import Offer, decode_offer, encode_offer
from detent.runtime.clock import monotonic
from detent.transports.arrivals import Arrivals
from detent.transports.rabbitmq_channels import OfferConsuming, OfferPublishing, QueueMessage, RabbitDelivery
from detent.transports.rabbitmq_link import RabbitLink
from detent.transports.transport import BANDS, HOLD_SECONDS, ChannelDepth, TakenOffer, TransportAwayError, band_of

MAX_PREFETCH = 2000
SPARE_PREFETCH = 16
WATCH_SECONDS = 0.1
RENEW_SECONDS = 15.0
SETTLE_SECONDS = 0.05
# How often an offer is sent to a queue that was deleted, or was created a moment ago and refuses it.
ATTEMPTS = 4
ATTEMPT_SECONDS = 0.1


def open_transport(address: str, cluster: str, *, hold_seconds: float = HOLD_SECONDS) -> RabbitTransport:
    return RabbitTransport(address, cluster, hold_seconds)


class _Receipt(NamedTuple):
    channel: OfferConsuming
    tag: int


class _Consumer:
    def __init__(self, queue: int, name: str, tag: str, prefetch: int) -> None:
        self.queue = queue
        self.name = name
        self.tag = tag
        self.prefetch = prefetch
        self.taken = 0
        """Of its deliveries, how many a take has given out that are not settled."""


class _Held(NamedTuple):
    """A delivery that the broker regards as with this process. `until` is when its hold ends; None: no take has it."""

    consumer: _Consumer
    until: float | None


class RabbitTransport:
    name = "rabbitmq"
    delays = False

    def __init__(self, address: str, cluster: str, hold_seconds: float) -> None:
        url = URL(address)
        self._prefix = f"detent.{cluster}."
        self._hold = hold_seconds
        # A connection that publishes may be blocked by the broker: acknowledgements have their own.
        self._publishing = RabbitLink(url, OfferPublishing, _with_confirms)
        self._consuming = RabbitLink(url, OfferConsuming, self._begin_consuming)
        self._subscribing = asyncio.Lock()
        self._arrivals = Arrivals()
        self._consumers: dict[str, _Consumer] = {}
        self._by_tag: dict[str, _Consumer] = {}
        self._held: dict[int, _Held] = {}
        self._numbers = count(1)
        self._heard_at = 0.0
        self._watch: asyncio.TimerHandle | None = None

    # --- the scheduler's side ---

    async def open(self) -> None:
        channel = await self._publishing.channel()
        async with self._publishing.answering():
            await channel.set_prefetch(0)  # which changes nothing here, and shows that the broker answers

    async def send(self, offers: Sequence[Offer]) -> None:
        messages = [
            QueueMessage(self._queue_of(offer.queue, band_of(offer.priority)), encode_offer(offer)) for offer in offers
        ]
        for attempt in range(ATTEMPTS):
            if not messages:
                return
            await asyncio.sleep(attempt * ATTEMPT_SECONDS)
            channel = await self._publishing.channel()
            if channel.connection.blocked is not None:
                raise TransportAwayError(f"{self._publishing.peer} accepts no offers: {channel.connection.blocked}.")
            messages = await self._publish(channel, messages)
        if messages:
            raise TransportAwayError(f"{self._publishing.peer} does not store offers in the queue {messages[0].queue}.")

    async def _publish(self, channel: OfferPublishing, messages: list[QueueMessage]) -> list[QueueMessage]:
        """Those that were not taken. A channel on which confirmations are missing is not used again."""
        try:
            async with self._publishing.answering():
                await channel.declare({message.queue for message in messages} - channel.declared)
                return await channel.publish(messages)
        except TransportAwayError as error:
            self._publishing.abort(error.message)
            raise

    async def depth(self, queues: Collection[int]) -> Mapping[int, ChannelDepth]:
        """Without what workers have: RabbitMQ does not say it to clients, nor how old a message is."""
        channel = await self._publishing.channel()
        names = {self._queue_of(queue, band): queue for queue in queues for band in BANDS}
        counts: dict[int, int] = dict.fromkeys(queues, 0)
        async with self._publishing.answering():
            for name, waiting in (await channel.declare(names)).items():
                counts[names[name]] += waiting
        return {queue: ChannelDepth(waiting) for queue, waiting in counts.items()}

    # --- the worker's side ---

    async def take(self, queues: Collection[int], limit: int, now: datetime, wait_seconds: float) -> list[TakenOffer]:
        """What is sent is due: `now` is not needed."""
        if not queues or limit < 1:
            return []
        until = monotonic() + wait_seconds
        with self._arrivals.asking(queues):
            while True:
                await self._subscribe(queues, limit)
                found = self._arrivals.pop(queues, limit)
                left = until - monotonic()
                if found or left <= 0:
                    self._hold_on(found)
                    return found
                await self._arrivals.wait(min(left, RENEW_SECONDS))
                await self._renew_if_silent()

    async def finish(self, taken: Sequence[TakenOffer]) -> None:
        if taken:
            channel = self._consuming_now()
            channel.acknowledge(self._settle(channel, taken))

    async def give_back(self, taken: Sequence[TakenOffer]) -> None:
        if taken:
            channel = self._consuming_now()
            channel.requeue(self._settle(channel, taken))

    async def extend(self, taken: Sequence[TakenOffer]) -> None:
        if taken:
            self._consuming_now()
            self._hold_on(taken)

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        await self._consuming.close()
        await self._publishing.close()

    def _consuming_now(self) -> OfferConsuming:
        """Without a connection there is nothing to be settled: the broker has returned what it delivered."""
        channel = self._consuming.current
        if channel is None:
            raise TransportAwayError(f"The connection to {self._consuming.peer} broke: what was taken has returned.")
        return channel

    def _settle(self, channel: OfferConsuming, taken: Sequence[TakenOffer]) -> list[int]:
        """The tags that the broker still knows: it closes the channel for others."""
        known = (receipt.tag for _, receipt in taken if receipt.channel is channel)
        return [tag for tag in known if self._drop(tag)]

    def _drop(self, tag: int) -> bool:
        held = self._held.pop(tag, None)
        if held is not None and held.until is not None:
            held.consumer.taken -= 1
        return held is not None

    def _hold_on(self, taken: Sequence[TakenOffer]) -> None:
        until = monotonic() + self._hold
        for _, (channel, tag) in taken:
            held = self._held.get(tag) if channel is self._consuming.current else None
            if held is not None:
                held.consumer.taken += held.until is None
                self._held[tag] = held._replace(until=until)

    # --- consumers ---

    async def _subscribe(self, queues: Collection[int], limit: int) -> None:
        """Every queue of the take has a consumer for each band, with a prefetch that lets it have `limit` offers."""
        names = {self._queue_of(queue, band): queue for queue in queues for band in BANDS}
        prefetch = min(limit, MAX_PREFETCH)
        if self._consuming.current is not None and not self._unfit(names, prefetch):
            return
        async with self._subscribing:
            channel = await self._consuming.channel()
            unfit = self._unfit(names, prefetch)
            if not unfit:
                return
            async with self._consuming.answering():
                await channel.declare(set(unfit) - channel.declared)
                await channel.set_prefetch(prefetch)
            silent = [name for name in unfit if _is_silent(self._consumers.get(name))]
            for name in unfit:
                self._consume(channel, names[name], name, prefetch)
            self._plan_watch()
        if silent:
            await self._settle_in(queues, min(BANDS.index(name.rpartition(".")[2]) for name in silent))

    async def _settle_in(self, queues: Collection[int], band: int) -> None:
        """A new consumer is given time to bring something, or what is here already would precede a higher band."""
        until = monotonic() + SETTLE_SECONDS
        while (left := until - monotonic()) > 0:
            first = self._arrivals.first_priority(queues)
            if first is not None and BANDS.index(band_of(first)) <= band:
                return
            await self._arrivals.wait(left)

    async def _renew_if_silent(self) -> None:
        """A queue that is deleted, and created by another client before this one hears of it, keeps a consumer that is
        never served (RabbitMQ 3.10), and nothing reports it. A new channel costs little, and has new consumers."""
        async with self._subscribing:
            channel = self._consuming.current
            if channel is None or self._held or monotonic() - self._heard_at < RENEW_SECONDS:
                return
            self._ended(channel, None)
            async with self._consuming.answering():
                await channel.connection.close_channel(channel)

    def _unfit(self, names: Mapping[str, int], prefetch: int) -> list[str]:
        return [name for name in names if not _fits(self._consumers.get(name), prefetch)]

    def _consume(self, channel: OfferConsuming, queue: int, name: str, prefetch: int) -> None:
        self._stop(channel, name)
        consumer = _Consumer(queue, name, f"{name}#{next(self._numbers)}", prefetch)
        self._consumers[name] = self._by_tag[consumer.tag] = consumer
        channel.consume(name, consumer.tag)

    def _stop(self, channel: OfferConsuming, name: str) -> None:
        consumer = self._consumers.pop(name, None)
        if consumer is not None:
            del self._by_tag[consumer.tag]
            channel.cancel(consumer.tag)

    def _arrived(self, channel: OfferConsuming, deliveries: Sequence[RabbitDelivery]) -> None:
        if channel is not self._consuming.current:
            return
        self._heard_at = monotonic()
        arrived, unwanted, unknown = [], [], []
        for delivery in deliveries:
            consumer = self._by_tag.get(delivery.consumer)
            offer = decode_offer(delivery.body)
            if consumer is None:
                unwanted.append(delivery.tag)  # it was under way when its consumer ended
            elif offer is None or offer.queue != consumer.queue:
                unknown.append(delivery.tag)
            else:
                self._held[delivery.tag] = _Held(consumer, None)
                arrived.append((offer, _Receipt(channel, delivery.tag)))
        if unwanted:
            channel.requeue(unwanted)
        if unknown:
            channel.acknowledge(unknown)
        self._arrivals.add(arrived)

    def _ended(self, channel: OfferConsuming, tag: str | None) -> None:
        """Takes that wait are woken: they subscribe again, or learn that the broker is away."""
        if tag is None:
            self._consumers.clear()
            self._by_tag.clear()
            self._held.clear()
            self._arrivals.discard(lambda receipt: receipt.channel is channel)
        else:
            self._queue_deleted(channel, tag)
        self._arrivals.wake()

    def _queue_deleted(self, channel: OfferConsuming, tag: str) -> None:
        consumer = self._by_tag.pop(tag, None)
        if consumer is not None:
            channel.declared.discard(consumer.name)
            del self._consumers[consumer.name]
        lost = {number for number, held in self._held.items() if held.until is None and held.consumer is consumer}
        for number in lost:
            del self._held[number]
        self._arrivals.discard(lambda receipt: receipt.tag in lost)

    async def _begin_consuming(self, channel: OfferConsuming) -> None:
        self._heard_at = monotonic()
        channel.on_deliveries, channel.on_end = self._arrived, self._ended

    # --- what nobody asks for, and holds that end ---

    def _plan_watch(self) -> None:
        if self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._look)

    def _look(self) -> None:
        self._watch = None
        channel = self._consuming.current
        if channel is None:
            return
        for consumer in list(self._consumers.values()):
            if not self._arrivals.is_asked(consumer.queue):
                self._stop(channel, consumer.name)
        self._return(channel)
        if self._consumers or self._held:
            self._plan_watch()

    def _return(self, channel: OfferConsuming) -> None:
        unasked = self._settle(channel, self._arrivals.unasked())
        now = monotonic()
        over = [tag for tag, held in self._held.items() if held.until is not None and held.until <= now]
        returned = unasked + [tag for tag in over if self._drop(tag)]
        if returned:
            channel.requeue(returned)

    def _queue_of(self, queue: int, band: str) -> str:
        return f"{self._prefix}{queue}.{band}"


def _fits(consumer: _Consumer | None, prefetch: int) -> bool:
    """What is taken and unfinished counts in a prefetch. A new consumer costs a question: small changes are ignored."""
    if consumer is None:
        return False
    return prefetch <= 2 * (consumer.prefetch - consumer.taken) and consumer.prefetch <= 8 * prefetch + SPARE_PREFETCH


def _is_silent(consumer: _Consumer | None) -> bool:
    """Whether its queue may have offers that the broker could not deliver yet."""
    return consumer is None or consumer.taken >= consumer.prefetch


async def _with_confirms(channel: OfferPublishing) -> None:
    await channel.ask(Confirm.Select(), Confirm.SelectOk)
