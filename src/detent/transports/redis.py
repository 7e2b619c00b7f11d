"""Offers in Redis or Valkey: sorted sets by due time, from which a script takes what is due.

    detent:{cluster}:<queue>:offers:<priority>    sorted set: offers that wait, by due time (microseconds, database)
    detent:{cluster}:<queue>:priorities           sorted set: the priorities that have such a set
    detent:{cluster}:<queue>:taken                sorted set: deliveries, by the time at which they return (Redis)
    detent:{cluster}:<queue>:wake                 list: one element that wakes one waiting worker

The same offer is one member, however often it is sent. A delivery is the offer with a name of its own, by which
`finish` removes this delivery and no later one of the same offer. Every `take` first returns the deliveries whose time
is over, so nothing but workers is needed for it. What is in braces decides the slot of a key: all are in one, as
scripts need it. The keys expire when nothing has been sent for an hour. If a set of offers that no worker takes grows
too large, those that were due first are dropped: a run that still waits is offered again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from secrets import token_hex
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from detent.domain.offer import Offer, decode_offer, encode_offer
from detent.transports.answering import ANSWER_SECONDS, answering
from detent.transports.held import HeldDeliveries
from detent.transports.redis_scripts import DEPTH, EXTEND, GIVE_BACK, SEND, TAKE
from detent.transports.transport import HOLD_SECONDS, ChannelDepth, TakenOffer, TransportAwayError

# A waiting worker looks again after so long: what a lost wake-up costs at most.
LONGEST_SLEEP = 1.0
# Redis does nothing else while it runs a script or a command.
AT_ONCE = 500

_Item = TypeVar("_Item")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def open_transport(address: str, cluster: str, *, hold_seconds: float = HOLD_SECONDS) -> RedisTransport:
    return RedisTransport(address, cluster, hold_seconds)


class _Receipt(NamedTuple):
    queue: int
    member: bytes


class RedisTransport:
    name = "redis"
    delays = True

    def __init__(self, address: str, cluster: str, hold_seconds: float) -> None:
        parts = urlsplit(address)
        self._peer = f"{parts.hostname}:{parts.port or 6379}"
        self._prefix = f"detent:{{{cluster}}}:"
        self._hold = round(hold_seconds * 1_000_000)
        # One immediate retry: a connection from before a restart of the server fails on its first use.
        self._redis = Redis.from_url(
            address,
            socket_timeout=ANSWER_SECONDS,
            socket_connect_timeout=ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 1),
            client_name="detent",
        )
        self._send, self._take, self._give_back, self._extend, self._depth = (
            self._redis.register_script(script) for script in (SEND, TAKE, GIVE_BACK, EXTEND, DEPTH)
        )
        self._instance, self._deliveries, self._turns = token_hex(6), 0, 0
        self._held = HeldDeliveries(hold_seconds)
        self._returning: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        async with self._answering():
            await self._redis.ping()

    async def send(self, offers: Sequence[Offer]) -> None:
        for some in _batches(offers):
            places = {queue: place for place, queue in enumerate({offer.queue for offer in some}, start=1)}
            arguments: list[Any] = []
            for offer in some:
                arguments += (places[offer.queue], offer.priority, _microseconds(offer.due), encode_offer(offer))
            async with self._answering():
                await self._send(keys=[self._key(queue) for queue in places], args=arguments)

    async def take(self, queues: Collection[int], limit: int, now: datetime, wait_seconds: float) -> list[TakenOffer]:
        if not queues or limit < 1:
            return []
        clock = asyncio.get_running_loop().time
        begun, at, order = clock(), _microseconds(now), self._rotated(queues)
        while True:
            waited = clock() - begun
            present = at + round(waited * 1_000_000)
            taken, next_due = await self._taken_or_returned(order, limit, present)
            left = wait_seconds - waited
            if taken or left <= 0:
                return taken
            await self._sleep(order, min(left, LONGEST_SLEEP, (next_due - present) / 1_000_000))

    async def finish(self, taken: Sequence[TakenOffer]) -> None:
        await self._remove(self._held.release(taken))

    async def give_back(self, taken: Sequence[TakenOffer]) -> None:
        for keys, arguments in self._by_queue(self._held.release(taken)):
            async with self._answering():
                await self._give_back(keys=keys, args=arguments)

    async def extend(self, taken: Sequence[TakenOffer]) -> None:
        for keys, arguments in self._by_queue([each.receipt for each in taken]):
            async with self._answering():
                await self._extend(keys=keys, args=[self._hold, *arguments])
        self._held.extend(taken)

    async def depth(self, queues: Collection[int]) -> Mapping[int, ChannelDepth]:
        numbers = list(queues)
        if not numbers:
            return {}
        async with self._answering():
            answers = await self._depth(keys=[self._key(queue) for queue in numbers])
        counted = zip(numbers, answers[::2], answers[1::2], strict=True)
        return {queue: ChannelDepth(count, int(age) / 1_000_000 if age else None) for queue, count, age in counted}

    async def close(self) -> None:
        try:
            await asyncio.gather(*self._returning)
            with suppress(TransportAwayError):
                for keys, arguments in self._by_queue(self._held.release_all()):
                    async with self._answering():
                        await self._give_back(keys=keys, args=arguments)
        finally:
            with suppress(RedisError, OSError):
                await self._redis.aclose()

    # --- how ---

    @asynccontextmanager
    async def _answering(self) -> AsyncIterator[None]:
        """After a failure, connections are made anew: the name of the address may lead to another server by now."""
        try:
            async with answering(self._peer, ANSWER_SECONDS, RedisError):
                yield
        except TransportAwayError:
            with suppress(RedisError, OSError):
                await self._redis.connection_pool.disconnect(inuse_connections=False)
            raise

    def _key(self, queue: int) -> str:
        return f"{self._prefix}{queue}"

    def _rotated(self, queues: Collection[int]) -> list[int]:
        """Another queue first each time: of offers of one priority, those of the first queue are taken first."""
        order = sorted(queues)
        self._turns += 1
        first = self._turns % len(order)
        return order[first:] + order[:first]

    async def _taken_or_returned(self, queues: list[int], limit: int, present: int) -> tuple[list[TakenOffer], float]:
        """As below; a call that is cancelled gives back what its script takes."""
        taking = asyncio.create_task(self._take_due(queues, limit, present))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            returning = asyncio.create_task(self._return_unwanted(taking))
            self._returning.add(returning)
            returning.add_done_callback(self._returning.discard)
            raise

    async def _return_unwanted(self, taking: asyncio.Task[tuple[list[TakenOffer], float]]) -> None:
        with suppress(TransportAwayError):
            taken, _ = await taking
            await self.give_back(taken)

    async def _take_due(self, queues: list[int], limit: int, present: int) -> tuple[list[TakenOffer], float]:
        """What is due, and otherwise when the next offer is."""
        self._deliveries += 1
        delivery = f"{self._instance}-{self._deliveries}"
        async with self._answering():
            next_due, *found = await self._take(
                keys=[self._key(queue) for queue in queues], args=[present, limit, self._hold, delivery]
            )
        taken, unknown = [], []
        for index, member in zip(found[::2], found[1::2], strict=True):
            receipt = _Receipt(queues[index - 1], member)
            offer = decode_offer(member.split(b" ", 3)[3])
            if offer is None or offer.queue != receipt.queue:
                unknown.append(receipt)
            else:
                self._held.hold(receipt)
                taken.append(TakenOffer(offer, receipt))
        await self._remove(unknown)
        return taken, float(next_due or "inf")

    async def _sleep(self, queues: list[int], seconds: float) -> None:
        """Until an offer is sent, or so long."""
        async with self._answering():
            await self._redis.blpop([f"{self._key(queue)}:wake" for queue in queues], timeout=max(seconds, 0.001))

    async def _remove(self, receipts: Iterable[_Receipt]) -> None:
        members: defaultdict[int, list[bytes]] = defaultdict(list)
        for receipt in receipts:
            members[receipt.queue].append(receipt.member)
        for queue, all_of_queue in members.items():
            for some in _batches(all_of_queue):
                async with self._answering():
                    await self._redis.zrem(f"{self._key(queue)}:taken", *some)

    def _by_queue(self, receipts: Iterable[_Receipt]) -> Iterator[tuple[list[str], list[Any]]]:
        """Keys and arguments of a script that has, for each delivery, the index of its queue and its member."""
        for some in _batches(receipts):
            places = {queue: place for place, queue in enumerate({receipt.queue for receipt in some}, start=1)}
            arguments: list[Any] = []
            for receipt in some:
                arguments += (places[receipt.queue], receipt.member)
            yield [self._key(queue) for queue in places], arguments


def _microseconds(instant: datetime) -> int:
    return (instant - _EPOCH) // _MICROSECOND


def _batches(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    rest = iter(items)
    while some := list(islice(rest, AT_ONCE)):
        yield some
