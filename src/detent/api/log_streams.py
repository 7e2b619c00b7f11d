"""Followers of the lines of runs: answers that stay open until the run has ended (text/event-stream).

Each event has the place of its line as its id, so a client that lost its connection continues with `Last-Event-ID`. The
last event is `end`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from detent.api.access_watch import AccessWatch, OpenAccess
from detent.api.auth import Caller
from detent.api.problems import Refusal
from detent.api.role_limits import admitted
from detent.contract.run import LogLine, RunProgress
from detent.domain.counts import plural
from detent.domain.identity import RunKey
from detent.domain.states import OPEN
from detent.errors import DetentError
from detent.runtime.clock import monotonic
from detent.store import Store
from detent.store.output import FollowedRun, LogPlace

POLL_SECONDS = 0.5
KEEPALIVE_SECONDS = 15.0
# Lines are written a moment after they were logged, and the end of a run does not wait for them.
LAST_LINES_SECONDS = 1.5
LINES_AT_ONCE = 500
PATH = "/api/v1/runs/{id}/logs"
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Accel-Buffering": "no"}


class LogStreams:
    """The open streams of this process."""

    def __init__(self, store: Store, access: AccessWatch, per_tenant: int) -> None:
        self._store = store
        self._access = access
        self._per_tenant = per_tenant
        self._closing = asyncio.Event()
        self.open: Counter[int] = Counter()

    def follow(self, caller: Caller, key: RunKey, place: LogPlace, attempt: int | None) -> EventStream:
        """Raises a refusal if the tenant may open no further stream."""
        if self.open[caller.tenant] >= self._per_tenant:
            runs = plural(self._per_tenant, "run")
            detail = f"Your tenant follows {runs} on this server (max_live_streams): close some first."
            raise Refusal(429, "too-many-requests", detail, {"Retry-After": "1"})
        return EventStream(self, caller.tenant, self._events(caller, key, place, attempt))

    async def _events(
        self, caller: Caller, key: RunKey, place: LogPlace, attempt: int | None
    ) -> AsyncGenerator[bytes, None]:
        ended = asyncio.Event()
        with self._access.watching(OpenAccess(caller.key), ended.set):
            follower = LogFollower(self._store, caller, key, place, attempt)
            sent_at = monotonic()
            yield b": hello\n\n"
            while not (ended.is_set() or self._closing.is_set()):
                try:
                    sent = await follower.poll() if self._access.confirmed else b""
                except DetentError:  # the database is away: the client waits, and the next poll may succeed
                    sent = b""
                if sent or monotonic() - sent_at > KEEPALIVE_SECONDS:
                    sent_at = monotonic()
                    yield sent or b": keepalive\n\n"
                if follower.over:
                    return
                if not follower.more:
                    await self._pause()

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS):
                await self._closing.wait()

    async def close(self) -> None:
        """End every stream; their clients continue at another server."""
        self._closing.set()


class LogFollower:
    """Reads on from one place, as the caller: its roles restrict each statement."""

    def __init__(self, store: Store, caller: Caller, key: RunKey, place: LogPlace, attempt: int | None) -> None:
        self._store = store
        self._caller = caller
        self._key = key
        self._place = place
        self._attempt = attempt
        self._progress: RunProgress | None = None
        self._last_poll: float | None = None
        self.more = False
        self.over = False

    async def poll(self) -> bytes:
        """The events since the last poll; `over`: the last of them is the end."""
        tenant = self._caller.tenant
        with admitted(self._caller, "read", PATH):
            state = await self._store.output.followed(self._key, tenant=tenant)
            part = await self._store.output.read(
                self._key, self._place, tenant=tenant, attempt=self._attempt, limit=LINES_AT_ONCE
            )
            past = self._attempt is not None and await self._is_past(self._attempt)
        self._place, self.more = part.place, part.more
        sent = b"".join(_line_event(place, line) for place, line in part.placed())
        if state is None:  # its history is gone, or the caller may no longer see it
            self.over = True
            return sent + _event("end", {"status": None})
        if state.progress is not None and state.progress != self._progress:
            self._progress = state.progress
            sent += _event("progress", state.progress)
        if self._is_over(state, past=past) and not self.more:
            self.over = True
            sent += _event("end", {"status": state.status})
        return sent

    async def _is_past(self, attempt: int) -> bool:
        """Whether the run has a later attempt already."""
        run = await self._store.runs.get(self._key, tenant=self._caller.tenant)
        return run is not None and run.attempt is not None and run.attempt > attempt

    def _is_over(self, state: FollowedRun, *, past: bool) -> bool:
        if state.status in OPEN and not past:
            self._last_poll = None
            return False
        if self._last_poll is None:
            self._last_poll = monotonic() + (LAST_LINES_SECONDS if state.ended_lately else 0.0)
        return monotonic() >= self._last_poll


class EventStream(StreamingResponse):
    """Counts from its first byte until after its last, however it ends."""

    def __init__(self, streams: LogStreams, tenant: int, content: AsyncGenerator[bytes, None]) -> None:
        super().__init__(content, 200, HEADERS, media_type="text/event-stream")
        self._streams = streams
        self._tenant = tenant
        self._content = content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._streams.open[self._tenant] += 1
        try:
            async with aclosing(self._content):
                await super().__call__(scope, receive, send)
        finally:
            self._streams.open[self._tenant] -= 1


def place_text(place: LogPlace) -> str:
    return f"{place.token}.{place.number}"


def _line_event(place: LogPlace, line: LogLine) -> bytes:
    return f"id: {place_text(place)}\n".encode() + _event("line", line)


def _event(name: str, data: object) -> bytes:
    return f"event: {name}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"
