"""The leader of a partition judges its jobs' expectations; any scheduler sends the messages that come of it.

All that must not be lost or done twice stands in the database: what was judged, the incident, and the message, which
are written by one statement. A message is sent by whoever takes it first. When its sender dies before it has said so,
it is sent once more, under the same id.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from detent.clock import monotonic
from detent.coordination.membership import Membership
from detent.log import logger
from detent.metrics import Metrics
from detent.model import NoticeFormat
from detent.service import Loop
from detent.store import Store
from detent.store.expectations import Judgement, Notice
from detent.targets.messenger import Messenger
from detent.transitions import tell_some
from detent.watching.messages import body_of, signed

log = logger("watch")

LOOK_EVERY = 5.0
# How often to look for messages whose sender died.
SWEEP_EVERY = 30.0
JUDGED_AT_ONCE = 500
SENT_AT_ONCE = 20
TAKEN_FOR = timedelta(seconds=60)
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 900.0
GIVEN_UP_AFTER = timedelta(hours=24)


class Address:
    """Where messages go when a job does not say, and what they are signed with."""

    def __init__(self, url: str | None, form: NoticeFormat, secrets: Sequence[bytes]) -> None:
        self.url = url
        self.form = form
        self.secrets = secrets

    def of(self, notice: Notice) -> tuple[str | None, NoticeFormat, Sequence[bytes]]:
        """What is sent to the address of a job of another tenant has no signature: that secret is not theirs."""
        if notice.url is None:
            return self.url, self.form, self.secrets
        return notice.url, notice.format, self.secrets if notice.ours else ()


class Watch:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        led: Callable[[], Collection[int]],
        messenger: Messenger,
        address: Address,
        metrics: Metrics,
    ) -> None:
        """`led`: the partitions that this node leads now."""
        self._store = store
        self._membership = membership
        self._led = led
        self._messenger = messenger
        self._address = address
        self._metrics = metrics
        self._send_next = 0.0
        self.loop = Loop("watch", self.tick)

    async def tick(self) -> float:
        if self._membership.trusted:
            await self._judge()
            if monotonic() >= self._send_next:
                self._send_next = monotonic() + SWEEP_EVERY
                await self._send()
        return min(LOOK_EVERY, max(self._send_next - monotonic(), 0.0)) * random.uniform(0.8, 1.0)

    async def _judge(self) -> None:
        more = True
        while more and (partitions := sorted(self._led())):
            found, more = await self._store.expectations.judge(self._membership.node, partitions, JUDGED_AT_ONCE)
            self._tell(found)
            if any(judgement.opens or judgement.closes for judgement in found):
                self._send_next = 0.0

    def _tell(self, found: Sequence[Judgement]) -> None:
        for judgement in found:
            self._metrics.expectations_missed[judgement.kind] += judgement.missed
        missed = [_facts(judgement) for judgement in found if judgement.missed]
        tell_some("warning", "a job is not as expected", missed, log)
        tell_some("warning", "incident opened", [_facts(judgement) for judgement in found if judgement.opens], log)
        tell_some("info", "incident closed", [_facts(judgement) for judgement in found if judgement.closes], log)

    async def _send(self) -> None:
        while notices := await self._store.expectations.take(SENT_AT_ONCE, TAKEN_FOR):
            await asyncio.gather(*(self._send_one(notice) for notice in notices))

    async def _send_one(self, notice: Notice) -> None:
        url, form, secrets = self._address.of(notice)
        if url is None:
            await self._store.expectations.give_up(notice, "There is no address to send it to: set notify_url.")
            return
        body = body_of(notice, form)
        headers = signed(f"notice_{notice.notice}", notice.at, body, secrets)
        delivery = await self._messenger.send(url, body, headers)
        if delivery.arrived:
            self._metrics.notices["sent"] += 1
            await self._store.expectations.sent(notice)
        elif not delivery.retryable or notice.age > GIVEN_UP_AFTER:
            self._metrics.notices["given_up"] += 1
            log.error("a message is given up", incident=notice.incident, error=delivery.error)
            await self._store.expectations.give_up(notice, delivery.error)
        else:
            self._metrics.notices["failed"] += 1
            pause = min(FIRST_PAUSE * 2.0 ** (notice.tries - 1), LONGEST_PAUSE) * random.uniform(0.5, 1)
            log.warning("a message was not sent", incident=notice.incident, error=delivery.error, again_in=round(pause))
            await self._store.expectations.put_off(notice, timedelta(seconds=pause), delivery.error)
            self._send_next = min(self._send_next, monotonic() + pause)


def _facts(judgement: Judgement) -> dict[str, object]:
    return {
        "job": judgement.job,
        "job_id": str(judgement.job_id),
        "expectation": judgement.kind,
        "tick": judgement.tick.isoformat(),
        "ticks": judgement.missed,
        "in_a_row": judgement.streak,
    }
