"""The HTTP target: one request per attempt over a shared session, with one outcome.

A server can affect only its own run: redirects are not followed, cookies are not kept, answers are not decompressed,
and reading stops at the cap. The caller enforces the timeout of the attempt by cancelling; only connecting has its own
limit here.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import NamedTuple

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDict
from yarl import URL

from detent.domain.documents import encode_json
from detent.domain.job import HttpTarget
from detent.domain.run import Call, Failed, Outcome, Succeeded
from detent.domain.target_rules import check_headers
from detent.domain.target_url import TargetError, parse_url
from detent.targets.gate import calling_tenant
from detent.targets.guard import AddressPolicy, AddressRefusedError
from detent.targets.http_failures import BrokenConnectionError, connection_failure
from detent.targets.text import first_bytes, instant_text, storable, visible
from detent.telemetry.tracing import traceparent_of
from detent.version import __version__

CONNECT_SECONDS = 10.0
LONGEST_RETRY_AFTER = 86_400.0
# Shorter than common servers keep an idle connection (some close after 2 s), so that a request is
# rarely sent into a connection that is being closed.
KEEP_ALIVE_SECONDS = 1.5

_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_RETRYABLE = frozenset({408, 425, 429})


class PreparedRequest(NamedTuple):
    """What every call of a target shares."""

    url: URL
    label: str
    headers: CIMultiDict[str]
    traced: bool


@lru_cache(maxsize=1024)
def _prepare(url: str, headers: tuple[tuple[str, str], ...]) -> PreparedRequest:
    """Checked here too, not only at registration: the rules may be stricter now."""
    parsed = parse_url(url)
    check_headers(dict(headers))
    merged = CIMultiDict({"User-Agent": f"detent/{__version__}", "Accept": "*/*", "Accept-Encoding": "identity"})
    merged.update(headers)
    label = str(parsed.with_query(None).with_fragment(None))
    return PreparedRequest(parsed, label, merged, traced="traceparent" in merged)


class HttpTargetRunner:
    """Calls HTTP targets; one for a whole worker. The worker limits how many run at once, and how many of them of one
    tenant: connections have no limit of their own (0), or calls that hang could take all of them."""

    def __init__(
        self,
        policy: AddressPolicy,
        *,
        max_result_bytes: int = 65_536,
        connections: int = 0,
        resolver: AbstractResolver | None = None,
        dns_cache_seconds: int = 10,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        """`trust` says which certificates are accepted; without it, those that the system trusts."""
        self._policy = policy
        self._cap = max_result_bytes
        self._connections = connections
        self._given_resolver = resolver
        self._dns_cache_seconds = dns_cache_seconds
        self._trust = trust
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        self._resolver = self._given_resolver or aiohttp.DefaultResolver()
        self._session = guarded_session(
            self._policy,
            self._resolver,
            connections=self._connections,
            dns_cache_seconds=self._dns_cache_seconds,
            trust=self._trust,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
            if self._given_resolver is None:
                await self._resolver.close()

    async def __call__(self, call: Call) -> Outcome:
        target = call.target
        if self._session is None or not isinstance(target, HttpTarget):
            raise RuntimeError("The runner must be started, and calls only HTTP targets.")
        calling_tenant.set(call.tenant)
        try:
            prepared = _prepare(target.url, tuple(target.headers.items()))
        except TargetError as error:
            return Failed(error.message, retryable=False)
        body = _body(call, target.method)
        headers = _headers(call, prepared, has_body=body is not None)
        try:
            async with self._session.request(
                target.method, prepared.url, headers=headers, data=body, allow_redirects=False
            ) as response:
                return await self._outcome(response, prepared.label)
        except (aiohttp.ClientError, OSError) as error:
            return connection_failure(error, prepared.url, prepared.label)

    async def _outcome(self, response: aiohttp.ClientResponse, label: str) -> Outcome:
        data, complete, broken = await _read(response, self._cap)
        status = response.status
        answer: dict[str, object] = {
            "status": status,
            "body": first_bytes(storable(data[: self._cap], complete=complete), self._cap),
        }
        if not complete:
            answer["truncated"] = True
        result = encode_json(answer)
        if not 200 <= status <= 299:
            return _refusal(response, label, result)
        if broken:
            return Failed(f"The connection broke before the answer of {label} was complete.", result=result)
        return Succeeded(result)


def guarded_session(
    policy: AddressPolicy,
    resolver: AbstractResolver,
    *,
    connections: int,
    dns_cache_seconds: int = 10,
    trust: ssl.SSLContext | None = None,
) -> aiohttp.ClientSession:
    """A session that connects to no address that the policy refuses, and sends each request once."""
    connector = aiohttp.TCPConnector(
        resolver=GuardedResolver(resolver, policy),
        socket_factory=policy.open_socket,
        ssl=trust if trust is not None else True,
        limit=connections,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
        use_dns_cache=dns_cache_seconds > 0,
        ttl_dns_cache=dns_cache_seconds,
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        auto_decompress=False,
        skip_auto_headers=("Content-Type",),
        trust_env=False,
        middlewares=(_send_once,),
    )


class GuardedResolver(AbstractResolver):
    """Leaves out refused addresses, so that a name with good and bad ones is called at the good ones only.

    The socket factory would refuse the bad ones anyway. But it could not distinguish a name with only bad addresses,
    for
    which a retry cannot help, from one whose good address is down.
    """

    def __init__(self, inner: AbstractResolver, policy: AddressPolicy) -> None:
        self._inner = inner
        self._policy = policy

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        async with asyncio.timeout(CONNECT_SECONDS):
            found = await self._inner.resolve(host, port, family)
        if not found:
            raise OSError(None, "the name has no address")
        verdicts = [self._policy.check(entry["host"]) for entry in found]
        allowed = [entry for entry, sentence in zip(found, verdicts, strict=True) if sentence is None]
        if not allowed:
            raise AddressRefusedError(next(sentence for sentence in verdicts if sentence is not None))
        return allowed

    async def close(self) -> None:
        await self._inner.close()


async def _send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """One attempt sends one request: the client would silently repeat some when a reused connection breaks."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise BrokenConnectionError(error) from error


