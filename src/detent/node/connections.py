"""What the clients of one server may hold: connections, bytes of request bodies and unread answers, and for how long.

No client is trusted here: only its address is known yet. A server that has as many connections as it may
closes the one that has waited longest for the client: a request whose headers never end first, an unused connection
next, then a body that is sent slowly. Where every connection is at work, a few more are accepted, only for /livez
and /readyz, so that a busy node is not restarted.

One pass a second (`sweep`) ends what takes too long. There is no timer for a single connection.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterable, MutableMapping
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from detent.api.client_addresses import ClientAddresses
from detent.api.limits import network_of
from detent.runtime.clock import monotonic
from detent.settings.settings import Settings
from detent.telemetry.log import logger

if TYPE_CHECKING:
    from detent.node.protocol import LimitedProtocol

log = logger("server")

SWEEP_SECONDS = 1.0
LOG_SECONDS = 60.0
# Descriptors for everything else: the database, calls of jobs, handler processes, files.
OTHER_DESCRIPTORS = 256
# Connections that were taken from the kernel while all others are in use, of all servers of a process. As many as are
# taken in two turns of the loop: the request of a probe has that long to arrive before its connection may be closed.
WAITING = 256
PROBES = (b"/livez", b"/readyz")
FOR_PROBES = 32
NEW_SECONDS = 1.0
# A body that has been under way for longer may be closed where a connection is needed.
SLOW_BODY_SECONDS = 5.0
# Bodies up to this size are always accepted: large ones must not keep small requests out.
SMALL_BODY_BYTES = 16_384
HELD = "detent.held_bytes"

Lane = dict["LimitedProtocol", None]


class Connections(ServerState):
    """The connections of one server. `reading`, `idle` and `bodies` hold those that wait for their client, in the order
    in which they began to wait."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        servers = 1 if settings.metrics_port is None else 2
        self.most, self.most_waiting = _within_descriptors(settings.max_connections, servers)
        self.max_of_one_peer = max(1, self.most // 2)
        self._proxies = ClientAddresses(settings.trusted_proxies)
        # A payload that the settings allow must fit, or it could never be sent.
        self.max_held = max(settings.max_request_memory_bytes, settings.max_payload_bytes + 65_536)
        self.held = 0
        self.reading: Lane = {}
        self.idle: Lane = {}
        self.bodies: Lane = {}
        self._for_probes: Lane = {}
        self._peers: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._log_next = 0.0

    # --- how many ---

    def admit(self, connection: LimitedProtocol) -> bool:
        """Count a new connection; False: it is one too many, and may only be used for a probe."""
        address = connection.client[0] if connection.client else ""
        trusted = self._proxies.trusts(address)
        connection.peer = address if trusted else network_of(address)
        # A trusted proxy has the connections of many clients.
        if self._has_capacity(connection.peer, limited=not trusted):
            self._peers[connection.peer] += 1
            return True
        self._for_probes[connection] = None
        if len(self._for_probes) > FOR_PROBES:
            self._evict(next(iter(self._for_probes)))
        return False

    def _has_capacity(self, peer: str, *, limited: bool) -> bool:
        if limited and self._peers[peer] >= self.max_of_one_peer and not self._free_one(peer):
            return False
        others = len(self.connections) - len(self._for_probes) - 1
        return others < self.most or self._free_one(None)

    def _free_one(self, peer: str | None) -> bool:
        """Close the connection that has waited longest for its client; of this peer, if one is given. Connections from
        which nothing has come yet may be those of probes whose request is on its way: few of them are not closed at
        all, and of many those last that are new."""
        now = monotonic()
        few = len(self.reading) <= self.max_of_one_peer // 2
        last_choice: LimitedProtocol | None = None
        for lane in (self.reading, self.idle, self.bodies):
            for waiting in lane:
                if lane is self.bodies and waiting.since > now - SLOW_BODY_SECONDS:
                    break
                if waiting in self._for_probes or peer not in (None, waiting.peer):
                    continue
                if waiting.heard or (not few and waiting.since <= now - NEW_SECONDS):
                    self._evict(waiting)
                    return True
                last_choice = last_choice or waiting
        if last_choice is None or few:
            return False
        self._evict(last_choice)
        return True

    def _evict(self, connection: LimitedProtocol) -> None:
        self.count("evicted")
        self.forget(connection)
        connection.transport.abort()

    def forget(self, connection: LimitedProtocol) -> None:
        """The connection is over. May be called twice."""
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        connection.enter(None)
        if connection in self._for_probes:
            del self._for_probes[connection]
            return
        self._peers[connection.peer] -= 1
        if not self._peers[connection.peer]:
            del self._peers[connection.peer]

    # --- how many bytes ---

    def fits(self, size: int) -> bool:
        return self.held + size <= self.max_held

    def hold(self, state: MutableMapping[str, Any], size: int) -> None:
        """Count bytes of a request's body, until its handler is done."""
        self.held += size
        state[HELD] = state.get(HELD, 0) + size

    def release(self, state: MutableMapping[str, Any]) -> None:
        self.held -= state.pop(HELD, 0)

    # --- for how long ---

    def sweep(self, now: float) -> None:
        """End what takes too long, and the slowest readers of answers while all answers together are too large."""
        connections: list[Any] = list(self.connections)
        for connection in connections:
            try:
                connection.check(now)
            except Exception:  # the others must be checked, too
                log.exception("a connection cannot be checked")
                self._evict(connection)
        self._shed((connection.unread_bytes(), connection) for connection in connections)
        self._log_refusals(now)

    def _shed(self, unread: Iterable[tuple[int, LimitedProtocol]]) -> None:
        waiting = sorted(((size, connection) for size, connection in unread if size), key=lambda each: each[0])
        total = sum(size for size, _ in waiting)
        while total > self.max_held:
            size, connection = waiting.pop()
            total -= size
            self._evict(connection)

    def count(self, what: str) -> None:
        self._refused[what] += 1

    def _log_refusals(self, now: float) -> None:
        """One line a minute: an attacker must not fill the disk."""
        if self._refused and now >= self._log_next:
            self._log_next = now + LOG_SECONDS
            log.warning("connections closed or refused", counts=dict(sorted(self._refused.items())))
            self._refused.clear()


class ReleaseBodies:
    """Around the application: the body of a request is held until its handler is done, even if the client left."""

    def __init__(self, app: ASGIApp, connections: Connections) -> None:
        self._app = app
        self._connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        finally:
            self._connections.release(scope["state"])


def _within_descriptors(wanted: int, servers: int) -> tuple[int, int]:
    """The maximum of connections for which each server of this process has descriptors, and of those that wait: with no
    descriptor left, it could not accept a probe."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY:
        return wanted, WAITING
    waiting = min(WAITING, allowed // 4)
    most = max(allowed - OTHER_DESCRIPTORS - waiting, allowed // 2)
    return min(wanted, max(most // servers, 1)), waiting // servers
