"""Refused requests in the audit log: who tried what without a valid key, or with a key that lacks the right.

Any client can send such requests, so they are counted, not copied: at most one event a minute for each key or network,
and one a second for all of them. An event says how many were left out since the previous one.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from detent.api.limits import MAX_CALLERS, Limiter, network_of
from detent.api.problems import ProblemKind, Refusal, kind_of
from detent.domain.audit_event import Actor, NewEvent
from detent.errors import DetentError
from detent.store.audit_log import AuditLogStore, acting
from detent.telemetry.log import logger

log = logger("api")

PER_SECOND = 1 / 60
OF_ALL_PER_SECOND = 1.0
WORTH_KNOWING = (401, 403)


class RefusalRecorder:
    def __init__(self, events: AuditLogStore, now: Callable[[], float] = time.monotonic) -> None:
        self._events = events
        self._of_source = Limiter(PER_SECOND, now)
        self._of_all = Limiter(OF_ALL_PER_SECOND, now)
        self._left_out: OrderedDict[str, int] = OrderedDict()

    async def note(self, error: Exception, actor: Actor, tenant: int | None, route: str) -> None:
        """Record the refusal of a request, if it is one; `route` is its method and the pattern of its path."""
        kind = _kind(error)
        if kind is not None and kind.status in WORTH_KNOWING:
            after = {"status": kind.status, "problem": kind.slug}
            await self.record(NewEvent("request.refuse", tenant, "route", name=route, after=after), actor)

    async def record(self, event: NewEvent, actor: Actor) -> None:
        """Within the limits. The answer to the request does not depend on it."""
        source = actor.id if actor.kind == "key" and actor.id else network_of(actor.address or "")
        left_out = self._left_out.pop(source, 0)
        if self._of_source.wait(source) or self._of_all.wait("all"):
            self._left_out[source] = left_out + 1
            if len(self._left_out) > MAX_CALLERS:
                self._left_out.popitem(last=False)
            return
        after = {**(event.after or {}), **({"left_out_before": left_out} if left_out else {})}
        try:
            with acting(actor):
                await self._events.add(event._replace(after=after))
        except DetentError as failure:
            log.warning("a refusal is not in the audit log", error=str(failure))


def _kind(error: Exception) -> ProblemKind | None:
    if isinstance(error, Refusal):
        return error.kind
    return kind_of(error) if isinstance(error, DetentError) else None