def headers_of(call: Call) -> CIMultiDict[str]:
    """The headers of this call of an HTTP target."""
    assert isinstance(call.target, HttpTarget)
    prepared = _prepare(call.target.url, tuple(call.target.headers.items()))
    return _headers(call, prepared, has_body=_body(call, call.target.method) is not None)


def _body(call: Call, method: str) -> bytes | None:
    if call.payload is None or method not in _WITH_BODY:
        return None
    return msgspec.json.encode(call.payload)


def _headers(call: Call, prepared: PreparedRequest, *, has_body: bool) -> CIMultiDict[str]:
    headers = prepared.headers.copy()
    if has_body:
        headers.setdefault("Content-Type", "application/json")
    if not prepared.traced:
        headers["traceparent"] = call.traceparent or traceparent_of(call.run_id)
    headers.extend(
        (
            ("Idempotency-Key", visible(call.idempotency_key)),
            ("Detent-Run-Id", call.run_id),
            ("Detent-Job", visible(call.job)),
            ("Detent-Job-Id", call.job_id),
            ("Detent-Scheduled-At", instant_text(call.scheduled_at)),
            ("Detent-Attempt", str(call.attempt)),
            ("Detent-Token", str(call.token)),
        )
    )
    window_start = call.window_start
    if window_start is not None:
        headers["Detent-Window-Start"] = instant_text(window_start)
        headers["Detent-Window-End"] = instant_text(call.scheduled_at)
    return headers


async def _read(response: aiohttp.ClientResponse, cap: int) -> tuple[bytes, bool, bool]:
    """What was read, whether it is complete, and whether the connection broke."""
    content = response.content
    pieces = bytearray()
    try:
        while not content.at_eof():
            pieces += await content.readany()
            if len(pieces) >= cap:
                break
    except (aiohttp.ClientError, OSError):
        return bytes(pieces), False, True
    complete = len(pieces) <= cap and content.at_eof()
    if not complete:
        response.close()
    return bytes(pieces), complete, False


def _refusal(response: aiohttp.ClientResponse, label: str, result: str) -> Failed:
    status = response.status
    error = f"HTTP {status} from {label}"
    if 300 <= status <= 399:
        error += ": redirects are not followed; put the final address into the job"
    if status not in _RETRYABLE and not 500 <= status <= 599:
        return Failed(error, retryable=False, result=result)
    headers = response.headers
    wait = retry_after_seconds(headers.get("Retry-After"), headers.get("Date"))
    return Failed(error, retry_after=wait, result=result)


def retry_after_seconds(value: str | None, date: str | None) -> float | None:
    """A date is read against the answer's own Date, because the two clocks need not agree with ours."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return LONGEST_RETRY_AFTER if len(text) > 9 else min(float(text), LONGEST_RETRY_AFTER)
    until = _http_date(text)
    if until is None:
        return None
    answered = _http_date(date) if date else None
    wait = (until - (answered or datetime.now(UTC))).total_seconds()
    return min(max(wait, 0.0), LONGEST_RETRY_AFTER)


def _http_date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
