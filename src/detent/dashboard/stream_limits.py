"""How many live streams may be open in this process, for each tenant and for each session."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Hashable, Iterator, Mapping
from contextlib import aclosing, contextmanager

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from detent.api.problems import Refusal
from detent.dashboard.authentication import Visitor

PER_SESSION = 10


class StreamLimits:
    def __init__(self, per_tenant: int, per_session: int = PER_SESSION) -> None:
        self._per_tenant = per_tenant
        self._per_session = per_session
        self._open: Counter[Hashable] = Counter()

    def check(self, visitor: Visitor) -> None:
        """Raise a refusal if the visitor may open no further stream."""
        if visitor.session is not None and self._open[visitor.session] >= self._per_session:
            raise _refusal(f"This session has {self._per_session} pages open")
        if self._open[visitor.caller.tenant] >= self._per_tenant:
            raise _refusal(f"Your tenant has {self._per_tenant} pages open on this server (max_live_streams)")

    @contextmanager
    def opened(self, visitor: Visitor) -> Iterator[None]:
        owners = [owner for owner in (visitor.session, visitor.caller.tenant) if owner is not None]
        self._open.update(owners)
        try:
            yield
        finally:
            self._open.subtract(owners)
            for owner in owners:
                if not self._open[owner]:
                    del self._open[owner]

    @property
    def open(self) -> int:
        return sum(count for owner, count in self._open.items() if isinstance(owner, int))


class LimitedStream(StreamingResponse):
    """A stream that counts from before its first byte until after its last, however it ends. `content` is closed with
    it: a client that stopped reading and left would keep its page rendered until the next garbage collection."""

    def __init__(
        self, limits: StreamLimits, visitor: Visitor, content: AsyncGenerator[bytes, None], headers: Mapping[str, str]
    ) -> None:
        super().__init__(content, 200, headers, media_type="text/event-stream")
        self._limits = limits
        self._visitor = visitor
        self._content = content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._limits.opened(self._visitor):
            async with aclosing(self._content):
                await super().__call__(scope, receive, send)


def _refusal(why: str) -> Refusal:
    detail = f"{why}, and this one is not updated: close some, then reload it."
    return Refusal(429, "too-many-requests", detail, {"Retry-After": "1"})
