"""The HTTP target: one request per attempt, with one outcome.

A server can affect only its own run: redirects are not followed, cookies are not kept, answers are not decompressed,
and reading stops at the cap. The caller enforces the timeout of the attempt by cancelling; only connecting has its own
limit here.
"""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver
from msgspec import UNSET, UnsetType
from multidict import CIMultiDict
from yarl import URL

from detent.domain.callbacks import TOKEN_HEADER, URL_HEADER
from detent.domain.documents import encode_json
from detent.domain.http_rules import WITH_BODY
from detent.domain.http_statuses import StatusVerdict, verdict_of
from detent.domain.job import HttpTarget, TargetCallback, TargetTls
from detent.domain.run import Accepted, Call, Failed, NotBegun, Outcome, Succeeded
from detent.domain.secret_ref import SecretRef
from detent.domain.target_access import TargetFault, TargetRules
from detent.domain.target_rules import CALL_HEADER, check_headers
from detent.domain.target_url import TargetError, parse_url
from detent.domain.webhooks import signed
from detent.runtime.clock import monotonic
from detent.targets.breaker import CallPermit, HostBreakers, Unanswered, never_open, ran_out
from detent.targets.called_hosts import HostKey
from detent.targets.facts import fact_headers
from detent.targets.host_places import HostLimit, HostPlaces
from detent.targets.http_failures import connection_failure, is_unsent, refusal_of, says_about_host
from detent.targets.http_templates import (
    BodyTemplates,
    RequestTemplates,
    rendered_headers,
    rendered_url,
    request_templates,
)
from detent.targets.policies import TargetPolicies
from detent.targets.sessions import GuardedSessions
from detent.targets.text import first_bytes, storable, visible
from detent.telemetry.tracing import traceparent_of
from detent.version import __version__

if TYPE_CHECKING:
    from detent.targets.certificates import TargetCertificates

LONGEST_RETRY_AFTER = 86_400.0
# How long a call waits that needs an allow list which cannot be read, before its run returns to the queue.
UNREAD_PAUSE_SECONDS = 1.0

# A gateway says that the host behind it does not answer, or the host that it does not serve now.
_UNANSWERED = frozenset({502, 503, 504})
ACCEPTED = 202


class PreparedRequest(NamedTuple):
    """What every call of a target shares."""

    url: URL
    label: str
    headers: CIMultiDict[str]
    traced: bool
    tls: ssl.SSLContext | bool = True
    """The certificates of the job; True: it has none of its own."""
    shows_certificate: bool = False
    templates: RequestTemplates | None = None
    """What differs between the calls of the target; None: nothing does."""


@lru_cache(maxsize=1024)
def _address(url: str) -> tuple[URL, str]:
    """Parsed, and as messages name it. It has no secrets, so that it is also kept for calls that have some: parsing it
    was half of what filling them in cost."""
    parsed = parse_url(url)
    return parsed, str(parsed.with_query(None).with_fragment(None))


def _prepare(url: str, headers: tuple[tuple[str, str | SecretRef], ...]) -> PreparedRequest:
    """Checked here too, not only at registration: the rules may be stricter now."""
    check_headers(dict(headers))
    plain = [(name, value) for name, value in headers if isinstance(value, str)]
    if len(plain) < len(headers):
        raise TargetError(
            "/target/headers", "A header refers to a secret, and only a worker of a cluster can fill it in."
        )
    merged = CIMultiDict({"User-Agent": f"detent/{__version__}", "Accept": "*/*", "Accept-Encoding": "identity"})
    merged.update(plain)
    templates = request_templates(url, tuple(plain))
    if templates is not None and templates.url is not None:
        parsed = templates.url.origin
        label = str(parsed)
    else:
        parsed, label = _address(url)
    return PreparedRequest(parsed, label, merged, traced="traceparent" in merged, templates=templates)


_prepare_once = lru_cache(maxsize=1024)(_prepare)


def _prepared(call: Call) -> PreparedRequest:
    """The same for all calls of a job. One with secrets is not kept: their values would stay in memory."""
    assert isinstance(call.target, HttpTarget)
    url, headers = call.target.url, tuple(call.target.headers.items())
    prepared = _prepare(url, headers) if call.filled else _prepare_once(url, headers)
    return prepared if prepared.templates is None else _rendered(prepared, prepared.templates, call)


def _rendered(prepared: PreparedRequest, templates: RequestTemplates, call: Call) -> PreparedRequest:
    headers = prepared.headers.copy()
    headers.update(rendered_headers(templates, call))
    if templates.url is None:
        return prepared._replace(headers=headers)
    url = rendered_url(templates.url, call)
    return prepared._replace(headers=headers, url=url, label=str(url.with_query(None).with_fragment(None)))


_bodies = BodyTemplates()


