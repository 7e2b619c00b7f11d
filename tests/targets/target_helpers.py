"""Calls to make, and waiting with a bound."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from uuid import uuid4

from detent.domain.job import HttpTarget, ShellTarget, Target
from detent.domain.run import Call, Failed, NotBegun, Outcome, Succeeded

RUN_ID = "01987f2e-4c00-7000-8000-0000000004d2"


def call_of(target: Target, payload: Any = None, **changes: Any) -> Call:
    facts: dict[str, Any] = {
        "job_id": "01987f2e-0000-7000-8000-000000000001",
        "job": "nightly-report",
        "run_id": RUN_ID,
        "scheduled_at": datetime(2026, 3, 1, 6, 30, tzinfo=UTC),
        "attempt": 1,
        "idempotency_key": "nightly-report:2026-03-01T06:30:00Z",
        "token": 8589934593,
        "timeout_seconds": 300.0,
    }
    return Call(payload=payload, target=target, **(facts | changes))


def http_call(url: str, payload: Any = None, *, method: str = "POST", **changes: Any) -> Call:
    headers = changes.pop("headers", {})
    return call_of(HttpTarget(url=url, method=method, headers=headers), payload, **changes)  # type: ignore[arg-type]


def shell_call(command: str | list[str], payload: Any = None, **changes: Any) -> Call:
    """Each with a run of its own: the processes of a run are found by its id."""
    env = changes.pop("env", {})
    facts = {"run_id": str(uuid4())} | changes
    return call_of(ShellTarget(command=command, env=env), payload, **facts)


def succeeded(outcome: Outcome | NotBegun) -> dict[str, Any]:
    assert isinstance(outcome, Succeeded), outcome
    return result_of(outcome)


def failed(outcome: Outcome | NotBegun) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


def result_of(outcome: Outcome | NotBegun) -> dict[str, Any]:
    assert isinstance(outcome, Succeeded | Failed)
    assert outcome.result is not None
    assert "\0" not in outcome.result
    assert "\\u0000" not in outcome.result
    answer = json.loads(outcome.result)
    assert isinstance(answer, dict)
    return answer


async def eventually(condition: Callable[[], object], what: str, attempts: int = 1000) -> None:
    for _ in range(attempts):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never came true: {what}")


def _status(pid: int) -> list[str]:
    """State, parent and so on; nothing for a process that is gone."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ["X", "0"]
    return status[status.rindex(")") + 2 :].split()


def is_alive(pid: int) -> bool:
    """A process that runs; one that ended and waits for its parent does not count."""
    return _status(pid)[0] not in "ZX"


def children_of_ours() -> set[int]:
    """Living or dead: a dead one that is still there was not reaped."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return {pid for pid in pids if _status(pid)[1] == str(os.getpid())}


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class Received(NamedTuple):
    method: str
    path: str
    headers: dict[str, list[str]]
    body: bytes

    def header(self, name: str) -> str:
        values = self.headers[name.lower()]
        assert len(values) == 1, values
        return values[0]


Answer = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


def answer(status: str = "200 OK", body: bytes = b"", *headers: str) -> Answer:
    async def write(_: Received, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
        writer.write("\r\n".join(lines).encode() + body)
        await writer.drain()

    return write


class Sink:
    """An HTTP server that keeps what it receives and sends whatever bytes it is told to."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.connections = 0
        self.gone = asyncio.Event()
        self.answer: Answer = answer()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await eventually(lambda: not self._writers, "every connection of the sink ended")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                self.received.append(await self._receive(reader))
                await self.answer(self.received[-1], writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()
        finally:
            writer.close()
            self._writers.discard(writer)

    async def _receive(self, reader: asyncio.StreamReader) -> Received:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        headers: dict[str, list[str]] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers.setdefault(name.lower(), []).append(value.strip())
        assert "transfer-encoding" not in headers
        body = await reader.readexactly(int(headers.get("content-length", ["0"])[0]))
        method, path, _ = first.split(" ")
        return Received(method, path, headers, body)
