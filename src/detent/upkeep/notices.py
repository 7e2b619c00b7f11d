"""Sends notifications, about incidents and of alert rules: any scheduler takes the ones that wait.

When a sender dies before it has recorded the result, the notification is sent again, with the same id. Sending has its
own loop, so that a slow receiver does not delay the checks of deadlines.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from datetime import timedelta

from detent.cluster.membership import Membership
from detent.domain.job import NoticeFormat
from detent.runtime.clock import monotonic
from detent.runtime.service import Loop
from detent.settings.settings import Settings
from detent.store import Store
from detent.store.alerts import AlertNotice
from detent.store.expectations import Notice, WaitingMessage
from detent.targets.messenger import Delivery, Message, Messenger
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics
from detent.upkeep.alert_receivers import AlertReceivers
from detent.upkeep.messages import body_of, headers_of, id_of, read_secrets
from detent.worker.secrets import SecretValues

log = logger("notices")

# How often to search for notifications whose sender died.
SWEEP_EVERY = 30.0
SENT_AT_ONCE = 20
TAKEN_FOR = timedelta(seconds=60)
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 900.0
GIVEN_UP_AFTER = timedelta(hours=24)


class Address:
    """The default receiver of notifications, and the secrets that sign them."""

    def __init__(self, url: str | None, form: NoticeFormat, secrets: Sequence[bytes]) -> None:
        self.url = url
        self.form = form
        self.secrets = secrets

    def of(self, notice: Notice) -> tuple[str | None, NoticeFormat, Sequence[bytes]]:
        """URL, format and secrets for a notice. The URL of another tenant's job gets no signature: the secret is not
        theirs."""
        if notice.url is None:
            return self.url, self.form, self.secrets
        return notice.url, notice.format, self.secrets if notice.ours else ()


def address_of(settings: Settings) -> Address:
    secrets = read_secrets(settings.notify_secret) if settings.notify_secret else []
    return Address(settings.notify_url, "slack" if settings.notify_format == "slack" else "webhook", secrets)


class NoticeSender:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        messenger: Messenger,
        address: Address,
        secrets: SecretValues,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._receivers = AlertReceivers(messenger, secrets, address.secrets)
        self._membership = membership
        self._messenger = messenger
        self._address = address
        self._metrics = metrics
        self._next = 0.0
        self.loop = Loop("notices", self.tick)

    async def tick(self) -> float:
        self._next = monotonic() + SWEEP_EVERY * random.uniform(0.8, 1.0)
        while self._membership.trusted:
            notices = await self._store.expectations.take(SENT_AT_ONCE, TAKEN_FOR)
            messages = await self._store.alerts.take(SENT_AT_ONCE, TAKEN_FOR)
            if not notices and not messages:
                break
            await self._send(notices, messages)
        return max(self._next - monotonic(), 0.0)

    async def _send(self, notices: Sequence[Notice], messages: Sequence[AlertNotice]) -> None:
        """Finish all of them, even if the result of one cannot be recorded: a request in progress cannot be undone."""
        sendings = [*map(self._send_notice, notices), *map(self._send_message, messages)]
        for end in await asyncio.gather(*sendings, return_exceptions=True):
            if end is not None:
                raise end

    async def _send_notice(self, notice: Notice) -> None:
        url, form, secrets = self._address.of(notice)
        if url is None:
            await self._end_without_receiver(notice)
            return
        body = body_of(notice, form)
        message = Message("notice", body, headers_of(id_of(notice), notice.at, body, secrets))
        # The job's own URL is the tenant's choice, the other one the operator's.
        tenant = None if notice.url is None else notice.tenant_number
        delivery = await self._messenger.send(message, url, tenant=tenant)
        await self._record(notice, delivery, notice.age, {"incident": notice.incident})

    async def _end_without_receiver(self, notice: Notice) -> None:
        if notice.by_rule:
            await self._store.expectations.sent(notice)
        else:
            await self._store.expectations.give_up(notice, "No receiver is configured: set notify_url.")

    async def _send_message(self, notice: AlertNotice) -> None:
        delivery = await self._receivers.deliver(notice)
        facts = {"rule": notice.rule, "tenant": notice.tenant, "alert": notice.alert}
        await self._record(notice, delivery, notice.age, facts)

    async def _record(
        self, notice: WaitingMessage, delivery: Delivery, age: timedelta, facts: Mapping[str, object]
    ) -> None:
        if delivery.arrived:
            self._metrics.notices["sent"] += 1
            await self._store.expectations.sent(notice)
        elif not delivery.retryable or age > GIVEN_UP_AFTER:
            self._metrics.notices["given_up"] += 1
            log.error("notification abandoned", error=delivery.error, **facts)
            await self._store.expectations.give_up(notice, delivery.error)
        else:
            self._metrics.notices["failed"] += 1
            pause = min(FIRST_PAUSE * 2.0 ** min(notice.tries - 1, 10), LONGEST_PAUSE) * random.uniform(0.5, 1)
            log.warning("notification failed", error=delivery.error, retry_in=round(pause), **facts)
            await self._store.expectations.put_off(notice, timedelta(seconds=pause), delivery.error)
            self._next = min(self._next, monotonic() + pause)
