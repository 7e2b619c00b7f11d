"""Pages kept up to date: whoever looks at the same page shares one rendering of it, made once for all of them.

There is one loop per process. Each of its passes renders the live parts of every page that somebody looks at and sends
those that changed. The longer a pass takes, the longer the pause after it: looking never takes a large share of what
the process is there for.

A second loop asks the database for its time once a second while any page is open, and passes each answer on as a
`beat`. Without an answer there is no beat: the browser counts by itself how long it has had none.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from detent.dashboard.faults import plain_words
from detent.dashboard.heartbeat import DatabaseSilent, Heartbeat, within
from detent.dashboard.words import iso
from detent.errors import DetentError, Unavailable
from detent.runtime.clock import monotonic
from detent.runtime.service import Loop
from detent.telemetry.log import logger

log = logger("dashboard")

Render = Callable[[], Coroutine[Any, Any, Mapping[str, str]]]

EVERY = 2.0
BEAT_EVERY = 1.0
RENDER_SECONDS = 30.0  # a page that hangs for longer leaves the loop to the others
TOO_SLOW = "The database takes too long for this page."
IDLE = 3600.0
LONGEST = 15.0
REST = 5.0  # a pass is followed by a pause at least so many times as long
MOST_STREAMS = 500
WAITING = 4
_LINE_ENDS = re.compile(r"\r\n|\r|\n")


class TooManyPages(Unavailable):
    def __init__(self) -> None:
        super().__init__("So many pages are open that this one is not kept up to date: reload it to look again.")


class Stream:
    """What one browser is sent. `fresh`: it has not got everything yet."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue(WAITING)
        self.fresh = True

    def send(self, message: bytes | None) -> None:
        """A browser that is too slow misses what came between, and gets everything with the next change."""
        if self._waiting.full():
            while not self._waiting.empty():
                self._waiting.get_nowait()
            self.fresh = True
        self._waiting.put_nowait(message)

    def beat(self, message: bytes) -> None:
        """Never in the way of what is to be sent, nor kept for later: a late heartbeat says nothing."""
        if self._waiting.empty():
            self._waiting.put_nowait(message)

    async def next(self) -> bytes | None:
        return await self._waiting.get()


class Topic:
    """A page as somebody sees it, and all who look at it."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._parts: dict[str, str] = {}
        self.streams: set[Stream] = set()

    async def refresh(self) -> None:
        try:
            parts = dict(await within(RENDER_SECONDS, self._render()))
        except DatabaseSilent:
            self._tell(event("trouble", TOO_SLOW))
            return
        except DetentError as error:
            self._tell(event("trouble", plain_words(error)))
            return
        changed = {name: html for name, html in parts.items() if self._parts.get(name) != html}
        self._parts = parts
        update = message(changed) if changed else None
        everything = message(parts) if any(stream.fresh for stream in self.streams) else None
        for stream in self.streams:
            told = everything if stream.fresh else update
            stream.fresh = False
            if told is not None:
                stream.send(told)

    def _tell(self, told: bytes) -> None:
        for stream in self.streams:
            stream.fresh = True
            stream.send(told)


class Hub:
    def __init__(self, heartbeat: Heartbeat | None = None) -> None:
        """Without a `heartbeat`, nothing asks the database beside the pages."""
        self._topics: dict[Hashable, Topic] = {}
        self._heartbeat = heartbeat
        self._loop: Loop | None = None
        self._beats: Loop | None = None
        self._closed = False

    @property
    def streams(self) -> int:
        return sum(len(topic.streams) for topic in self._topics.values())

    @contextmanager
    def stream(self, key: Hashable, render: Render) -> Iterator[Stream]:
        """`key` is all that decides how the page looks: who looks at what."""
        if self._closed or self.streams >= MOST_STREAMS:
            raise TooManyPages
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
        """Look again at once: somebody came, or changed something."""
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
        """Ask the database once for all pages, and pass its answer on."""
        if self._heartbeat is None or not self._topics:
            return IDLE
        was_silent = self._heartbeat.silent
        answered = await self._heartbeat.answer()
        if answered is not None:
            if was_silent:
                self.wake()
            told = event("beat", iso(answered))
            for topic in self._topics.values():
                for stream in topic.streams:
                    stream.beat(told)
        return BEAT_EVERY

    async def tick(self) -> float:
        if not self._topics:
            return IDLE
        if self._heartbeat is not None and self._heartbeat.silent:
            return EVERY  # every statement would hang, and take a connection with it
        began = monotonic()
        for topic in list(self._topics.values()):
            if topic.streams:
                await topic.refresh()
        return min(max(EVERY, (monotonic() - began) * REST), LONGEST)

    async def close(self) -> None:
        """End every stream, and the loop."""
        self._closed = True
        for loop in (self._loop, self._beats):
            if loop is not None:
                await loop.abort()
        for topic in self._topics.values():
            for stream in topic.streams:
                stream.send(None)


def message(parts: Mapping[str, str]) -> bytes:
    """Each part goes into the element that has its name as id."""
    html = "\n".join(
        f'<hx-partial hx-target="#{name}" hx-swap="innerMorph">{html}</hx-partial>' for name, html in parts.items()
    )
    return _lines(html)


def event(name: str, text: str) -> bytes:
    return f"event: {name}\n".encode() + _lines(text)


def _lines(text: str) -> bytes:
    return b"".join(b"data: " + line.encode() + b"\n" for line in _LINE_ENDS.split(text)) + b"\n"
