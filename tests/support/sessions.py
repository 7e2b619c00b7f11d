"""Fixtures for sessions in the test's own process, on whatever database `reach` names. To be imported by a conftest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from detent.domain.run import Call, Outcome, Succeeded
from detent.node.session import Session
from detent.settings.settings import Settings
from detent.store import Database, Store
from detent.store.db import connect
from detent.store.limits import REQUEST_LIMITS
from detent.targets.messenger import Messenger
from detent.telemetry.metrics import Metrics
from detent.worker import worker
from detent.worker.queues import book

StartSession = Callable[..., Awaitable[Session]]


async def no_op(_call: Call) -> Outcome:
    return Succeeded()


@pytest.fixture
async def look(database_url: str) -> AsyncIterator[Any]:
    """A connection to look at the tables, past any pooler."""
    connection = await connect(database_url, "detent", REQUEST_LIMITS)
    yield connection
    await connection.close()


@pytest.fixture
async def store(reach: dict[str, Any]) -> AsyncIterator[Store]:
    database = Database(**reach)
    await database.open()
    yield Store(database)
    await database.close()


@pytest.fixture
def looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told of what tests change in the tables, so what is a last resort elsewhere is the rule here."""
    monkeypatch.setattr(worker, "POLL_EVERY", 1.0)
    monkeypatch.setattr(book, "LOOK_EVERY", 3.0)


@pytest.fixture
async def start(store: Store, looking_often: None) -> AsyncIterator[StartSession]:
    """Start sessions; those still open at the end are closed."""
    opened: list[Session] = []

    async def start_session(
        runner: Callable[[Call], Awaitable[Outcome]] = no_op,
        roles: tuple[str, ...] = ("scheduler", "worker"),
        metrics: Metrics | None = None,
        messenger: Messenger | None = None,
        **settings: Any,
    ) -> Session:
        chosen = Settings(**{"concurrency": 10, **settings})
        session = Session(store, chosen, roles, {"http": runner}, [], metrics=metrics, messenger=messenger)
        await session.open()
        opened.append(session)
        return session

    yield start_session
    for session in opened:
        if not session.closed:
            await session.close(0)
