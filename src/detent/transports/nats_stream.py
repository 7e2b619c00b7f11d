"""The stream of a cluster in NATS JetStream: its name and settings, its subjects and consumers, what it holds."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from typing import Any

import msgspec

from detent.domain.offer import Offer, RunOffer, encode_offer
from detent.transports.nats_connection import (
    NO_RESPONDERS,
    NatsConnection,
    NatsMessage,
    NatsRefusedError,
    status_of,
)
from detent.transports.transport import BANDS, ChannelDepth, TransportAwayError, band_of

KEPT_SECONDS = 120
"""An offer that no worker has taken is dropped after so long; a run that still waits was offered again."""
MAX_OFFERS = 20_000
"""Of one queue and band. Beyond this, the server drops the first: those that still wait are offered again."""
UNUSED_SECONDS = 86_400
"""A consumer that no worker has used for so long is deleted by the server."""
DUPLICATE_SECONDS = 1
"""Two nodes may offer the same run at the same time. What is offered again later is meant."""
REPLICAS = 3
"""In a cluster of NATS servers, the stream outlives the loss of one."""
MAX_WAITING = 8192
"""Each worker has one or two pull requests at a consumer."""

DESCRIPTION = "Offers of detent: which runs wait for a worker. The truth is in PostgreSQL."

_NOT_FOUND = 10059
_NAME_IN_USE = 10058
# A single server; a cluster with fewer servers, or without memory on them.
_TOO_MANY_REPLICAS = (10074, 10005, 10023)


class NatsStream:
    def __init__(self, cluster: str, hold_seconds: float) -> None:
        name = re.sub(r"[^\w-]", "_", cluster)
        self.name, self._prefix = f"detent-{name}", f"detent.{name}"
        self._hold = hold_seconds

    def subject(self, queue: int, band: str) -> str:
        return f"{self._prefix}.{queue}.{band}"

    async def send(self, connection: NatsConnection, offers: Sequence[Offer]) -> None:
        missed = await self._publish(connection, [self._message(offer) for offer in offers])
        if missed:  # the stream was deleted
            await self.create(connection)
            missed = await self._publish(connection, missed)
        if missed:
            raise TransportAwayError(
                f"The stream {self.name!r} takes nothing for {missed[0].subject!r}: it has no leader at present, or"
                " other subjects."
            )

    async def create(self, connection: NatsConnection) -> None:
        """One that an operator has created, perhaps with replicas or on disk, stays as it is."""
        try:
            found = await connection.request(f"STREAM.INFO.{self.name}", {})
        except NatsRefusedError as error:
            if error.code != _NOT_FOUND:
                raise
        else:
            await self._limit(connection, found["config"])
            return
        for replicas in (REPLICAS, 1):
            settings = _stream_settings(self.name, self._prefix, replicas)
            try:
                await connection.request(f"STREAM.CREATE.{self.name}", settings)
            except NatsRefusedError as error:
                if error.code == _NAME_IN_USE:  # a node with other settings has created it meanwhile
                    return
                if error.code not in _TOO_MANY_REPLICAS or replicas == 1:
                    raise
            else:
                return

    async def _limit(self, connection: NatsConnection, settings: dict[str, Any]) -> None:
        """A stream that detent has created, perhaps in another version, gets the limits of this one."""
        limits = _stream_limits()
        if settings.get("description") == DESCRIPTION and any(settings.get(key) != limits[key] for key in limits):
            with suppress(NatsRefusedError):  # it can be used as it is
                await connection.request(f"STREAM.UPDATE.{self.name}", {**settings, **limits})

    async def create_consumer(self, connection: NatsConnection, consumer: str, subject: str) -> None:
        """One that is there gets these settings."""
        request = f"CONSUMER.DURABLE.CREATE.{self.name}.{consumer}"
        body = {"stream_name": self.name, "config": _consumer_settings(consumer, subject, self._hold)}
        try:
            await connection.request(request, body)
        except NatsRefusedError as error:
            if error.code != _NOT_FOUND:
                raise
            await self.create(connection)
            await connection.request(request, body)

    async def depth(self, connection: NatsConnection, queues: Collection[int]) -> Mapping[int, ChannelDepth]:
        counts, present = await self._counts(connection)
        depths = {}
        for queue in queues:
            subjects = [self.subject(queue, band) for band in BANDS]
            waiting = [subject for subject in subjects if counts.get(subject)]
            ages = [await self._age(connection, subject, present) for subject in waiting]
            oldest = max((age for age in ages if age is not None), default=None)
            depths[queue] = ChannelDepth(sum(counts[subject] for subject in waiting), oldest)
        return depths

    def _message(self, offer: Offer) -> NatsMessage:
        body = encode_offer(offer)
        headers = None
        if isinstance(offer, RunOffer):  # runs that wait in a queue may be others each time
            headers = {"Nats-Msg-Id": blake2b(body, digest_size=12).hexdigest()}
        return NatsMessage(self.subject(offer.queue, band_of(offer.priority)), body, headers)

    async def _publish(self, connection: NatsConnection, messages: Sequence[NatsMessage]) -> list[NatsMessage]:
        """Those that no stream takes."""
        replies = await connection.ask_all(messages)
        missed = []
        for message, reply in zip(messages, replies, strict=True):
            if status_of(reply) == NO_RESPONDERS:
                missed.append(message)
            elif b'"error"' in reply.data:
                connection.answer_of(reply)
        return missed

    async def _counts(self, connection: NatsConnection) -> tuple[dict[str, int], str]:
        """How many offers each subject has, taken ones included, and the time of the server."""
        try:
            info = await connection.request(f"STREAM.INFO.{self.name}", {"subjects_filter": f"{self._prefix}.>"})
        except NatsRefusedError as error:
            if error.code != _NOT_FOUND:
                raise
            return {}, ""
        return info["state"].get("subjects") or {}, info.get("ts", "")

    async def _age(self, connection: NatsConnection, subject: str, present: str) -> float | None:
        try:
            found = await connection.request(f"STREAM.MSG.GET.{self.name}", {"seq": 1, "next_by_subj": subject})
            sent, now = msgspec.convert([found["message"]["time"], present], tuple[datetime, datetime])
        except (NatsRefusedError, msgspec.ValidationError):  # taken meanwhile; an old server that tells no time
            return None
        return max((now - sent).total_seconds(), 0.0)


def _stream_settings(name: str, prefix: str, replicas: int) -> dict[str, Any]:
    return {
        "name": name,
        "subjects": [f"{prefix}.*.*"],
        "retention": "workqueue",
        "storage": "memory",
        "duplicate_window": _nanoseconds(DUPLICATE_SECONDS),
        "num_replicas": replicas,
        "description": DESCRIPTION,
        **_stream_limits(),
    }


def _stream_limits() -> dict[str, Any]:
    return {"max_age": _nanoseconds(KEPT_SECONDS), "max_msgs_per_subject": MAX_OFFERS, "discard": "old"}


def _consumer_settings(name: str, subject: str, hold_seconds: float) -> dict[str, Any]:
    return {
        "durable_name": name,
        "filter_subject": subject,
        "ack_policy": "explicit",
        "ack_wait": _nanoseconds(hold_seconds),
        "max_ack_pending": -1,
        "max_deliver": -1,
        "max_waiting": MAX_WAITING,
        "inactive_threshold": _nanoseconds(UNUSED_SECONDS),
    }


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1_000_000_000)
