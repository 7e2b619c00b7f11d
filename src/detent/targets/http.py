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
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.abc import AbstractResolver
from msgspec import UNSET, UnsetType

from detent.domain.documents import encode_json
from detent.domain.http_statuses import StatusVerdict, verdict_of
from detent.domain.job import HttpTarget, TargetCallback, TargetTls
from detent.domain.run import Accepted, Call, Failed, NotBegun, Outcome, Succeeded
from detent.domain.target_access import TargetFault, TargetRules
from detent.domain.target_url import TargetError
from detent.runtime.clock import monotonic
from detent.targets.breaker import CallPermit, HostBreakers, Unanswered, never_open, ran_out
from detent.targets.called_hosts import HostKey
from detent.targets.connectors import GuardedConnectors
from detent.targets.exchange import Destinations, HttpAnswer, exchange
from detent.targets.host_places import HostLimit, HostPlaces
from detent.targets.http_failures import (
    BadAnswerError,
    connection_failure,
    is_unsent,
    refusal_of,
    says_about_host,
)
from detent.targets.http_requests import PreparedRequest, prepared_request, request_bytes
from detent.targets.policies import TargetPolicies
from detent.targets.text import first_bytes, storable

if TYPE_CHECKING:
    from detent.targets.certificates import TargetCertificates

LONGEST_RETRY_AFTER = 86_400.0
# How long a call waits that needs an allow list which cannot be read, before its run returns to the queue.
UNREAD_PAUSE_SECONDS = 1.0

