"""A session in this process against a database of its own, and a connection to look at the tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from detent.model import Call, Outcome, Succeeded
from detent.session import Session
from detent.settings import Settings
from detent.store import Database, Store
from detent.store.db import connect

StartSession = Callable[..., Awaitable[Session]]


async def no_op(_call: Call) -> Outcome:
    return Succeeded()


@pytest.fixture
async def look(database_url: str) -> AsyncIterator[Any]:
    connection = await connect(database_url, "detent")
    yield connection
    await connection.close()


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    database = Database(database_url)
    await database.open()
    yield Store(database)
    await database.close()


@pytest.fixture
async def start(store: Store) -> AsyncIterator[StartSession]:
    """Start sessions; those still open at the end are closed."""
    opened: list[Session] = []
    async with AsyncExitStack():

        async def start_session(
            runner: Callable[[Call], Awaitable[Outcome]] = no_op,
            roles: tuple[str, ...] = ("scheduler", "worker"),
            **settings: Any,
        ) -> Session:
            session = Session(store, Settings(**{"concurrency": 10, **settings}), roles, {"http": runner}, [])
            await session.open()
            opened.append(session)
            return session

        yield start_session
        for session in opened:
            if not session.closed:
                await session.close(0)
