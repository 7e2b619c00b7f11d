"""Offers in NATS JetStream: a work-queue stream per cluster, a durable pull consumer per queue and band of priorities.

    stream      detent-<cluster>                       in memory, offers are dropped after two minutes
    subjects    detent.<cluster>.<queue>.<band>        high (above 5), normal (5), low (below 5)
    consumers   q<queue>-<band>                        acknowledgement wait: HOLD_SECONDS

A worker has at most one pull request for one message at each consumer, to be woken by the first offer; the rest of what
it can take it fetches without waiting, the highest band first. An offer that arrives when no one wants it goes back to
the consumer at once. The stream is created again if it is gone, as after a restart of the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from detent.domain.offer import Offer
from detent.transports.held import HeldDeliveries
from detent.transports.nats_connection import NatsAddress, NatsConnection, NatsMessage
from detent.transports.nats_pulls import NatsPulls
from detent.transports.nats_stream import NatsStream
from detent.transports.transport import HOLD_SECONDS, ChannelDepth, TakenOffer, TransportAwayError

AT_ONCE = 500


def open_transport(address: str, cluster: str, *, hold_seconds: float = HOLD_SECONDS) -> NatsTransport:
    return NatsTransport(address, cluster, hold_seconds)


class NatsTransport:
    name = "nats"
    delays = False

    def __init__(self, address: str, cluster: str, hold_seconds: float) -> None:
        self._address = NatsAddress.parse(address)
        self._stream = NatsStream(cluster, hold_seconds)
        self._held = HeldDeliveries(hold_seconds)
        self._pulls = NatsPulls(self._address.peer, self._stream, self._connected, self._held)
        self._connection: NatsConnection | None = None
        self._connecting = asyncio.Lock()

    async def open(self) -> None:
        await self._stream.create(await self._connected())

    async def send(self, offers: Sequence[Offer]) -> None:
        for first in range(0, len(offers), AT_ONCE):
            await self._stream.send(await self._connected(), offers[first : first + AT_ONCE])

    async def take(self, queues: Collection[int], limit: int, now: datetime, wait_seconds: float) -> list[TakenOffer]:
        """Whatever the stream has: offers are sent when they are due."""
        if not queues or limit < 1:
            return []
        return await self._pulls.take(queues, limit, wait_seconds)

    async def finish(self, taken: Sequence[TakenOffer]) -> None:
        await self._acknowledge(self._held.release(taken), b"+ACK")

    async def give_back(self, taken: Sequence[TakenOffer]) -> None:
        await self._acknowledge(self._held.release(taken), b"-NAK")

    async def extend(self, taken: Sequence[TakenOffer]) -> None:
        await self._acknowledge([each.receipt for each in taken], b"+WPI")
        self._held.extend(taken)

    async def depth(self, queues: Collection[int]) -> Mapping[int, ChannelDepth]:
        if not queues:
            return {}
        return await self._stream.depth(await self._connected(), queues)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        held = self._held.release_all()
        if connection is None:
            return
        try:
            with suppress(TransportAwayError):
                if connection.is_open and held:
                    await connection.ask_all([NatsMessage(receipt, b"-NAK") for receipt in held])
        finally:
            await connection.close()
            self._pulls.connection_lost()

    async def _acknowledge(self, receipts: Sequence[str], how: bytes) -> None:
        """The server confirms each. Where no consumer does, there is nothing that could return."""
        for first in range(0, len(receipts), AT_ONCE):
            connection = await self._connected()
            await connection.ask_all([NatsMessage(receipt, how) for receipt in receipts[first : first + AT_ONCE]])

    async def _connected(self) -> NatsConnection:
        async with self._connecting:
            if self._connection is not None and self._connection.is_open:
                return self._connection
            self._pulls.connection_lost()
            connection = NatsConnection(self._address, self._pulls, self._lost)
            await connection.open()
            self._connection = connection
            return connection

    def _lost(self, connection: NatsConnection) -> None:
        if self._connection is connection:
            self._connection = None
            self._pulls.connection_lost()
