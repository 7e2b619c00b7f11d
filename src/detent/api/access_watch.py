"""Requests that stay open: streams of the dashboard, and claims that wait for runs.

They were authenticated when they began. One statement every two seconds finds out for all of them which keys and
sessions have ended since, by revocation, logout or time, or have other roles, and those requests are ended. While that
statement fails, `confirmed` is false, and nothing new may be sent to a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from detent.domain.roles import BoundRole
from detent.errors import DetentError
from detent.runtime.service import Loop
from detent.store.web_sessions import EndedAccess, WebSessionStore
from detent.telemetry.log import logger

log = logger("api")

CHECK_EVERY = 2.0

OnEnd = Callable[[], None]


class OpenAccess(NamedTuple):
    """What authenticated an open request: a session, or a key, or neither, where the cluster has no keys. `bindings`:
    the roles of the session, as which its page is rendered."""

    key: str | None
    session: bytes | None = None
    bindings: tuple[BoundRole, ...] = ()

    def is_over(self, ended: EndedAccess) -> bool:
        if self.session is not None:
            return self.session in ended.sessions or ended.roles[self.session] != self.bindings
        return ended.keyed if self.key is None else self.key in ended.keys


class AccessWatch:
    def __init__(self, sessions: WebSessionStore) -> None:
        self._sessions = sessions
        self._open: dict[OpenAccess, list[OnEnd]] = {}
        self._loop: Loop | None = None
        self._closed = False
        self.confirmed = True

    @contextmanager
    def watching(self, access: OpenAccess, on_end: OnEnd) -> Iterator[None]:
        """Call `on_end` when this access has ended while the block is open."""
        callbacks = self._open.setdefault(access, [])
        callbacks.append(on_end)
        self._start()
        try:
            yield
        finally:
            callbacks.remove(on_end)
            if not callbacks and self._open.get(access) is callbacks:
                del self._open[access]

    def check_now(self) -> None:
        """A key or a session has ended here."""
        if self._loop is not None:
            self._loop.wake()

    async def tick(self) -> float:
        asked = list(self._open)
        if not asked:
            return CHECK_EVERY
        keys = {access.key for access in asked if access.session is None and access.key is not None}
        try:
            ended = await self._sessions.ended(keys, {access.session for access in asked if access.session is not None})
        except Exception as error:
            expected = isinstance(error, DetentError)
            if self.confirmed:
                text = "keys and sessions of open requests cannot be checked; it is retried"
                log.warning(text, error=str(error), exc_info=not expected)
            self.confirmed = False  # also after an error that was not expected: what is unknown is not confirmed
            return CHECK_EVERY
        self.confirmed = True
        for access in asked:
            if access.is_over(ended):
                for on_end in list(self._open.get(access, ())):
                    on_end()
        return CHECK_EVERY

    def _start(self) -> None:
        if self._loop is None and not self._closed:
            self._loop = Loop("open requests", self.tick)
            self._loop.start()

    async def close(self) -> None:
        self._closed = True
        if self._loop is not None:
            await self._loop.abort()
