"""Requests to SQS by its JSON API, signed, with the credentials of the address or of the machine."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

import aiohttp
import msgspec
from yarl import URL

from detent.domain.topics import has_tls, is_sqs_region, server_of
from detent.errors import DetentError
from detent.runtime.aws_credentials import MachineIdentity
from detent.runtime.aws_signature import AwsCredentials, signed_headers
from detent.transports.answering import ANSWER_SECONDS, answering, words_of
from detent.transports.transport import TransportAwayError
from detent.version import __version__

DEFAULT_REGION = "us-east-1"
# Others keep a connection of SQS open for a minute.
KEEP_ALIVE_SECONDS = 15.0

NO_CREDENTIALS = "There are no credentials for SQS: write them into DETENT_QUEUE, as sqs://KEY:SECRET@REGION/"

_Found = TypeVar("_Found")
_MISSING = ("NonExistentQueue", "QueueDoesNotExist")


class QueueMissingError(DetentError):
    """There is no such queue: it was never created, or was deleted."""


class SqsApi:
    def __init__(self, address: str) -> None:
        self._url = URL(address)
        self._given: AwsCredentials | None = None
        if self._url.user and self._url.password:
            self._given = AwsCredentials(self._url.user, self._url.password, self._url.query.get("token"))
        self._machine = MachineIdentity()
        self._region = self._url.query.get("region", "")
        self._origin: URL | None = None
        self._session: aiohttp.ClientSession | None = None
        if is_sqs_region(self._url):
            self._region = self._url.raw_host or ""
        if self._url.raw_host:
            self._region = self._region or DEFAULT_REGION
            self._origin = _origin_of(self._url)

    @property
    def peer(self) -> str:
        return self._origin.authority if self._origin is not None else "SQS"

    async def call(self, action: str, document: dict[str, Any], wait_seconds: float = 0) -> dict[str, Any]:
        """The answer to a request that the service may hold back for `wait_seconds`. Raises QueueMissingError and
        TransportAwayError."""
        body = msgspec.json.encode(document)
        async with answering(self.peer, ANSWER_SECONDS + wait_seconds, aiohttp.ClientError, ValueError):
            origin = await self._place()
            headers = {
                "Host": origin.authority if origin.explicit_port else str(origin.raw_host),
                "Content-Type": "application/x-amz-json-1.0",
                "X-Amz-Target": f"AmazonSQS.{action}",
                "User-Agent": f"detent/{__version__}",
            }
            credentials = await self._credentials()
            signed = signed_headers(
                headers, body, credentials, region=self._region, service="sqs", at=datetime.now(UTC)
            )  # fmt: skip
            async with self._opened().post(origin, data=body, headers=signed, allow_redirects=False) as answer:
                status, content = answer.status, await answer.read()
        if status != 200:
            raise self._refusal(action, status, content)
        try:
            return msgspec.json.decode(content, type=dict[str, Any])
        except msgspec.MsgspecError:
            raise TransportAwayError(f"{self.peer} answered {action} with what is no answer of SQS.") from None

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _place(self) -> URL:
        """An address without a host is that of the machine's own region."""
        if self._origin is None:
            if not self._region:
                with suppress(ImportError):
                    found = await _read(self._machine.region())
                    self._region = found or ""
            self._region = self._region or DEFAULT_REGION
            self._origin = _origin_of(URL(f"sqs://{self._region}/"))
        return self._origin

    async def _credentials(self) -> AwsCredentials:
        if self._given is not None:
            return self._given
        try:
            found = await _read(self._machine.credentials())
        except ImportError:
            raise TransportAwayError(
                f"{NO_CREDENTIALS}; those of the machine need pip install 'detent[sqs]'."
            ) from None
        if found is None:
            raise TransportAwayError(f"{NO_CREDENTIALS}, or give them to the machine as the tools of AWS expect them.")
        return found

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # Without a limit: each queue has one long poll, and all other requests must not wait for those to end.
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_SECONDS),
            )
        return self._session

    def _refusal(self, action: str, status: int, content: bytes) -> DetentError:
        try:
            document = msgspec.json.decode(content, type=dict[str, Any])
        except msgspec.MsgspecError:
            document = {}
        code = str(document.get("__type", "")).rpartition("#")[2]
        words = str(document.get("message") or document.get("Message") or code or f"status {status}")
        sentence = f"{self.peer} refused {action}: {words.rstrip('.')[:300]} ({code or status})."
        return (QueueMissingError if any(part in code for part in _MISSING) else TransportAwayError)(sentence)


async def _read(reading: Awaitable[_Found]) -> _Found:
    """A profile that does not exist, a metadata service that refuses: the library of AWS has its own error for each."""
    try:
        return await reading
    except (ImportError, TimeoutError):
        raise
    except Exception as error:
        raise TransportAwayError(
            f"The credentials of the machine cannot be read: {words_of(error)}. Correct them, or write others into"
            " DETENT_QUEUE, as sqs://KEY:SECRET@REGION/."
        ) from error


def _origin_of(url: URL) -> URL:
    host, _ = server_of(url)
    name = f"[{host}]" if ":" in host else host
    port = f":{url.explicit_port}" if url.explicit_port else ""
    return URL(f"http{'s' if has_tls(_without_login(url)) else ''}://{name}{port}/")


def _without_login(url: URL) -> str:
    return str(url.with_user(None))