class HttpTargetRunner:
    """Calls HTTP targets; one for a whole worker. The worker limits how many run at once, and how many of them of one
    tenant: connections have no limit of their own (0), or calls that hang could take all of them."""

    def __init__(
        self,
        policies: TargetPolicies,
        *,
        max_result_bytes: int = 65_536,
        connections: int = 0,
        resolver: AbstractResolver | None = None,
        dns_cache_seconds: int = 10,
        trust: ssl.SSLContext | None = None,
        breakers: HostBreakers | None = None,
        host_concurrency: int = 0,
    ) -> None:
        """`host_concurrency`: how many calls to one host at the same time; 0: any number."""
        self._policies = policies
        self._breakers = breakers or never_open()
        self._host_concurrency = host_concurrency
        self._places = HostPlaces()
        self._cap = max_result_bytes
        self._certificates: TargetCertificates | None = None
        self._sessions = GuardedSessions(
            connections=connections, resolver=resolver, dns_cache_seconds=dns_cache_seconds, trust=trust
        )

    async def close(self) -> None:
        await self._sessions.close()
        if self._certificates is not None:
            self._certificates.close()

    async def __call__(self, call: Call) -> Outcome | NotBegun:
        target, began = call.target, monotonic()
        assert isinstance(target, HttpTarget)
        try:
            prepared = _prepared(call)
            body = _body(call, target)
        except TargetError as error:
            return Failed(error.message, retryable=False)
        if isinstance(target.tls, TargetTls):
            certificates = await self._context(target.tls)
            if isinstance(certificates, Failed):
                return certificates
            shown = target.tls.client_certificate is not None
            prepared = prepared._replace(tls=certificates, shows_certificate=shown)
        if self._host_concurrency or target.host_concurrency is not UNSET:
            return await self._call_in_turn(call, target, prepared, body, began)
        return await self._call(call, target, prepared, body, began)

    async def _call_in_turn(
        self, call: Call, target: HttpTarget, prepared: PreparedRequest, body: bytes | None, began: float
    ) -> Outcome | NotBegun:
        """A call over a limit of its host uses up no attempt: its run waits in its queue."""
        host, port = prepared.url.raw_host or "", prepared.url.port or 0
        limits = [HostLimit((None, host, port), self._host_concurrency)] if self._host_concurrency else []
        if not isinstance(target.host_concurrency, UnsetType):
            limits.insert(0, HostLimit((call.tenant, host, port), target.host_concurrency))
        wait = await self._places.enter(limits, call.timeout_seconds / 10)
        if wait:
            return NotBegun(f"{host}:{port} has as many calls as are allowed at the same time.", retry_after=wait)
        entered, outcome = monotonic(), None
        try:
            outcome = await self._call(call, target, prepared, body, began)
        finally:
            called = not isinstance(outcome, NotBegun)
            self._places.leave(limits, monotonic() - entered if called else None)
        return outcome

    async def _call(
        self, call: Call, target: HttpTarget, prepared: PreparedRequest, body: bytes | None, began: float
    ) -> Outcome | NotBegun:
        """`began`: when the time limit of the attempt began, which may have passed in part."""
        rules = await self._policies.rules_of(call.tenant)
        outcome = await self._send(call, target, prepared, body, rules, began)
        if isinstance(outcome, TargetFault):
            renewed = await self._policies.renewed(call.tenant)
            if renewed.key != rules.key:
                outcome = await self._send(call, target, prepared, body, renewed, began)
        return await self._refused(call, prepared, outcome) if isinstance(outcome, TargetFault) else outcome

    async def _context(self, tls: TargetTls) -> ssl.SSLContext | Failed:
        if self._certificates is None:
            from detent.targets.certificates import TargetCertificates  # few workers need what it loads

            self._certificates = TargetCertificates()
        return await self._certificates.context(tls)

    async def _refused(self, call: Call, prepared: PreparedRequest, fault: TargetFault) -> Failed | NotBegun:
        """A run does not fail because this process could not read a list: it returns to its queue, after a pause, so
        that it is not claimed and returned all the time."""
        sentence = f"{prepared.label} was not called: {await self._policies.sentence(fault, call.tenant)}"
        if not fault.retryable:
            return Failed(sentence, retryable=False)
        await asyncio.sleep(min(UNREAD_PAUSE_SECONDS, call.timeout_seconds / 2))
        return NotBegun(sentence)

    async def _send(
        self,
        call: Call,
        target: HttpTarget,
        prepared: PreparedRequest,
        body: bytes | None,
        rules: TargetRules,
        began: float,
    ) -> Outcome | NotBegun | TargetFault:
        """The outcome, or why nothing was sent: the circuit of the host is open, or the rules of the tenant."""
        breakers, admission, answered = self._breakers, CallPermit.CALL, False
        key = HostKey(call.tenant, prepared.url.raw_host or "", prepared.url.port or 0)
        if breakers.may_refuse:
            admitted = breakers.admit(key, call.timeout_seconds)
            if isinstance(admitted, NotBegun):
                return admitted
            admission = admitted
        load = breakers.loads.began(key)
        try:
            outcome = await self._request(call, target, prepared, body, rules)
            answered = not isinstance(outcome, Unanswered | TargetFault)
        except BaseException:
            if ran_out(call, began):
                breakers.failed(key, admission, Unanswered(_NO_ANSWER, sent=True))
            else:
                breakers.released(key, admission)
            raise
        finally:
            breakers.loads.ended(load, began, answered)
        if isinstance(outcome, Unanswered):
            return breakers.failed(key, admission, outcome, call.mask)
        if not answered:
            breakers.released(key, admission)
        elif breakers.troubled:
            breakers.answered(key)
        return outcome

    async def _request(
        self, call: Call, target: HttpTarget, prepared: PreparedRequest, body: bytes | None, rules: TargetRules
    ) -> Outcome | Unanswered | TargetFault:
        headers = _headers(call, prepared, body)
        try:
            with self._sessions.session(call.tenant, rules, prepared.url.raw_host or "") as session:
                async with session.request(
                    target.method, prepared.url, headers=headers, data=body, allow_redirects=False, ssl=prepared.tls
                ) as response:
                    outcome = await self._outcome(response, target, prepared.label)
                    return outcome if call.callback is None else _accepted(call, response.status) or outcome
        except (aiohttp.ClientError, OSError) as error:
            fault = refusal_of(error)
            if fault is not None:
                return fault
            failed = connection_failure(
                error, prepared.url, prepared.label, shows_certificate=prepared.shows_certificate
            )
            if isinstance(error, aiohttp.ClientResponseError):
                return failed  # the host answered, but with something else than HTTP
            counts = says_about_host(error, own_tls=prepared.tls is not True)
            return Unanswered(failed, not is_unsent(error), counts)

    async def _outcome(self, response: aiohttp.ClientResponse, target: HttpTarget, label: str) -> Outcome | Unanswered:
        data, complete, broken = await _read(response, self._cap)
        status = response.status
        answer: dict[str, object] = {
            "status": status,
            "body": first_bytes(storable(data[: self._cap], complete=complete), self._cap),
        }
        if not complete:
            answer["truncated"] = True
        result = encode_json(answer)
        verdict = verdict_of(target, status)
        if verdict != "success":
            refused = _refusal(response, verdict, label, result)
            unanswered = verdict == "retry" and status in _UNANSWERED
            return Unanswered(refused, sent=True) if unanswered else refused
        if broken:
            failed = Failed(f"The connection broke before the answer of {label} was complete.", result=result)
            return Unanswered(failed, sent=True)
        return Succeeded(result)


