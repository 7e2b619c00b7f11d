"""The runner of Celery targets: from a call to an order, to the link of its broker, to an outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from threading import Thread

from detent.domain.celery_rules import read_server
from detent.domain.job import CeleryTarget, TargetCredentials
from detent.domain.run import INTERRUPTED, Call, Failed, NotBegun, Outcome
from detent.domain.target_access import TargetRules
from detent.domain.target_url import TargetError
from detent.runtime.clock import monotonic
from detent.targets.breaker import CallPermit, HostBreakers, Unanswered, never_open, ran_out
from detent.targets.called_hosts import HostKey, host_of
from detent.targets.celery.link import CeleryLink
from detent.targets.celery.order import CeleryClient, RefusedAddress, Reply, TaskOrder, order_of
from detent.targets.policies import TargetPolicies

# Threads, one for each broker: of one tenant, and of all. A call that needs one more waits, and returns to its queue.
TENANT_LINKS = 16
MOST_LINKS = 128
BUSY_SECONDS = 1.0
CLOSE_SECONDS = 2.0

LinkKey = tuple[object, ...]

_NO_ANSWER = Failed("no answer within the time limit of the attempt")


class CeleryTargetRunner:
    """Used on the node's loop. `apps`: what the operator opened, as app and number of the tenant."""

    def __init__(
        self,
        policies: TargetPolicies,
        apps: Collection[tuple[str, int]] = (),
        *,
        max_result_bytes: int = 65_536,
        breakers: HostBreakers | None = None,
    ) -> None:
        self._policies = policies
        self._breakers = breakers or never_open()
        self._apps = frozenset(apps)
        self._limit = max_result_bytes
        self._links: dict[LinkKey, CeleryLink] = {}

    async def close(self) -> None:
        """What is queued is still sent; threads that a server keeps waiting are left behind."""
        links, self._links = list(self._links.values()), {}
        for link in links:
            link.close()
        await asyncio.to_thread(_join_all, [link.thread for link in links])

    async def __call__(self, call: Call) -> Outcome | NotBegun:
        target = call.target
        assert isinstance(target, CeleryTarget)
        try:
            order = order_of(call)
        except TargetError as error:
            return Failed(error.message, retryable=False)
        if target.app is not None:
            if (target.app, call.tenant) not in self._apps:
                return Failed(
                    f"This worker does not have the Celery app {target.app!r} for this tenant.", retryable=False
                )
            reply = await self._send(call, order, (call.tenant, target.app), partial(_open_app, target.app))
            assert not isinstance(reply, RefusedAddress)  # the operator's own address has no rules
            return reply.failed if isinstance(reply, Unanswered) else reply
        return await self._to_broker(call, order)

    async def _to_broker(self, call: Call, order: TaskOrder) -> Outcome | NotBegun:
        host, breakers, began = host_of(order.target, call.tenant), self._breakers, monotonic()
        if host is None:
            return Failed("The broker_url of the target cannot be used.", retryable=False)
        admission = breakers.admit(host, call.timeout_seconds) if breakers.may_refuse else CallPermit.CALL
        if isinstance(admission, NotBegun):
            return admission
        watched = _BrokerCall(breakers, host, admission)
        order.taken = watched.answered
        try:
            reply = await self._send_allowed(call, order)
        except BaseException:
            watched.interrupted(ran_out=ran_out(call, began))
            raise
        match reply:
            case Unanswered():
                return breakers.failed(host, admission, reply, call.mask)
            case RefusedAddress():
                breakers.released(host, admission)
                return await self._refused(call, reply)
            case NotBegun():
                breakers.released(host, admission)
            case _:
                watched.answered()
        return reply

    async def _send_allowed(self, call: Call, order: TaskOrder) -> Reply | NotBegun:
        rules = await self._policies.rules_of(call.tenant)
        reply = await self._send_under(call, order, rules)
        if isinstance(reply, RefusedAddress):
            renewed = await self._policies.renewed(call.tenant)
            if renewed.key != rules.key:
                again = order_of(call)
                again.taken = order.taken
                reply = await self._send_under(call, again, renewed)
        return reply

    async def _send_under(self, call: Call, order: TaskOrder, rules: TargetRules) -> Reply | NotBegun:
        """Connections are shared by calls of one tenant to one broker, with the same credentials, under the same
        rules."""
        target = order.target
        key = (
            *(call.tenant, rules.key, target.broker_url, target.result_backend),
            *(_shown_to(target.credentials), _shown_to(target.result_credentials)),
        )
        return await self._send(call, order, key, partial(_open_broker, target, rules))

    async def _send(
        self, call: Call, order: TaskOrder, key: LinkKey, open_client: Callable[[], CeleryClient]
    ) -> Reply | NotBegun:
        link = self._links.get(key)
        if link is None or not link.send(order):
            if not self._may_open(call.tenant):
                await asyncio.sleep(min(BUSY_SECONDS, call.timeout_seconds / 2))
                return NotBegun("This worker has connections to as many brokers as it may have for one tenant.")
            link = self._links[key] = CeleryLink(
                open_client, name=f"detent-celery_{len(self._links)}", max_result_bytes=self._limit
            )
            link.send(order)
        try:
            return await order.replied
        except asyncio.CancelledError as error:
            # Otherwise this process ends, or has lost the run: the node that takes it over follows the same task.
            link.abandon(order, revoke=INTERRUPTED in error.args)
            raise

    def _may_open(self, tenant: int) -> bool:
        self._links = {key: link for key, link in self._links.items() if not link.ended}
        own = sum(key[0] == tenant for key in self._links)
        return own < TENANT_LINKS and len(self._links) < MOST_LINKS

    async def _refused(self, call: Call, reply: RefusedAddress) -> Failed | NotBegun:
        """As an HTTP call: a list that cannot be read fails no run."""
        sentence = f"The task was not sent: {await self._policies.sentence(reply.fault, call.tenant)}"
        if not reply.fault.retryable:
            return Failed(sentence, retryable=False)
        await asyncio.sleep(min(BUSY_SECONDS, call.timeout_seconds / 2))
        return NotBegun(sentence)


