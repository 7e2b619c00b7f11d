"""Delivers a message of an alert rule: to a webhook, Slack, a mail server or PagerDuty."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

from detent.domain.alert_rule import EmailReceiver, PagerDutyReceiver, SlackReceiver, WebhookReceiver
from detent.domain.job import DEFAULT_TENANT
from detent.domain.secret_ref import SecretRef
from detent.domain.target_url import TargetError, parse_url
from detent.domain.webhooks import KEY_FORM, read_signing_key
from detent.errors import DetentError
from detent.runtime.certificates import CertificateFault, client_context
from detent.store.alerts import AlertNotice
from detent.targets.mail import Mail, MailServer
from detent.targets.messenger import Delivery, Message, Messenger
from detent.upkeep import alert_messages
from detent.upkeep.messages import headers_of
from detent.worker.secret_providers import SecretFault
from detent.worker.secrets import SecretValues


class AlertReceivers:
    def __init__(self, messenger: Messenger, secrets: SecretValues, operator_keys: Sequence[bytes]) -> None:
        """`operator_keys` sign the webhooks of the default tenant that name no key of their own (`notify_secret`)."""
        self._messenger = messenger
        self._secrets = secrets
        self._operator_keys = operator_keys

    async def deliver(self, notice: AlertNotice) -> Delivery:
        if notice.fields is None:
            return Delivery(False, "The rule was written by a newer version: upgrade all nodes.")
        try:
            match notice.fields.receiver:
                case WebhookReceiver() as receiver:
                    return await self._post_webhook(notice, receiver)
                case SlackReceiver() as receiver:
                    body = alert_messages.slack_body(notice)
                    return await self._post(notice, await self._url(notice, receiver.url), body)
                case PagerDutyReceiver() as receiver:
                    return await self._post_to_pagerduty(notice, receiver)
                case EmailReceiver() as receiver:
                    return await self._mail(notice, receiver)
        except (SecretFault, CertificateFault, DetentError) as error:
            return Delivery(False, str(error))

    async def _post_webhook(self, notice: AlertNotice, receiver: WebhookReceiver) -> Delivery:
        keys = self._operator_keys if notice.tenant_number == DEFAULT_TENANT else ()
        if receiver.signing is not None:
            keys = await self._signing_keys(notice, receiver.signing)
        body = alert_messages.webhook_body(notice)
        return await self._post(notice, await self._url(notice, receiver.url), body, keys)

    async def _post_to_pagerduty(self, notice: AlertNotice, receiver: PagerDutyReceiver) -> Delivery:
        key = await self._text(notice, receiver.routing_key)
        delivery = Delivery(True)
        for body in alert_messages.pagerduty_bodies(notice, key):
            delivery = await self._post(notice, receiver.url, body)
            if not delivery.arrived:
                break
        return delivery

    async def _post(self, notice: AlertNotice, url: str, body: bytes, keys: Sequence[bytes] = ()) -> Delivery:
        headers = headers_of(alert_messages.message_id(notice), notice.at, body, keys)
        return await self._messenger.send(Message("notice", body, headers), url, tenant=notice.tenant_number)

    async def _mail(self, notice: AlertNotice, receiver: EmailReceiver) -> Delivery:
        password = None if receiver.password is None else await self._text(notice, receiver.password)
        ca = None if receiver.ca is None else await self._text(notice, receiver.ca)
        context = None if receiver.tls == "none" else await asyncio.to_thread(_context, ca)
        server = MailServer(receiver.host, receiver.server_port, receiver.tls, context, receiver.username, password)
        content = alert_messages.mail_content(notice, receiver.sender, receiver.to)
        return await self._messenger.send_mail(
            Mail(receiver.sender, receiver.to, content), server, tenant=notice.tenant_number
        )

    async def _url(self, notice: AlertNotice, value: str | SecretRef) -> str:
        """A secret that is no URL may be a key: no part of it is shown, not even what would be its scheme or host."""
        url = await self._text(notice, value)
        if isinstance(value, SecretRef):
            try:
                parse_url(url)
            except TargetError:
                raise SecretFault(value.secret, "it is no URL that can be called; set one with https://") from None
        return url

    async def _text(self, notice: AlertNotice, value: str | SecretRef) -> str:
        if isinstance(value, str):
            return value
        return (await self._secrets.values_of(notice.tenant_number, value.secret))[0].strip()

    async def _signing_keys(self, notice: AlertNotice, reference: SecretRef) -> list[bytes]:
        values = await self._secrets.values_of(notice.tenant_number, reference.secret)
        keys = [key for key in map(read_signing_key, values) if key is not None]
        if not keys:
            raise SecretFault(reference.secret, f"it cannot sign, which needs {KEY_FORM}")
        return keys


def _context(ca: str | None) -> ssl.SSLContext:
    context = client_context(None, None if ca is None else ca.encode())
    context.set_alpn_protocols([])  # a mail server may refuse one that offers HTTP
    return context
