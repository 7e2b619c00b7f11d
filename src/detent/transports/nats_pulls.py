"""How workers take offers from consumers of NATS JetStream: pull requests, and who gets what arrives."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress

from nats.aio.msg import Msg

from detent.domain.offer import decode_offer
from detent.transports.answering import ANSWER_SECONDS, answering
from detent.transports.held import HeldDeliveries
from detent.transports.nats_connection import CONFLICT, EXPIRED, NO_RESPONDERS, NatsConnection
from detent.transports.nats_stream import NatsStream
from detent.transports.transport import BANDS, TakenOffer, TransportAwayError

# A pull request that waits for the first offer ends after so long, and is then made again.
ASK_SECONDS = 2.0
GRACE_SECONDS = 0.3
LONGEST_SLEEP = 1.0


class _Channel:
    """A consumer as this process knows it."""

    def __init__(self, queue: int, subject: str, consumer: str) -> None:
        self.queue, self.subject, self.consumer = queue, subject, consumer
        self.fetches: deque[_Fetch] = deque()
        """The server answers them in order."""
        self.reset()

    def reset(self) -> None:
        self.created = False
        self.may_have_more = True
        """It had more when it was last asked, or has not been asked."""
        self.ask = ""
        self.asked_until = 0.0
        """The pull request that waits for one message, at most until this time."""
        while self.fetches:
            self.fetches.popleft().over.set()


class _Taking:
    """A call of `take` under way."""

    def __init__(self, queues: Collection[int], limit: int) -> None:
        self.queues = frozenset(queues)
        self.room = limit
        self.taken: list[TakenOffer] = []
        self.something = asyncio.Event()

    def add(self, taken: TakenOffer) -> None:
        self.taken.append(taken)
        self.room -= 1
        self.something.set()


class _Fetch:
    """A request for messages that are there, of a call that may be over before they arrive."""

    def __init__(self, number: str, taking: _Taking) -> None:
        self.number = number
        self.taking = taking
        self.missing = taking.room
        self.over = asyncio.Event()


class NatsPulls:
    """The calls of `take` of this process share its pull requests."""

    def __init__(
        self, peer: str, stream: NatsStream, connected: Callable[[], Awaitable[NatsConnection]], held: HeldDeliveries
    ) -> None:
        self._peer = peer
        self._stream = stream
        self._connected = connected
        self._held = held
        self._channels: dict[str, _Channel] = {}
        self._takings: list[_Taking] = []
        self._pulls: dict[str, tuple[_Channel, _Fetch | None]] = {}

    async def take(self, queues: Collection[int], limit: int, wait_seconds: float) -> list[TakenOffer]:
        clock = asyncio.get_running_loop().time
        deadline = clock() + wait_seconds
        taking = _Taking(queues, limit)
        channels = self._by_band(queues)
        self._takings.append(taking)
        try:
            while True:
                connection = await self._connected()
                taking.something.clear()
                await self._fill(connection, taking, channels, asks=wait_seconds > 0)
                left = deadline - clock()
                if taking.taken or left <= 0:
                    return taking.taken
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, LONGEST_SLEEP)):
                        await taking.something.wait()
        except BaseException:  # nobody gets what it has
            with suppress(TransportAwayError):
                for receipt in self._held.release(taking.taken):
                    await connection.tell(receipt, b"-NAK")
            raise
        finally:
            self._takings.remove(taking)

    def _by_band(self, queues: Collection[int]) -> list[_Channel]:
        channels = []
        for band in BANDS:
            for queue in queues:
                subject = self._stream.subject(queue, band)
                if subject not in self._channels:
                    self._channels[subject] = _Channel(queue, subject, f"q{queue}-{band}")
                channels.append(self._channels[subject])
        return channels

    async def _fill(
        self, connection: NatsConnection, taking: _Taking, channels: Iterable[_Channel], *, asks: bool
    ) -> None:
        """Fetch what is there, the highest band first, and ask to be woken where nothing is known to be. A lower band
        is not asked while higher ones fill the worker."""
        now = asyncio.get_running_loop().time()
        for channel in channels:
            if taking.room <= 0:
                return
            if not channel.created:
                await self._stream.create_consumer(connection, channel.consumer, channel.subject)
                channel.created = True
            if channel.may_have_more or not asks:
                await self._fetch(connection, taking, channel)
            if asks and channel.asked_until <= now and not channel.may_have_more:
                if self._pulls.pop(channel.ask, None) is not None:
                    await connection.check()  # the server reports the end of a request, unless it hangs
                channel.asked_until = now + ASK_SECONDS + GRACE_SECONDS
                channel.ask = connection.next_number()
                self._pulls[channel.ask] = channel, None
                await connection.ask(channel.ask, self._stream.name, channel.consumer, ASK_SECONDS)

    async def _fetch(self, connection: NatsConnection, taking: _Taking, channel: _Channel) -> None:
        """Until the worker has enough, or the server says that there is no more."""
        fetch = _Fetch(connection.next_number(), taking)
        channel.fetches.append(fetch)
        self._pulls[fetch.number] = channel, fetch
        try:
            await connection.fetch(fetch.number, self._stream.name, channel.consumer, fetch.missing)
            async with answering(self._peer, ANSWER_SECONDS):
                await fetch.over.wait()
        except TransportAwayError:
            await connection.close()
            raise

    # --- what arrives ---

    async def asked_for(self, connection: NatsConnection, message: Msg) -> None:
        channel = self._channels.get(message.subject)
        if channel is None:
            return
        self._pulls.pop(channel.ask, None)
        channel.asked_until = 0.0
        channel.may_have_more = True
        wanting = [taking for taking in self._takings if channel.queue in taking.queues and taking.room > 0]
        await self._hand_over(connection, channel, message, wanting[0] if wanting else None)
        for taking in wanting:  # those that did not get this one may find more
            taking.something.set()

    async def fetched(self, connection: NatsConnection, message: Msg) -> None:
        channel = self._channels.get(message.subject)
        if channel is None or not channel.fetches:
            return
        fetch = channel.fetches[0]
        fetch.missing -= 1
        if fetch.missing == 0:
            channel.fetches.popleft()
            self._pulls.pop(fetch.number, None)
            fetch.over.set()
        wanted = fetch.taking in self._takings and fetch.taking.room > 0
        await self._hand_over(connection, channel, message, fetch.taking if wanted else None)

    async def _hand_over(
        self, connection: NatsConnection, channel: _Channel, message: Msg, taking: _Taking | None
    ) -> None:
        offer = decode_offer(message.data)
        with suppress(TransportAwayError):
            if offer is None or offer.queue != channel.queue:
                await connection.tell(message.reply, b"+ACK")
                if taking is not None:
                    taking.something.set()
            elif taking is None:
                await connection.tell(message.reply, b"-NAK")
            else:
                self._held.hold(message.reply)
                taking.add(TakenOffer(offer, message.reply))

    def pull_ended(self, number: str, status: str) -> None:
        channel, fetch = self._pulls.pop(number, (None, None))
        if channel is None:
            return
        if status in (NO_RESPONDERS, CONFLICT):  # the consumer was deleted, or its leader has changed
            channel.created = False
        if fetch is None:
            channel.asked_until = 0.0
            if status == EXPIRED:
                self._wake()
            return
        channel.may_have_more = False
        if fetch in channel.fetches:
            channel.fetches.remove(fetch)
        fetch.over.set()

    def connection_lost(self) -> None:
        """Pull requests are gone, and streams in memory may be."""
        self._pulls.clear()
        for channel in self._channels.values():
            channel.reset()
        self._wake()

    def _wake(self) -> None:
        for taking in self._takings:
            taking.something.set()