class _BrokerCall:
    """What the circuit of a broker learns from one call. It closes when the broker has the task: the run may end much
    later, and a task that is slow says nothing about the broker."""

    def __init__(self, breakers: HostBreakers, host: HostKey, admission: CallPermit) -> None:
        self._breakers = breakers
        self._host = host
        self._admission = admission
        self._answered = False

    def answered(self) -> None:
        if not self._answered:
            self._answered = True
            self._breakers.answered(self._host)

    def interrupted(self, *, ran_out: bool) -> None:
        if self._answered:
            return
        if ran_out:
            self._breakers.failed(self._host, self._admission, Unanswered(_NO_ANSWER, sent=True))
        else:
            self._breakers.released(self._host, self._admission)


def _join_all(threads: Sequence[Thread]) -> None:
    until = monotonic() + CLOSE_SECONDS
    for thread in threads:
        thread.join(max(0.0, until - monotonic()))


def _shown_to(credentials: object) -> tuple[object, object] | None:
    if isinstance(credentials, TargetCredentials):
        return credentials.username, credentials.password
    return None


def _open_app(name: str) -> CeleryClient:
    from detent.targets.celery.app_client import AppClient  # loads Celery

    return AppClient(name)


def _open_broker(target: CeleryTarget, rules: TargetRules) -> CeleryClient:
    from detent.targets.celery.guarded import BrokerClient  # loads Celery

    assert target.broker_url is not None
    backend = None if target.result_backend is None else read_server(target.result_backend, "result_backend")
    broker = read_server(target.broker_url, "broker_url")
    own = target.result_credentials
    if not isinstance(own, TargetCredentials) and backend is not None and backend[1:3] == broker[1:3]:
        own = target.credentials
    return BrokerClient(broker, _shown_to(target.credentials), backend, _shown_to(own), rules)
