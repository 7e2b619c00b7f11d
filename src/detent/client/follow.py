"""Follow the lines of a run: a stream of events that is opened again, from the last line on, when it breaks."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

from detent.client.requests import run_path
from detent.client.transport import ApiConnection, with_query
from detent.contract.run import LogLine, RunProgress
from detent.errors import Unavailable

if TYPE_CHECKING:
    from detent.client.async_client import AsyncClient

# The server sends something at least every 15 s.
SILENT_SECONDS = 45.0
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 5.0
MAX_FAILURES = 12


class RunEvent(NamedTuple):
    """`kind` is line, progress or end; `data` is its JSON."""

    kind: str
    data: bytes
    id: str | None


class EventReader:
    """Puts the lines of a stream of events together."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def take(self, line: str) -> RunEvent | None:
        """The event that this line ends, if it ends one."""
        if line.startswith(":"):
            return None
        if line:
            name, _, value = line.partition(":")
            self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None
        return RunEvent(fields.get("event", "message"), fields["data"].encode(), fields.get("id"))


class Follower:
    """Which request comes next, and whether to try again: for clients that block and clients that await."""

    def __init__(self, run: str | UUID, attempt: int | None) -> None:
        self.target = with_query(f"{run_path(run)}/logs", {"attempt": attempt})
        self._last: str | None = None
        self._failures = 0
        self.over = False

    @property
    def headers(self) -> dict[str, str]:
        place = {} if self._last is None else {"Last-Event-ID": self._last}
        return {"Accept": "text/event-stream", **place}

    def note(self, event: RunEvent) -> None:
        self._failures = 0
        self._last = event.id or self._last
        self.over = event.kind == "end"

    def pause(self, error: Unavailable | None) -> float:
        """How long to wait before the stream is opened again; raises the error when that was tried too often."""
        self._failures += 1
        if self._failures > MAX_FAILURES:
            raise error or Unavailable("The server ends each answer before the run has ended: follow it later.")
        return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (self._failures - 1)))


def follow(connection: ApiConnection, run: str | UUID, attempt: int | None = None) -> Iterator[RunEvent]:
    follower, failed = Follower(run, attempt), None
    while True:
        try:
            with closing(connection.stream(follower.target, follower.headers, SILENT_SECONDS)) as lines:
                reader = EventReader()
                for line in lines:
                    if (event := reader.take(line)) is not None:
                        follower.note(event)
                        yield event
                        if follower.over:
                            return
            failed = None
        except Unavailable as error:
            failed = error
        threading.Event().wait(follower.pause(failed))


async def follow_async(client: AsyncClient, run: str | UUID, attempt: int | None = None) -> AsyncIterator[RunEvent]:
    from asyncio import sleep  # not for those who use the blocking client

    follower, failed = Follower(run, attempt), None
    while True:
        try:
            reader = EventReader()
            async for line in client._stream(follower.target, follower.headers, SILENT_SECONDS):
                if (event := reader.take(line)) is not None:
                    follower.note(event)
                    yield event
                    if follower.over:
                        return
            failed = None
        except Unavailable as error:
            failed = error
        await sleep(follower.pause(failed))


_KINDS: dict[str, Callable[[bytes], Any]] = {
    "line": msgspec.json.Decoder(LogLine).decode,
    "progress": msgspec.json.Decoder(RunProgress).decode,
}


def typed_event(event: RunEvent) -> LogLine | RunProgress | None:
    """None: an event that has no form of its own, such as the end."""
    read = _KINDS.get(event.kind)
    found: LogLine | RunProgress | None = None if read is None else read(event.data)
    return found
