"""Fixtures for sessions in the test's own process, on whatever database `reach` names. To be imported by a conftest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from detent.domain.job import TargetKind
from detent.domain.run import Call, NotBegun, Outcome, Succeeded
from detent.node.session import Session
from detent.settings.settings import Settings
from detent.store import Store
from detent.targets.messenger import Messenger
from detent.telemetry.metrics import Metrics
from detent.worker import worker
from detent.worker.execute import Runner
from detent.worker.queues import book
from detent.worker.secrets import SecretValues

StartSession = Callable[..., Awaitable[Session]]


async def no_op(_call: Call) -> Outcome:
    return Succeeded()


@pytest.fixture
def looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told of what tests change in the tables, so what is a last resort elsewhere is the rule here."""
    monkeypatch.setattr(worker, "POLL_EVERY", 1.0)
    monkeypatch.setattr(book, "READ_EVERY", 3.0)


@pytest.fixture
async def start(store: Store, looking_often: None) -> AsyncIterator[StartSession]:
    """Start sessions; those still open at the end are closed."""
    opened: list[Session] = []

    async def start_session(
        runner: Callable[[Call], Awaitable[Outcome]] = no_op,
        roles: tuple[str, ...] = ("scheduler", "worker"),
        metrics: Metrics | None = None,
        messenger: Messenger | None = None,
        secrets: SecretValues | None = None,
        topic: Callable[[Call], Awaitable[Outcome | NotBegun]] | None = None,
        **settings: Any,
    ) -> Session:
        chosen = Settings(**{"concurrency": 10, **settings})
        runners: dict[TargetKind, Runner] = {"http": runner}
        if topic is not None:
            runners["topic"] = topic
        session = Session(store, chosen, roles, runners, [], metrics=metrics, messenger=messenger, secrets=secrets)
        await session.open()
        opened.append(session)
        return session

    yield start_session
    for session in opened:
        if not session.closed:
            await session.close(0)
