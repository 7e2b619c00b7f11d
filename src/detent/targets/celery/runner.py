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
from detent.targets.celery.link import CeleryLink
from detent.targets.celery.order import CeleryClient, RefusedAddress, order_of
from detent.targets.policies import TargetPolicies

# Threads, one for each broker: of one tenant, and of all. A call that needs one more waits, and returns to its queue.
TENANT_LINKS = 16
MOST_LINKS = 128
BUSY_SECONDS = 1.0
CLOSE_SECONDS = 2.0

LinkKey = tuple[object, ...]


class CeleryTargetRunner:
    """Used on the node's loop. `apps`: what the operator opened, as app and number of the tenant."""

    def __init__(
        self, policies: TargetPolicies, apps: Collection[tuple[str, int]] = (), *, max_result_bytes: int = 65_536
    ) -> None:
        self._policies = policies
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
        if target.app is not None:
            if (target.app, call.tenant) not in self._apps:
                return Failed(
                    f"This worker does not have the Celery app {target.app!r} for this tenant.", retryable=False
                )
            reply = await self._send(call, (call.tenant, target.app), partial(_open_app, target.app))
            assert not isinstance(reply, RefusedAddress)  # the operator's own address has no rules
            return reply
        return await self._to_broker(call, target)

    async def _to_broker(self, call: Call, target: CeleryTarget) -> Outcome | NotBegun:
        rules = await self._policies.rules_of(call.tenant)
        reply = await self._send_under(call, target, rules)
        if isinstance(reply, RefusedAddress):
            renewed = await self._policies.renewed(call.tenant)
            if renewed.key != rules.key:
                reply = await self._send_under(call, target, renewed)
        return await self._refused(call, reply) if isinstance(reply, RefusedAddress) else reply

    async def _send_under(
        self, call: Call, target: CeleryTarget, rules: TargetRules
    ) -> Outcome | NotBegun | RefusedAddress:
        """Connections are shared by calls of one tenant to one broker, with the same credentials, under the same
        rules."""
        key = (
            *(call.tenant, rules.key, target.broker_url, target.result_backend),
            *(_shown_to(target.credentials), _shown_to(target.result_credentials)),
        )
        return await self._send(call, key, partial(_open_broker, target, rules))

    async def _send(
        self, call: Call, key: LinkKey, open_client: Callable[[], CeleryClient]
    ) -> Outcome | NotBegun | RefusedAddress:
        try:
            order = order_of(call)
        except TargetError as error:
            return Failed(error.message, retryable=False)
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
