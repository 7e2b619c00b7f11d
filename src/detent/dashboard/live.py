"""Live updates: all visitors of the same page share one rendering of it.

There is one loop per process. Each pass renders the live parts of every open page and sends those that changed. The
longer a pass takes, the longer the pause after it, so that open pages never use a large share of the process.

A second loop asks the database for its time once a second while any page is open, and sends each answer as a `beat`
event. Without an answer there is no beat: the browser measures how long ago the last one came.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from detent.dashboard.error_text import page_error_text
from detent.dashboard.formatting import iso
from detent.dashboard.heartbeat import DatabaseHeartbeat, DatabaseSilent, within
from detent.errors import DetentError, Unavailable
from detent.runtime.clock import monotonic
from detent.runtime.service import Loop
from detent.telemetry.log import logger

log = logger("dashboard")

Render = Callable[[], Coroutine[Any, Any, Mapping[str, str]]]

EVERY = 2.0
BEAT_EVERY = 1.0
RENDER_SECONDS = 30.0  # the loop skips a page that takes longer
TOO_SLOW = "The database is too slow for this page."
IDLE = 3600.0
LONGEST = 15.0
REST = 5.0  # the pause after a pass is at least this many times as long as the pass
MAX_STREAMS = 500
MAX_WAITING = 4
_LINE_ENDS = re.compile(r"\r\n|\r|\n")


class TooManyPages(Unavailable):
    def __init__(self) -> None:
        super().__init__("Too many pages are open: this one is not updated. Reload it to see changes.")


class Stream:
    """The messages for one browser. `fresh`: its next message must contain all parts."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_WAITING)
        self._ended = False
        self.fresh = True

    def send(self, message: bytes | None) -> None:
        """Drop the queue of a browser that is too slow, and send it all parts with the next change."""
        if self._ended:
            return
        if self._waiting.full():
            self._drop_waiting()
            self.fresh = True
        self._waiting.put_nowait(message)

    def beat(self, message: bytes) -> None:
        """Send only if nothing else waits: a late heartbeat is worthless."""
        if self._waiting.empty() and not self._ended:
            self._waiting.put_nowait(message)

    def end(self, message: bytes) -> None:
        """Send this message instead of all that wait, and nothing after it."""
        if not self._ended:
            self._ended = True
            self._drop_waiting()
            self._waiting.put_nowait(message)
            self._waiting.put_nowait(None)

    def _drop_waiting(self) -> None:
        while not self._waiting.empty():
            self._waiting.get_nowait()

    async def next(self) -> bytes | None:
        return await self._waiting.get()


class Topic:
    """One rendered page and the streams of its visitors."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._parts: dict[str, str] = {}
        self.streams: set[Stream] = set()

    async def refresh(self) -> None:
        try:
            parts = dict(await within(RENDER_SECONDS, self._render()))
        except DatabaseSilent:
            self._send_trouble(event("trouble", TOO_SLOW))
            return
        except DetentError as error:
            self._send_trouble(event("trouble", page_error_text(error)))
            return
        changed = {name: html for name, html in parts.items() if self._parts.get(name) != html}
        self._parts = parts
        update = message(changed) if changed else None
        everything = message(parts) if any(stream.fresh for stream in self.streams) else None
        for stream in self.streams:
            sent = everything if stream.fresh else update
            stream.fresh = False
            if sent is not None:
                stream.send(sent)

    def _send_trouble(self, sent: bytes) -> None:
        for stream in self.streams:
            stream.fresh = True
            stream.send(sent)


class Hub:
    def __init__(self, heartbeat: DatabaseHeartbeat | None = None, may_send: Callable[[], bool] = lambda: True) -> None:
        """Without a `heartbeat`, only the pages themselves query the database. `may_send`: whether it is known that the
        visitors may still see their pages."""
        self._topics: dict[Hashable, Topic] = {}
        self._heartbeat = heartbeat
        self._may_send = may_send
        self._loop: Loop | None = None
        self._beats: Loop | None = None
        self._closed = False

    @property
    def streams(self) -> int:
        return sum(len(topic.streams) for topic in self._topics.values())

    def check(self) -> None:
        """Raise if no further stream can be opened."""
        if self._closed or self.streams >= MAX_STREAMS:
            raise TooManyPages

    @contextmanager
    def stream(self, key: Hashable, render: Render) -> Iterator[Stream]:
        """`key` is everything that decides the content of the page: the page and the rights of its visitor."""
        self.check()
        topic = self._topics.setdefault(key, Topic(render))
        stream = Stream()
        topic.streams.add(stream)
        self.wake()
        self._start_beating()
        try:
            yield stream
        finally:
            topic.streams.discard(stream)
            if not topic.streams and self._topics.get(key) is topic:
                del self._topics[key]

    def wake(self) -> None:
        """Refresh at once: a page was opened, or data changed."""
        if self._loop is None and not self._closed:
            self._loop = Loop("dashboard", self.tick)
            self._loop.start()
        elif self._loop is not None:
            self._loop.wake()

    def _start_beating(self) -> None:
        if self._heartbeat is None or self._closed:
            return
        if self._beats is None:
            self._beats = Loop("dashboard heartbeat", self.beat)
            self._beats.start()
        else:
            self._beats.wake()

    async def beat(self) -> float:
        """Ask the database once for all pages, and send its answer to each."""
        if self._heartbeat is None or not self._topics:
            return IDLE
        was_silent = self._heartbeat.silent
        answered = await self._heartbeat.answer()
        if answered is not None:
            if was_silent:
                self.wake()
            sent = event("beat", iso(answered))
            for topic in self._topics.values():
                for stream in topic.streams:
                    stream.beat(sent)
        return BEAT_EVERY

    async def tick(self) -> float:
        if not self._topics:
            return IDLE
        if self._heartbeat is not None and self._heartbeat.silent:
            return EVERY  # every statement would hang and block a connection
        if not self._may_send():
            return EVERY
        began = monotonic()
        for topic in list(self._topics.values()):
            if topic.streams:
                await topic.refresh()
        return min(max(EVERY, (monotonic() - began) * REST), LONGEST)

    async def close(self) -> None:
        """End every stream and both loops."""
        self._closed = True
        for loop in (self._loop, self._beats):
            if loop is not None:
                await loop.abort()
        for topic in self._topics.values():
            for stream in topic.streams:
                stream.send(None)


def message(parts: Mapping[str, str]) -> bytes:
    """Each part replaces the content of the element whose id is its name."""
    html = "\n".join(
        f'<hx-partial hx-target="#{name}" hx-swap="innerMorph">{html}</hx-partial>' for name, html in parts.items()
    )
    return _lines(html)


def event(name: str, text: str) -> bytes:
    return f"event: {name}\n".encode() + _lines(text)


def _lines(text: str) -> bytes:
    return b"".join(b"data: " + line.encode() + b"\n" for line in _LINE_ENDS.split(text)) + b"\n"
