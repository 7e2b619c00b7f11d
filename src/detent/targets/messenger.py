"""HTTP messages that are not runs: notifications and pings, with the address and redirect rules of HTTP targets.

A URL may be a secret, like those of chat services, so errors show only its origin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

import aiohttp

from detent.domain.target_url import TargetError, parse_url
from detent.errors import UsageError
from detent.targets.guard import AddressPolicy
from detent.targets.http import guarded_session
from detent.targets.http_failures import connection_failure
from detent.version import __version__

ANSWER_SECONDS = 10.0
CONNECTIONS = 20


class Delivery(NamedTuple):
    """Whether the message arrived; if not, why, and whether a retry may help."""

    arrived: bool
    error: str = ""
    retryable: bool = True


def check_address(setting: str, url: str) -> None:
    """Refuse URLs that are never called, under any policy."""
    try:
        parse_url(url)
    except TargetError as error:
        raise UsageError(f"{setting} is not usable: {error.message}", f"/{setting}") from error


class Messenger:
    def __init__(self, policy: AddressPolicy) -> None:
        self._policy = policy
        self._session: aiohttp.ClientSession | None = None

    async def send(self, url: str, body: bytes | None, headers: Mapping[str, str], *, method: str = "POST") -> Delivery:
        try:
            parsed = parse_url(url)
        except TargetError as error:
            return Delivery(False, error.message, retryable=False)
        origin = str(parsed.origin())
        if self._session is None:
            self._resolver = aiohttp.DefaultResolver()
            self._session = guarded_session(self._policy, self._resolver, connections=CONNECTIONS)
        sent = {"User-Agent": f"detent/{__version__}", **headers}
        try:
            async with (
                asyncio.timeout(ANSWER_SECONDS),
                self._session.request(method, parsed, data=body, headers=sent, allow_redirects=False) as answer,
            ):
                return _judged(answer.status, origin)
        except TimeoutError:
            return Delivery(False, f"{origin} did not answer within {ANSWER_SECONDS:g} s.")
        except (aiohttp.ClientError, OSError) as error:
            failed = connection_failure(error, parsed, origin)
            return Delivery(False, failed.error, failed.retryable)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            await self._resolver.close()
            self._session = None


def _judged(status: int, origin: str) -> Delivery:
    if 200 <= status <= 299:
        return Delivery(True)
    if 300 <= status <= 399:
        return Delivery(False, f"{origin} answered with status {status}: redirects are not followed.", retryable=False)
    return Delivery(False, f"{origin} answered with status {status}.", retryable=status != 410)