# A gateway says that the host behind it does not answer, or the host that it does not serve now.
UNANSWERED_STATUSES = frozenset({502, 503, 504})
ACCEPTED = 202


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
        self._connectors = GuardedConnectors(
            connections=connections, resolver=resolver, dns_cache_seconds=dns_cache_seconds, trust=trust
        )
        self._destinations = Destinations()

    async def close(self) -> None:
        await self._connectors.close()
        if self._certificates is not None:
            self._certificates.close()

    async def __call__(self, call: Call) -> Outcome | NotBegun:
        target, began = call.target, monotonic()
        assert isinstance(target, HttpTarget)
        try:
            prepared = prepared_request(call)
            request = request_bytes(call, prepared)
        except TargetError as error:
            return Failed(error.message, retryable=False)
        if isinstance(target.tls, TargetTls):
            certificates = await self._context(target.tls)
            if isinstance(certificates, Failed):
                return certificates
            shown = target.tls.client_certificate is not None
            prepared = prepared._replace(tls=certificates, shows_certificate=shown)
        if self._host_concurrency or target.host_concurrency is not UNSET:
            return await self._call_in_turn(call, target, prepared, request, began)
        return await self._call(call, target, prepared, request, began)

    async def _call_in_turn(
        self, call: Call, target: HttpTarget, prepared: PreparedRequest, request: bytes, began: float
    ) -> Outcome | NotBegun:
        """A call over a limit of its host uses up no attempt: its run waits in its queue."""
        host, port = prepared.host, prepared.port
        limits = [HostLimit((None, host, port), self._host_concurrency)] if self._host_concurrency else []
        if not isinstance(target.host_concurrency, UnsetType):
            limits.insert(0, HostLimit((call.tenant, host, port), target.host_concurrency))
        wait = await self._places.enter(limits, call.timeout_seconds / 10)
        if wait:
            return NotBegun(f"{host}:{port} has as many calls as are allowed at the same time.", retry_after=wait)
        entered, outcome = monotonic(), None
        try:
            outcome = await self._call(call, target, prepared, request, began)
        finally:
            called = not isinstance(outcome, NotBegun)
            self._places.leave(limits, monotonic() - entered if called else None)
        return outcome

    async def _call(
        self, call: Call, target: HttpTarget, prepared: PreparedRequest, request: bytes, began: float
    ) -> Outcome | NotBegun:
        """`began`: when the time limit of the attempt began, which may have passed in part."""
        rules = await self._policies.rules_of(call.tenant)
        outcome = await self._send(call, target, prepared, request, rules, began)
        if isinstance(outcome, TargetFault):
            renewed = await self._policies.renewed(call.tenant)
            if renewed.key != rules.key:
                outcome = await self._send(call, target, prepared, request, renewed, began)
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
        request: bytes,
        rules: TargetRules,
        began: float,
    ) -> Outcome | NotBegun | TargetFault:
        """The outcome, or why nothing was sent: the circuit of the host is open, or the rules of the tenant."""
        breakers, admission, answered = self._breakers, CallPermit.CALL, False
        key = HostKey(call.tenant, prepared.host, prepared.port)
        if breakers.may_refuse:
            admitted = breakers.admit(key, call.timeout_seconds)
            if isinstance(admitted, NotBegun):
                return admitted
            admission = admitted
        load = breakers.loads.began(key)
        try:
            outcome = await self._request(call, target, prepared, request, rules)
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
        self, call: Call, target: HttpTarget, prepared: PreparedRequest, request: bytes, rules: TargetRules
    ) -> Outcome | Unanswered | TargetFault:
        try:
            destination = self._destinations.to(prepared.origin, prepared.tls)
            with self._connectors.connector(call.tenant, rules, prepared.host) as connector:
                answer = await exchange(connector, destination, request, self._cap, bodiless=prepared.method == "HEAD")
        except (aiohttp.ClientError, OSError) as error:
            return _not_called(prepared, error)
        outcome = self._outcome(answer, target, prepared.label)
        return outcome if call.callback is None else _accepted(call, answer.status) or outcome

    def _outcome(self, answer: HttpAnswer, target: HttpTarget, label: str) -> Outcome | Unanswered:
        status, complete = answer.status, answer.complete
        shown: dict[str, object] = {
            "status": status,
            "body": first_bytes(storable(answer.data[: self._cap], complete=complete), self._cap),
        }
        if not complete:
            shown["truncated"] = True
        result = encode_json(shown)
        verdict = verdict_of(target, status)
        if verdict != "success":
            refused = _refusal(answer, verdict, label, result)
            unanswered = verdict == "retry" and status in UNANSWERED_STATUSES
            return Unanswered(refused, sent=True) if unanswered else refused
        if answer.broken:
            failed = Failed(f"The connection broke before the answer of {label} was complete.", result=result)
            return Unanswered(failed, sent=True)
        return Succeeded(result)


_NO_ANSWER = Failed("no answer within the time limit of the attempt")


def _not_called(prepared: PreparedRequest, error: Exception) -> Failed | Unanswered | TargetFault:
    fault = refusal_of(error)
    if fault is not None:
        return fault
    failed = connection_failure(error, prepared.url, prepared.label, shows_certificate=prepared.shows_certificate)
    if isinstance(error, BadAnswerError):
        return failed  # the host answered, but with something else than HTTP
    return Unanswered(failed, not is_unsent(error), says_about_host(error, own_tls=prepared.tls is not True))


def _accepted(call: Call, status: int) -> Accepted | None:
    """202 promises a callback where the target got what it needs for one. Any other answer is the end of the run."""
    assert isinstance(call.target, HttpTarget)
    callback = call.target.callback
    if status != ACCEPTED or not isinstance(callback, TargetCallback) or verdict_of(call.target, status) != "success":
        return None
    return Accepted(call.tenant, callback.lease_seconds)


def _refusal(answer: HttpAnswer, verdict: StatusVerdict, label: str, result: str) -> Failed:
    status = answer.status
    error = f"HTTP {status} from {label}"
    if 300 <= status <= 399:
        error += ": redirects are not followed; put the final address into the job"
    if verdict != "retry":
        return Failed(error, retryable=False, result=result, gone=verdict == "gone")
    headers = answer.headers
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
