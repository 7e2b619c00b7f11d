"""The topic target: one message per attempt. The run succeeds when the broker has acknowledged it.

A publisher is one connection, shared by the runs of one tenant under the same rules that send to the same server with
the same credentials and certificates. So no tenant uses a connection that only another one may have.
"""

from __future__ import annotations

import asyncio
import ssl
from functools import lru_cache
from typing import TYPE_CHECKING

from aiohttp.abc import AbstractResolver
from msgspec import UNSET, UnsetType
from yarl import URL

from detent.domain.documents import encode_json
from detent.domain.job import DEFAULT_TENANT, TargetTls, TopicTarget
from detent.domain.run import Call, Failed, NotBegun, Outcome, Succeeded
from detent.domain.secret_ref import SecretRef
from detent.domain.target_access import RulesKey, TargetFault, TargetRules
from detent.domain.target_url import TargetError
from detent.domain.topic_rules import parse_topic_url
from detent.domain.topics import extra_of, has_tls, protocol_of, server_of
from detent.runtime.clock import monotonic
from detent.targets.breaker import CallPermit, HostBreakers, HostKey, Unanswered, never_open, ran_out
from detent.targets.policies import TargetPolicies
from detent.targets.topics.clients import opener_of
from detent.targets.topics.dial import GuardedDial
from detent.targets.topics.messages import UnfilledSecretError, message_of
from detent.targets.topics.publisher import Answer, BrokerAddress, OpenPublisher, Receipt, TopicMessage
from detent.targets.topics.shared import SharedPublisher, Verdict

if TYPE_CHECKING:
    from detent.targets.certificates import TargetCertificates

# Publishers without a message for so long are closed; all idle ones when another is opened and there are so many.
IDLE_SECONDS = 60.0
MANY_PUBLISHERS = 200
# How long a call waits that needs an allow list which cannot be read, before its run returns to the queue.
UNREAD_PAUSE_SECONDS = 1.0

_Key = tuple[int, RulesKey, BrokerAddress]
_NO_ANSWER = Failed("no answer within the time limit of the attempt")


@lru_cache(maxsize=1024)
def _address(url: str) -> tuple[URL, str, str]:
    """Parsed, its protocol, and as messages name it. It has no secrets: credentials are not part of a URL."""
    parsed = parse_topic_url(url)
    host, port = server_of(parsed)
    return parsed, protocol_of(url), f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _texts(tls: TargetTls) -> tuple[str | None, str | None]:
    """The worker has filled in what refers to a secret."""
    ca, certificate = tls.ca, tls.client_certificate
    return ca if isinstance(ca, str) else None, certificate if isinstance(certificate, str) else None


@lru_cache(maxsize=1024)
def _open_address(url: str, ambient: bool) -> BrokerAddress:
    """Of a server without credentials and TLS."""
    return BrokerAddress(_address(url)[0], ambient=ambient)


