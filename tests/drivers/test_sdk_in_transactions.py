"""`options(connection=…)`: an app's task is enqueued as a part of a transaction of the caller, with each driver."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from detent import Detent
from detent.errors import NotAuthorised, NotFound, UsageError
from tests.drivers.test_enqueue_in_transactions import application as application
from tests.drivers.test_enqueue_in_transactions import owner as owner
from tests.drivers.test_enqueue_in_transactions import runs

Transaction = Callable[[str], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def asyncpg_connection(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_of_a_pool(url: str) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def psycopg_connection(url: str) -> AsyncIterator[Any]:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        yield connection


@asynccontextmanager
async def psycopg_async_connection(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as connection:
        yield connection


def sqlalchemy_url(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://", 1)


@asynccontextmanager
async def sqlalchemy_connection(url: str) -> AsyncIterator[Any]:
    engine = create_engine(sqlalchemy_url(url, "psycopg"))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@asynccontextmanager
async def sqlalchemy_session(url: str) -> AsyncIterator[Any]:
    engine = create_engine(sqlalchemy_url(url, "psycopg"))
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


@asynccontextmanager
async def sqlalchemy_async_connection(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(sqlalchemy_url(url, "asyncpg"))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def sqlalchemy_async_session(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(sqlalchemy_url(url, "psycopg"))
    try:
        async with AsyncSession(engine) as session, session.begin():
            yield session
    finally:
        await engine.dispose()


AWAITED = [
    asyncpg_connection, asyncpg_of_a_pool, psycopg_async_connection, sqlalchemy_async_connection,
    sqlalchemy_async_session,
]  # fmt: skip
BLOCKING = [psycopg_connection, sqlalchemy_connection, sqlalchemy_session]


@pytest.fixture
def app(application: str) -> Detent:
    """It knows no address: the connection of the caller is enough."""
    app = Detent(tenant="shop")

    @app.task
    def mail(order: int) -> None: ...

    return app


@pytest.fixture(params=[*AWAITED, *BLOCKING], ids=lambda kind: kind.__name__)
def transaction(request: pytest.FixtureRequest) -> Transaction:
    kind: Transaction = request.param
    return kind


async def test_a_commit_leaves_the_run_and_a_rollback_leaves_none(
    app: Detent, application: str, transaction: Transaction, owner: psycopg.Connection
) -> None:
    mail: Any = app.tasks["mail"]
    async with transaction(application) as connection:
        handle = await mail.options(connection=connection, priority=7).enqueue(order=1)
        assert runs(owner) == {}
    assert runs(owner) == {handle.id: {"order": 1}} and handle.created
    with pytest.raises(ZeroDivisionError):
        async with transaction(application) as connection:
            await mail.options(connection=connection).enqueue_many([mail.call(2), mail.call(3)])
            raise ZeroDivisionError
    assert runs(owner) == {handle.id: {"order": 1}}


@pytest.mark.parametrize("transaction", BLOCKING, ids=lambda kind: kind.__name__)
async def test_a_plain_function_uses_its_blocking_connection(
    app: Detent, application: str, transaction: Transaction, owner: psycopg.Connection
) -> None:
    mail: Any = app.tasks["mail"]
    async with transaction(application) as connection:
        handle = mail.options(connection=connection).enqueue_sync(order=1)
        assert runs(owner) == {}
    assert list(runs(owner)) == [handle.id]


async def test_what_the_database_refuses_is_said_in_the_words_of_the_sdk(
    app: Detent, application: str, transaction: Transaction, owner: psycopg.Connection
) -> None:
    mail: Any = app.tasks["mail"]
    cases: list[tuple[Callable[[Any], Awaitable[Any]], type[Exception], str]] = [
        (lambda c: mail.options(connection=c, unique_for=5).enqueue(1), UsageError, "unique"),
        (lambda c: app.task(name="none")(no_task).options(connection=c).enqueue(), NotFound, "no task or job 'none'"),
    ]
    for enqueue, kind, words in cases:
        with pytest.raises(kind, match=words):
            async with transaction(application) as connection:
                await enqueue(connection)
    other: Any = Detent(tenant="default").task(name="ours")(no_task)
    with pytest.raises(NotAuthorised, match="may not enqueue for the tenant default"):
        async with transaction(application) as connection:
            await other.options(connection=connection).enqueue()
    assert runs(owner) == {}


def no_task() -> None: ...


async def test_a_connection_that_has_to_be_awaited_is_refused_by_blocking_calls(app: Detent, application: str) -> None:
    mail: Any = app.tasks["mail"]
    for transaction in AWAITED:
        async with transaction(application) as connection:
            with pytest.raises(UsageError, match="This connection has to be awaited"):
                mail.options(connection=connection).enqueue_sync(1)


async def test_something_else_than_a_connection_is_refused(app: Detent) -> None:
    mail: Any = app.tasks["mail"]
    with pytest.raises(UsageError, match=r"connection= got a builtins\.str: give a connection of asyncpg or psycopg"):
        await mail.options(connection="postgresql://").enqueue(1)


@pytest.fixture
def django_connection(application: str) -> Iterator[Any]:
    """Django's own connection object, to the application's database."""
    from urllib.parse import parse_qs, urlsplit

    import django
    from django.conf import settings
    from django.db import connections

    parts = urlsplit(application)
    reach = {key: values[0] for key, values in parse_qs(parts.query).items()}
    database = {
        "ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "USER": parts.username,
        "HOST": reach["host"], "PORT": reach["port"],
    }  # fmt: skip
    if not settings.configured:
        settings.configure(DATABASES={"default": database}, USE_TZ=True)
        django.setup()
    connections.settings = connections.configure_settings({"default": database})
    if hasattr(connections._connections, "default"):
        del connections["default"]
    yield connections["default"]
    connections.close_all()


def test_the_connection_of_django_is_used_in_its_own_transaction(
    app: Detent, django_connection: Any, owner: psycopg.Connection
) -> None:
    from django.db import connection, transaction

    mail: Any = app.tasks["mail"]
    for given in (django_connection, connection):
        owner.execute("DELETE FROM backlog")
        with transaction.atomic():
            handle = mail.options(connection=given).enqueue_sync(1)
            assert runs(owner) == {}
        assert list(runs(owner)) == [handle.id]
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            mail.options(connection=given).enqueue_sync(2)
            raise ZeroDivisionError
        assert list(runs(owner)) == [handle.id]


async def test_a_role_that_may_only_enqueue_is_told_to_use_the_api_for_the_rest(
    application: str, owner: psycopg.Connection
) -> None:
    app = Detent(url=application, tenant="shop")
    mail = app.task(name="mail")(mail_of_order)
    try:
        handle = await mail.enqueue(order=1)
        assert list(runs(owner)) == [handle.id]
        for refused in (handle.status, handle.cancel, handle.result, app.register):
            with pytest.raises(NotAuthorised, match="This database role may only enqueue: give the app the address"):
                await refused()
    finally:
        await app.close()
    other = Detent(url=application)
    with pytest.raises(NotAuthorised, match="may not enqueue for the tenant default"):
        await other.task(name="ours")(no_task).enqueue()
    await other.close()


def mail_of_order(order: int) -> None: ...
