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
from detent.targets.breaker import CallPermit, HostBreakers, Unanswered, never_open, ran_out
from detent.targets.called_hosts import HostKey
from detent.targets.policies import TargetPolicies
from detent.targets.topics.clients import opener_of
from detent.targets.topics.dial import GuardedDial
from detent.targets.topics.messages import UnfilledSecretError, message_of
from detent.targets.topics.publisher import BrokerAddress, OpenPublisher, Receipt, TopicMessage
from detent.targets.topics.shared import SharedPublisher, Verdict

if TYPE_CHECKING:
    from detent.targets.certificates import TargetCertificates

# Publishers without a message for so long are closed; all idle ones when another is opened and there are so many.
IDLE_SECONDS = 60.0
MANY_PUBLISHERS = 200
MANY_ROUTES = 1000
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


def _succeeded(receipt: Receipt) -> Succeeded:
    facts = {**receipt.facts, "duplicate": True} if receipt.duplicate else receipt.facts
    return Succeeded(encode_json(facts))


def _texts(tls: TargetTls) -> tuple[str | None, str | None]:
    """The worker has filled in what refers to a secret."""
    ca, certificate = tls.ca, tls.client_certificate
    return ca if isinstance(ca, str) else None, certificate if isinstance(certificate, str) else None


class _Route:
    """Where messages to a server go, and the publisher of the last one with the rules that it was opened under."""

    __slots__ = ("address", "host", "opener", "publisher", "rules")

    def __init__(self, host: HostKey, address: BrokerAddress, opener: OpenPublisher) -> None:
        self.address = address
        self.opener = opener
        self.host = host
        self.rules: TargetRules | None = None
        self.publisher: SharedPublisher | None = None


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
        self._open_routes: dict[tuple[int, str], _Route] = {}
        """Of servers without credentials and TLS, by tenant and URL."""
        self._closing: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None

    async def close(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        publishers, self._publishers = list(self._publishers.values()), {}
        self._open_routes.clear()
        await asyncio.gather(*(publisher.close() for publisher in publishers), *self._closing)
        if self._certificates is not None:
            self._certificates.close()

    async def __call__(self, call: Call) -> Outcome | NotBegun:
        target = call.target
        assert isinstance(target, TopicTarget)
        try:
            message = message_of(call)
            route = self._known_route(target, call.tenant) or await self._route(target, call.tenant)
        except (TargetError, UnfilledSecretError) as error:
            return Failed(str(error), retryable=False)
        except (ImportError, KeyError):
            protocol = protocol_of(target.url)
            return Failed(f"This worker has no client for {protocol}: pip install 'detent[{extra_of(protocol)}]'.")
        if isinstance(route, Failed):
            return route
        breakers = self._breakers
        admission = breakers.admit(route.host, call.timeout_seconds) if breakers.may_refuse else CallPermit.CALL
        if isinstance(admission, NotBegun):
            return admission
        verdict = await self._sent(call, message, route, admission)
        if type(verdict) is Receipt:
            if breakers.troubled:
                breakers.answered(route.host)
            return _succeeded(verdict)
        return await self._not_sent(call, verdict, route, admission)

    async def _sent(self, call: Call, message: TopicMessage, route: _Route, admission: CallPermit) -> Verdict:
        loads, began, answered = self._breakers.loads, monotonic(), False
        load = loads.began(route.host)
        try:
            rules = await self._policies.rules_of(call.tenant)
            verdict = await self._publisher(rules, route).publish(message)
            if isinstance(verdict, TargetFault):
                renewed = await self._policies.renewed(call.tenant)
                if renewed.key != rules.key:
                    verdict = await self._publisher(renewed, route).publish(message)
            answered = type(verdict) is Receipt or isinstance(verdict, Failed)
        except BaseException:
            if ran_out(call, began):
                self._breakers.failed(route.host, admission, Unanswered(_NO_ANSWER, sent=True))
            else:
                self._breakers.released(route.host, admission)
            raise
        finally:
            loads.ended(load, began, answered)
        return verdict

    async def _not_sent(self, call: Call, verdict: Verdict, route: _Route, admission: CallPermit) -> Outcome | NotBegun:
        """Whatever the broker says closes the circuit of its server, a refusal too."""
        match verdict:
            case Unanswered():
                return self._breakers.failed(route.host, admission, verdict, call.mask)
            case NotBegun():
                self._breakers.released(route.host, admission)
                await asyncio.sleep(min(UNREAD_PAUSE_SECONDS, call.timeout_seconds / 2))
                return verdict
            case TargetFault():
                self._breakers.released(route.host, admission)
                return await self._refused(call, verdict, route.address)
            case _:
                self._breakers.answered(route.host)
                return _succeeded(verdict) if isinstance(verdict, Receipt) else verdict

    async def _refused(self, call: Call, fault: TargetFault, address: BrokerAddress) -> Failed | NotBegun:
        """As for HTTP: a run does not fail because this process could not read a list."""
        label = address.url.with_query(None)
        sentence = f"Nothing was sent to {label}: {await self._policies.sentence(fault, call.tenant)}"
        if not fault.retryable:
            return Failed(sentence, retryable=False)
        await asyncio.sleep(min(UNREAD_PAUSE_SECONDS, call.timeout_seconds / 2))
        return NotBegun(sentence)

    # --- the server ---

    def _known_route(self, target: TopicTarget, tenant: int) -> _Route | None:
        if target.credentials is UNSET and target.tls is UNSET:
            return self._open_routes.get((tenant, target.url))
        return None

    async def _route(self, target: TopicTarget, tenant: int) -> _Route | Failed:
        address = await self._broker(target, tenant)
        if isinstance(address, Failed):
            return address
        host = HostKey(tenant, *server_of(address.url))
        route = _Route(host, address, opener_of(protocol_of(target.url)))
        if target.credentials is UNSET and target.tls is UNSET and address.tls is None:
            if len(self._open_routes) >= MANY_ROUTES:
                self._open_routes.clear()
            self._open_routes[tenant, target.url] = route
        return route

    async def _broker(self, target: TopicTarget, tenant: int) -> BrokerAddress | Failed:
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

    def _publisher(self, rules: TargetRules, route: _Route) -> SharedPublisher:
        publisher = route.publisher
        if publisher is None or publisher.retired or route.rules is not rules:
            key = route.host.tenant, rules.key, route.address
            publisher = self._publishers.get(key) or self._open(key, rules, route.opener)
            route.rules, route.publisher = rules, publisher
        return publisher

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
            if shared.is_idle_since(before):
                del self._publishers[key]
                shared.retired = True
                task = asyncio.create_task(shared.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