class TopicTargetRunner:
    """Sends to topics; one for a whole worker."""

    def __init__(
        self,
        policies: TargetPolicies,
        *,
        resolver: AbstractResolver | None = None,
        trust: ssl.SSLContext | None = None,
        breakers: HostBreakers | None = None,
    ) -> None:
        self._policies = policies
        self._breakers = breakers or never_open()
        self._resolver = resolver
        self._trust = trust
        self._certificates: TargetCertificates | None = None
        self._publishers: dict[_Key, SharedPublisher] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None

    async def close(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        publishers, self._publishers = list(self._publishers.values()), {}
        await asyncio.gather(*(publisher.close() for publisher in publishers), *self._closing)
        if self._certificates is not None:
            self._certificates.close()

    async def __call__(self, call: Call) -> Outcome | NotBegun:
        target = call.target
        assert isinstance(target, TopicTarget)
        try:
            message = message_of(call)
            address = await self._broker(target, call.tenant)
            opener = opener_of(protocol_of(target.url))
        except (TargetError, UnfilledSecretError) as error:
            return Failed(str(error), retryable=False)
        except (ImportError, KeyError):
            protocol = protocol_of(target.url)
            return Failed(f"This worker has no client for {protocol}: pip install 'detent[{extra_of(protocol)}]'.")
        if isinstance(address, Failed):
            return address
        return await self._through_circuit(call, message, address, opener)

    async def _through_circuit(
        self, call: Call, message: TopicMessage, address: BrokerAddress, opener: OpenPublisher
    ) -> Outcome | NotBegun:
        """Unless the circuit of its server is open. Whatever the broker says closes it, a refusal too."""
        breakers, began = self._breakers, monotonic()
        key = HostKey(call.tenant, address.url.raw_host or "", address.url.explicit_port or 0)
        admission = breakers.admit(key, call.timeout_seconds) if breakers.troubled else CallPermit.CALL
        if isinstance(admission, NotBegun):
            return admission
        try:
            verdict = await self._sent(call, message, address, opener)
        except BaseException:
            if ran_out(call, began):
                breakers.failed(key, admission, Unanswered(_NO_ANSWER, sent=True))
            else:
                breakers.released(key, admission)
            raise
        if isinstance(verdict, Unanswered):
            return breakers.failed(key, admission, verdict, call.mask)
        if isinstance(verdict, TargetFault | NotBegun):
            breakers.released(key, admission)
        else:
            breakers.answered(key)
        return await self._outcome(call, verdict, address)

    async def _sent(self, call: Call, message: TopicMessage, address: BrokerAddress, opener: OpenPublisher) -> Verdict:
        rules = await self._policies.rules_of(call.tenant)
        verdict = await self._publisher(call.tenant, rules, address, opener).publish(message)
        if isinstance(verdict, TargetFault):
            renewed = await self._policies.renewed(call.tenant)
            if renewed.key != rules.key:
                verdict = await self._publisher(call.tenant, renewed, address, opener).publish(message)
        return verdict

    async def _outcome(self, call: Call, verdict: Answer | TargetFault, address: BrokerAddress) -> Outcome | NotBegun:
        match verdict:
            case Receipt(facts=facts, duplicate=duplicate):
                return Succeeded(encode_json({**facts, "duplicate": True} if duplicate else dict(facts)))
            case Failed():
                return verdict
            case NotBegun():
                await asyncio.sleep(min(UNREAD_PAUSE_SECONDS, call.timeout_seconds / 2))
                return verdict
            case TargetFault():
                return await self._refused(call, verdict, address)

    async def _refused(self, call: Call, fault: TargetFault, address: BrokerAddress) -> Failed | NotBegun:
        """As for HTTP: a run does not fail because this process could not read a list."""
        label = address.url.with_query(None)
        sentence = f"Nothing was sent to {label}: {await self._policies.sentence(fault, call.tenant)}"
        if not fault.retryable:
            return Failed(sentence, retryable=False)
        await asyncio.sleep(min(UNREAD_PAUSE_SECONDS, call.timeout_seconds / 2))
        return NotBegun(sentence)

    # --- the server ---

    async def _broker(self, target: TopicTarget, tenant: int) -> BrokerAddress | Failed:
        if target.credentials is UNSET and target.tls is UNSET and not has_tls(target.url):
            return _open_address(target.url, tenant == DEFAULT_TENANT)
        url = _address(target.url)[0]
        username = password = None
        if not isinstance(target.credentials, UnsetType):
            username, password = target.credentials.username, target.credentials.password
        if isinstance(username, SecretRef) or isinstance(password, SecretRef):
            return Failed("target.credentials refers to a secret, and only a worker of a cluster can fill it in.")
        context = await self._tls(target)
        if isinstance(context, Failed):
            return context
        texts = () if isinstance(target.tls, UnsetType) else _texts(target.tls)
        address = BrokerAddress(url, username, password, context, *texts)
        return address._replace(ambient=True) if tenant == DEFAULT_TENANT else address

    async def _tls(self, target: TopicTarget) -> ssl.SSLContext | Failed | None:
        if isinstance(target.tls, TargetTls):
            if self._certificates is None:
                from detent.targets.certificates import TargetCertificates  # few workers need what it loads

                self._certificates = TargetCertificates()
            return await self._certificates.context(target.tls)
        if not has_tls(target.url):
            return None
        if self._trust is None:
            self._trust = await asyncio.to_thread(ssl.create_default_context)
        return self._trust

    def _publisher(
        self, tenant: int, rules: TargetRules, address: BrokerAddress, opener: OpenPublisher
    ) -> SharedPublisher:
        key = tenant, rules.key, address
        return self._publishers.get(key) or self._open(key, rules, opener)

    def _open(self, key: _Key, rules: TargetRules, opener: OpenPublisher) -> SharedPublisher:
        if len(self._publishers) >= MANY_PUBLISHERS:
            self._close_idle(0.0)
        tenant, _, address = key
        _, protocol, peer = _address(str(address.url))
        dial = GuardedDial(tenant, rules, self._resolver, protocol)
        shared = self._publishers[key] = SharedPublisher(lambda: opener(address, dial), dial, peer)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(IDLE_SECONDS / 4, self._sweep_idle)
        return shared

    def _sweep_idle(self) -> None:
        self._close_idle(IDLE_SECONDS)
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(IDLE_SECONDS / 4, self._sweep_idle) if self._publishers else None

    def _close_idle(self, seconds: float) -> None:
        before = monotonic() - seconds
        for key, shared in list(self._publishers.items()):
            if not shared.calls and shared.used_at <= before:
                del self._publishers[key]
                task = asyncio.create_task(shared.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