_NO_ANSWER = Failed("no answer within the time limit of the attempt")


def _accepted(call: Call, status: int) -> Accepted | None:
    """202 promises a callback where the target got what it needs for one. Any other answer is the end of the run."""
    assert isinstance(call.target, HttpTarget)
    callback = call.target.callback
    if status != ACCEPTED or not isinstance(callback, TargetCallback) or verdict_of(call.target, status) != "success":
        return None
    return Accepted(call.tenant, callback.lease_seconds)


def headers_of(call: Call) -> CIMultiDict[str]:
    """The headers of this call of an HTTP target."""
    assert isinstance(call.target, HttpTarget)
    return _headers(call, _prepared(call), _body(call, call.target))


def _body(call: Call, target: HttpTarget) -> bytes | None:
    """A signed call always has one: libraries that verify it read the body as JSON."""
    if target.body is not UNSET:
        return _bodies.body(call)
    if target.method not in WITH_BODY or (call.payload is None and call.signing is None):
        return None
    return msgspec.json.encode(call.payload)


def _headers(call: Call, prepared: PreparedRequest, body: bytes | None) -> CIMultiDict[str]:
    headers = prepared.headers.copy()
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
    if not prepared.traced:
        headers["traceparent"] = call.traceparent or traceparent_of(call.run_id)
    headers[CALL_HEADER] = "run"
    headers.extend(fact_headers(call))
    if call.callback is not None:
        headers[URL_HEADER] = call.callback.url
        headers[TOKEN_HEADER] = call.callback.credential
    if call.signing is not None:
        headers.update(signed(visible(call.idempotency_key), call.signing.at, body or b"", call.signing.keys))
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


def _refusal(response: aiohttp.ClientResponse, verdict: StatusVerdict, label: str, result: str) -> Failed:
    status = response.status
    error = f"HTTP {status} from {label}"
    if 300 <= status <= 399:
        error += ": redirects are not followed; put the final address into the job"
    if verdict != "retry":
        return Failed(error, retryable=False, result=result, gone=verdict == "gone")
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
