"""Nodes of this process on a transport, schedulers and workers apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from detent.domain.identity import decode_run_id
from detent.domain.run import Call, Failed, Outcome, Succeeded
from detent.node.session import Session
from detent.store.upkeep import RUNS_CHANNEL
from detent.telemetry.metrics import Metrics
from detent.worker import worker
from detent.worker.queues import book
from tests.support.sessions import start
from tests.support.waiting import until
from tests.transports.carriers import CARRIERS, Carrier

__all__ = ["start"]

SHORT = ("redis",)
"""With these every change is tested; with the others, in the long tests."""


@pytest.fixture(
    params=[name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in CARRIERS],
)
def carrier_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rarely: what runs in these tests was offered or announced, and not found by a poll."""
    monkeypatch.setattr(worker, "POLL_EVERY", 60.0)
    monkeypatch.setattr(book, "READ_EVERY", 3.0)


class Target:
    """Records the calls of all workers; while the gate is closed, calls do not end."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.failing = 0
        self.running = self.most = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, call: Call) -> Outcome:
        self.calls.append(call)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.gate.wait()
        finally:
            self.running -= 1
        return Failed("not yet", retry_after=1800) if call.attempt <= self.failing else Succeeded()

    @property
    def runs(self) -> list[str]:
        return [call.run_id for call in self.calls]

    @property
    def jobs(self) -> list[int]:
        keys = [decode_run_id(UUID(run)) for run in self.runs]
        return [key.job for key in keys if key is not None]

    def called_once_each(self, count: int) -> bool:
        return len(self.runs) == len(set(self.runs)) == count


class Apart:
    """A cluster whose nodes either schedule or work."""

    def __init__(self, start: Callable[..., Awaitable[Session]], look: Any, address: str) -> None:
        self._start = start
        self._look = look
        self.address = address
        self.target = Target()

    async def scheduler(self, **settings: Any) -> Session:
        session = await self._start(
            roles=("scheduler",), metrics=Metrics(), **{"queue": self.address, "lease_ttl_seconds": 30.0, **settings}
        )
        await until(lambda: 0 in session.leadership.terms)
        return session

    async def worker(self, **settings: Any) -> Session:
        """A worker that waits for offers, unless it has other work."""
        session = await self._start(
            self.target,
            roles=("worker",),
            metrics=Metrics(),
            **{"queue": self.address, "lease_ttl_seconds": 30.0, **settings},
        )
        await until(
            lambda: session.worker is not None and session.worker._claiming.serving, what="the queues to be known"
        )
        return session

    async def ended(self, count: int, status: int = 1) -> list[Any]:
        """The rows of history, when there are so many."""

        async def rows() -> list[Any]:
            found: list[Any] = await self._look.fetch(
                "SELECT * FROM run_history WHERE status = $1 ORDER BY scheduled_at, job", status
            )
            return found if len(found) >= count else []

        return list(await until(rows, 30, f"{count} runs with status {status}"))

    async def waiting(self, count: int) -> None:
        """Until so many runs wait in their queues."""
        await until(
            lambda: self._look.fetchval("SELECT count(*) = $1 FROM live_runs WHERE owner IS NULL", count),
            what=f"{count} runs to wait",
        )


@pytest.fixture
def apart(start: Callable[..., Awaitable[Session]], look: Any, carrier: Carrier) -> Apart:
    return Apart(start, look, carrier.address())


@pytest.fixture
async def cluster_of(look: Any) -> str:
    """The cluster of the test's database, as the broker knows it."""
    return str(await look.fetchval("SELECT id FROM cluster"))


@pytest.fixture
async def announced(look: Any) -> AsyncIterator[list[str]]:
    """The payloads of notifications about runs, as nodes hear them."""
    heard: list[str] = []

    def hear(_connection: Any, _pid: int, _channel: str, payload: str) -> None:
        heard.append(payload)

    await look.add_listener(RUNS_CHANNEL, hear)
    yield heard
    await look.remove_listener(RUNS_CHANNEL, hear)
