"""Messages that are not runs: notifications and pings over HTTP, with the address and redirect rules of HTTP targets,
and mails over SMTP under the same address rules.

A URL may be a secret, like those of chat services, so errors show only its origin.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Literal, NamedTuple

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from detent.domain.job import DEFAULT_TENANT
from detent.domain.target_access import OPERATOR, TargetFault, TargetRules
from detent.domain.target_rules import CALL_HEADER
from detent.domain.target_url import TargetError, parse_url
from detent.errors import UsageError
from detent.targets.connectors import GuardedConnectors
from detent.targets.exchange import destination_of, exchange, head_of, request_of
from detent.targets.guard import AddressRefusedError
from detent.targets.http_failures import connection_failure, reason_of, refusal_of
from detent.targets.mail import Mail, MailRefused, MailServer, send_mail
from detent.targets.policies import TargetPolicies
from detent.targets.topics.dial import GuardedDial
from detent.version import __version__

ANSWER_SECONDS = 10.0
# A mail takes a dozen exchanges, and some servers delay their greeting on purpose.
MAIL_SECONDS = 40.0
CONNECTIONS = 20


class Delivery(NamedTuple):
    """Whether the message arrived; if not, why, and whether a retry may help."""

    arrived: bool
    error: str = ""
    retryable: bool = True


class Message(NamedTuple):
    kind: Literal["notice", "ping"]
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    method: str = "POST"


def check_address(setting: str, url: str) -> None:
    """Refuse a URL that is invalid under every policy."""
    try:
        parse_url(url)
    except TargetError as error:
        raise UsageError(f"{setting} is not usable: {error.message}", f"/{setting}") from error


class Messenger:
    """Sends messages to addresses set by the operator, and to addresses set in jobs, which must obey the rules of the
    job's tenant."""

    def __init__(self, policies: TargetPolicies, *, resolver: AbstractResolver | None = None) -> None:
        self._policies = policies
        self._resolver = resolver
        self._connectors = GuardedConnectors(connections=CONNECTIONS, resolver=resolver)

    async def send(self, message: Message, url: str, *, tenant: int | None = None) -> Delivery:
        """`tenant`: the tenant whose job contains the URL; None if it comes from the node's settings."""
        try:
            parsed = parse_url(url)
        except TargetError as error:
            return Delivery(False, error.message, retryable=False)
        rules = OPERATOR if tenant is None else await self._policies.rules_of(tenant)
        who = tenant or DEFAULT_TENANT
        delivery = await self._try(message, parsed, who, rules)
        if isinstance(delivery, TargetFault) and tenant is not None:
            renewed = await self._policies.renewed(tenant)
            if renewed.key != rules.key:
                delivery = await self._try(message, parsed, who, renewed)
        if isinstance(delivery, TargetFault):
            sentence = await self._policies.sentence(delivery, who)
            return Delivery(False, f"{parsed.origin()} was not called: {sentence}", delivery.retryable)
        return delivery

    async def _try(self, message: Message, url: URL, tenant: int, rules: TargetRules) -> Delivery | TargetFault:
        origin = str(url.origin())
        headers = {"User-Agent": f"detent/{__version__}", "Accept": "*/*", **message.headers, CALL_HEADER: message.kind}
        try:
            head = head_of(message.method, url, headers.items())
            request = request_of(message.method, head, message.body)
            with self._connectors.connector(tenant, rules, url.raw_host or "") as connector:
                async with asyncio.timeout(ANSWER_SECONDS):
                    answer = await exchange(
                        connector, destination_of(origin), request, 0, bodiless=message.method == "HEAD"
                    )
            return _delivery(answer.status, origin)
        except TimeoutError:
            return Delivery(False, f"{origin} did not answer within {ANSWER_SECONDS:g} s.")
        except (aiohttp.ClientError, OSError) as error:
            failed = connection_failure(error, url, origin)
            return refusal_of(error) or Delivery(False, failed.error, failed.retryable)

    async def send_mail(self, mail: Mail, server: MailServer, *, tenant: int) -> Delivery:
        """`tenant`: the tenant whose rule names the server."""
        rules = await self._policies.rules_of(tenant)
        delivery = await self._try_mail(mail, server, tenant, rules)
        if isinstance(delivery, TargetFault):
            renewed = await self._policies.renewed(tenant)
            if renewed.key != rules.key:
                delivery = await self._try_mail(mail, server, tenant, renewed)
        if isinstance(delivery, TargetFault):
            sentence = await self._policies.sentence(delivery, tenant)
            return Delivery(False, f"{server.host}:{server.port} was not called: {sentence}", delivery.retryable)
        return delivery

    async def _try_mail(
        self, mail: Mail, server: MailServer, tenant: int, rules: TargetRules
    ) -> Delivery | TargetFault:
        place = f"The mail server {server.host}:{server.port}"
        dial = GuardedDial(tenant, rules, self._resolver, "smtp")
        try:
            async with asyncio.timeout(MAIL_SECONDS):
                await send_mail(server, mail, await dial(server.host.strip("[]"), server.port))
        except AddressRefusedError as error:
            return error.fault
        except TimeoutError:
            return Delivery(False, f"{place} did not answer in time.")
        except MailRefused as error:
            return Delivery(False, _without(server.password, f"{place} did not take the mail: {error}."))
        except (OSError, ValueError) as error:  # among them those of TLS
            return Delivery(False, f"{place} could not be reached: {_connection_reason(error)}.")
        return Delivery(True)

    async def close(self) -> None:
        await self._connectors.close()


def _connection_reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({reason_of(error)})"
    return reason_of(error)


def _without(secret: str | None, text: str) -> str:
    return text if not secret else text.replace(secret, "•••")


def _delivery(status: int, origin: str) -> Delivery:
    if 200 <= status <= 299:
        return Delivery(True)
    if 300 <= status <= 399:
        return Delivery(False, f"{origin} answered with status {status}: redirects are not followed.", retryable=False)
    return Delivery(False, f"{origin} answered with status {status}.", retryable=status != 410)
