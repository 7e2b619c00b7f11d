"""Offers in SQS: a standard queue for each channel, `detent-<cluster>-<queue>`.

SQS hides a received message for the time of the hold, which `extend` prolongs, and shows it again afterwards. A request
carries up to ten messages. A long poll cannot be given up without losing what it brings for the time of the hold: it
outlives the `take` it was made for, and what it brings serves the next one or returns (`arrivals.py`).

The delay of SQS is not used: it has whole seconds, and counts from a clock that is not that of the database.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from detent.domain.offer import Offer, decode_offer, encode_offer
from detent.runtime.clock import monotonic
from detent.transports.arrivals import Arrivals
from detent.transports.sqs_api import QueueMissingError, SqsApi
from detent.transports.transport import HOLD_SECONDS, ChannelDepth, TakenOffer, TransportAwayError

MAX_ENTRIES = 10
# SQS has polls of up to 20 s. A connection that has died is noticed at the end of a poll only.
MAX_POLL_SECONDS = 5
# A shorter wait is one question, which SQS answers at once.
MIN_POLL_SECONDS = 0.2
MAX_REQUESTS_AT_ONCE = 5
WATCH_SECONDS = 0.1
CLOSE_SECONDS = 3.0
# A run that still waits is offered again every 30 s: without an end, a queue that no worker serves would only grow.
KEPT_SECONDS = 300
ATTEMPTS = 3

_COUNTS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed", "ApproximateNumberOfMessagesNotVisible")

_Entry = dict[str, Any]
_Item = TypeVar("_Item")


def open_transport(address: str, cluster: str, *, hold_seconds: float = HOLD_SECONDS) -> SqsTransport:
    return SqsTransport(address, cluster, hold_seconds)


class _Receipt(NamedTuple):
    queue: int
    handle: str


class SqsTransport:
    name = "sqs"
    delays = False

    def __init__(self, address: str, cluster: str, hold_seconds: float) -> None:
        self._api = SqsApi(address)
        self._prefix = f"detent-{cluster}-"
        self._hold = max(1, round(hold_seconds))
        self._urls: dict[int, str] = {}
        self._creating = asyncio.Lock()
        self._arrivals = Arrivals()
        self._polls: dict[int, asyncio.Task[None]] = {}
        self._failures = 0
        self._failure: TransportAwayError | None = None
        self._held: dict[_Receipt, float] = {}
        self._watch: asyncio.TimerHandle | None = None
        self._returning: set[asyncio.Task[None]] = set()

    # --- the scheduler's side ---

    async def open(self) -> None:
        """Any answer shows that SQS can be used."""
        await self._api.call("ListQueues", {"QueueNamePrefix": self._prefix, "MaxResults": 1})

    async def send(self, offers: Sequence[Offer]) -> None:
        by_queue: dict[int, list[Offer]] = {}
        for offer in offers:
            by_queue.setdefault(offer.queue, []).append(offer)
        await _at_once(
            [partial(self._send, queue, batch) for queue, some in by_queue.items() for batch in _batches(some)]
        )

    async def _send(self, queue: int, offers: Sequence[Offer]) -> None:
        entries = [
            {"Id": str(number), "MessageBody": encode_offer(offer).decode()} for number, offer in enumerate(offers)
        ]
        answer = await self._ask(queue, "SendMessageBatch", {"Entries": entries})
        for failed in answer.get("Failed") or ():
            words = failed.get("Message") or failed.get("Code")
            raise TransportAwayError(f"{self._api.peer} refused an offer: {words}.")

    async def depth(self, queues: Collection[int]) -> Mapping[int, ChannelDepth]:
        """The counts are approximate; the age of the oldest message is a figure of CloudWatch only."""
        answers = await asyncio.gather(
            *(self._ask(queue, "GetQueueAttributes", {"AttributeNames": list(_COUNTS)}) for queue in queues)
        )
        return {
            queue: ChannelDepth(sum(int(count) for count in (answer.get("Attributes") or {}).values()))
            for queue, answer in zip(queues, answers, strict=True)
        }

    # --- the worker's side ---

    async def take(self, queues: Collection[int], limit: int, now: datetime, wait_seconds: float) -> list[TakenOffer]:
        """What is sent is due: `now` is not needed."""
        if not queues or limit < 1:
            return []
        until, failures = monotonic() + wait_seconds, self._failures
        with self._arrivals.asking(queues):
            asked = False
            while True:
                found = self._arrivals.pop(queues, limit)
                left = until - monotonic()
                if found or (asked and left <= 0):
                    self._hold_on(found)
                    return found
                if self._failures != failures and self._failure is not None:
                    raise self._failure
                await self._wait(queues, limit, left)
                asked = True

    async def _wait(self, queues: Collection[int], limit: int, left: float) -> None:
        for queue in queues:
            if queue not in self._polls:
                self._begin_poll(queue, limit, left)
        if left < MIN_POLL_SECONDS:
            await asyncio.wait([self._polls[queue] for queue in queues], timeout=max(left, MIN_POLL_SECONDS))
        else:
            await self._arrivals.wait(left)

    async def finish(self, taken: Sequence[TakenOffer]) -> None:
        self._forget(taken)
        await self._settle("DeleteMessageBatch", taken, {})

    async def give_back(self, taken: Sequence[TakenOffer]) -> None:
        self._forget(taken)
        await self._settle("ChangeMessageVisibilityBatch", taken, {"VisibilityTimeout": 0})

    async def extend(self, taken: Sequence[TakenOffer]) -> None:
        await self._settle("ChangeMessageVisibilityBatch", taken, {"VisibilityTimeout": self._hold})
        self._hold_on([each for each in taken if each.receipt in self._held])

    async def close(self) -> None:
        """What SQS has given to a poll that is given up here returns at the end of the hold."""
        if self._watch is not None:
            self._watch.cancel()
        polls = [*self._polls.values(), *self._returning]
        for task in polls:
            task.cancel()
        await asyncio.gather(*polls, return_exceptions=True)
        waiting = self._arrivals.pop_all()
        now = monotonic()
        held = [
            *(each.receipt for each in waiting),
            *(receipt for receipt, until in self._held.items() if until > now),
        ]
        self._held.clear()
        with suppress(TransportAwayError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._change("ChangeMessageVisibilityBatch", held, {"VisibilityTimeout": 0})
        await self._api.close()

    async def _settle(self, action: str, taken: Sequence[TakenOffer], fields: Mapping[str, int]) -> None:
        await self._change(action, [each.receipt for each in taken], fields)

    async def _change(self, action: str, receipts: Sequence[_Receipt], fields: Mapping[str, int]) -> None:
        """A receipt that SQS does not know any more is of an offer that has returned: nothing is to be done."""
        by_queue: dict[int, list[str]] = {}
        for receipt in receipts:
            by_queue.setdefault(receipt.queue, []).append(receipt.handle)

        async def change(queue: int, handles: Sequence[str]) -> None:
            entries = [{"Id": str(number), "ReceiptHandle": handle, **fields} for number, handle in enumerate(handles)]
            with suppress(QueueMissingError):
                await self._api.call(action, {"QueueUrl": await self._url(queue), "Entries": entries})

        await _at_once(
            [partial(change, queue, batch) for queue, handles in by_queue.items() for batch in _batches(handles)]
        )

    def _hold_on(self, taken: Sequence[TakenOffer]) -> None:
        now = monotonic()
        self._held.update(dict.fromkeys((each.receipt for each in taken), now + self._hold))
        for receipt in [receipt for receipt, until in self._held.items() if until <= now]:
            del self._held[receipt]

    def _forget(self, taken: Sequence[TakenOffer]) -> None:
        for each in taken:
            self._held.pop(each.receipt, None)

    # --- polls ---

    def _begin_poll(self, queue: int, limit: int, left: float) -> None:
        seconds = 0 if left < MIN_POLL_SECONDS else min(MAX_POLL_SECONDS, math.ceil(left))
        task = asyncio.create_task(self._poll(queue, limit, seconds))
        self._polls[queue] = task
        task.add_done_callback(lambda ended: self._poll_ended(queue, ended))

    async def _poll(self, queue: int, limit: int, seconds: int) -> None:
        """Where ten were there at once, there may be more: they are asked for concurrently."""
        found = await self._receive(queue, min(limit, MAX_ENTRIES), seconds)
        more = min(math.ceil(limit / MAX_ENTRIES), MAX_REQUESTS_AT_ONCE) - 1
        if len(found) == MAX_ENTRIES and more and self._arrivals.is_awaited(queue):
            self._keep(queue, found)
            parts = await asyncio.gather(*(self._receive(queue, MAX_ENTRIES, 0) for _ in range(more)))
            found = [message for part in parts for message in part]
        self._keep(queue, found)

    async def _receive(self, queue: int, limit: int, seconds: int) -> list[dict[str, Any]]:
        fields = {"MaxNumberOfMessages": limit, "WaitTimeSeconds": seconds, "VisibilityTimeout": self._hold}
        answer = await self._ask(queue, "ReceiveMessage", fields, seconds)
        return answer.get("Messages") or []

    def _keep(self, queue: int, messages: Sequence[Mapping[str, Any]]) -> None:
        arrived, unknown = [], []
        for message in messages:
            offer = decode_offer(message["Body"].encode())
            receipt = _Receipt(queue, message["ReceiptHandle"])
            if offer is None or offer.queue != queue:
                unknown.append(receipt)
            else:
                arrived.append((offer, receipt))
        if arrived:
            self._arrivals.add(arrived)
            self._plan_watch()
        if unknown:
            self._in_background(self._change("DeleteMessageBatch", unknown, {}))

    def _poll_ended(self, queue: int, task: asyncio.Task[None]) -> None:
        self._polls.pop(queue, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            away = error if isinstance(error, TransportAwayError) else TransportAwayError(f"{self._api.peer}: {error}")
            self._failure = away
            self._failures += 1
        self._arrivals.wake()

    def _plan_watch(self) -> None:
        if self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._look)

    def _look(self) -> None:
        self._watch = None
        unasked = self._arrivals.unasked()
        if unasked:
            self._in_background(self.give_back(unasked))
        if len(self._arrivals):
            self._plan_watch()

    def _in_background(self, step: Awaitable[None]) -> None:
        """What fails here returns at the end of the hold."""

        async def run() -> None:
            with suppress(TransportAwayError):
                await step

        task = asyncio.create_task(run())
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    # --- queues ---

    async def _ask(self, queue: int, action: str, fields: Mapping[str, Any], seconds: float = 0) -> Any:
        """A question about a queue, which is created if it does not exist."""
        for attempt in range(ATTEMPTS):
            url = await self._url(queue)
            try:
                return await self._api.call(action, {"QueueUrl": url, **fields}, seconds)
            except QueueMissingError as error:
                self._urls.pop(queue, None)
                if attempt == ATTEMPTS - 1:
                    raise TransportAwayError(error.message) from None
        raise AssertionError

    async def _url(self, queue: int) -> str:
        found = self._urls.get(queue)
        if found is not None:
            return found
        async with self._creating:
            if queue not in self._urls:
                self._urls[queue] = await self._find_or_create(f"{self._prefix}{queue}")
            return self._urls[queue]

    async def _find_or_create(self, name: str) -> str:
        """Looked for first: a user that may not create queues can use those that others have created."""
        with suppress(QueueMissingError):
            return self._url_in(await self._api.call("GetQueueUrl", {"QueueName": name}))
        attributes = {"VisibilityTimeout": str(self._hold), "MessageRetentionPeriod": str(KEPT_SECONDS)}
        return self._url_in(await self._api.call("CreateQueue", {"QueueName": name, "Attributes": attributes}))

    def _url_in(self, answer: Mapping[str, Any]) -> str:
        if not answer.get("QueueUrl"):
            raise TransportAwayError(f"{self._api.peer} answered without the address of a queue.")
        return str(answer["QueueUrl"])


def _batches(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for first in range(0, len(items), MAX_ENTRIES):
        yield items[first : first + MAX_ENTRIES]


async def _at_once(steps: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """A few at a time. Raises the first failure, after which none is under way any more."""
    remaining = iter(steps)

    async def work() -> None:
        for step in remaining:
            await step()

    tasks = [asyncio.create_task(work()) for _ in range(min(MAX_REQUESTS_AT_ONCE, len(steps)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
