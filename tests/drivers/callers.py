"""Drivers and frameworks of applications, each with its own transactions, savepoints and parameters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import asyncpg
import django
import psycopg
import sqlalchemy
from django.conf import settings
from django.db import connections
from django.db import transaction as django_transaction
from psycopg.types.json import Jsonb


class Caller(Protocol):
    """A connection of an application."""

    @property
    def error(self) -> type[Exception]: ...

    def transaction(self, isolation: str | None = None) -> Any: ...
    def savepoint(self) -> Any: ...
    def add_order(self, number: int) -> None: ...
    def enqueue(self, task: str, payload: Any, priority: int | None = None) -> Any: ...
    def enqueue_many(self, task: str, runs: list[Any]) -> list[Any]: ...
    def close(self) -> None: ...


class PsycopgCaller:
    error = psycopg.Error

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)

    @contextmanager
    def transaction(self, isolation: str | None = None) -> Iterator[None]:
        level = None if isolation is None else psycopg.IsolationLevel[isolation.replace(" ", "_")]
        self.connection.isolation_level = level
        with self.connection.transaction():
            yield

    def savepoint(self) -> Any:
        return self.connection.transaction()

    def add_order(self, number: int) -> None:
        self.connection.execute("INSERT INTO orders VALUES (%s)", (number,))

    def enqueue(self, task: str, payload: Any, priority: int | None = None) -> Any:
        query = "SELECT run FROM detent.enqueue(%s, %s, priority => %s, tenant => 'shop')"
        return self.connection.execute(query, (task, Jsonb(payload), priority)).fetchall()[0][0]

    def enqueue_many(self, task: str, runs: list[Any]) -> list[Any]:
        query = "SELECT run FROM detent.enqueue_many(%s, %s, 'shop')"
        return [row[0] for row in self.connection.execute(query, (task, Jsonb(runs)))]

    def close(self) -> None:
        self.connection.close()


class AsyncpgCaller:
    error = asyncpg.PostgresError

    def __init__(self, url: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.connection = self.loop.run_until_complete(asyncpg.connect(url))

    @contextmanager
    def transaction(self, isolation: str | None = None) -> Iterator[None]:
        transaction = self.connection.transaction(isolation=isolation and isolation.lower().replace(" ", "_"))
        self.loop.run_until_complete(transaction.start())
        try:
            yield
        except BaseException:
            self.loop.run_until_complete(transaction.rollback())
            raise
        self.loop.run_until_complete(transaction.commit())

    def savepoint(self) -> Any:
        return self.transaction()

    def add_order(self, number: int) -> None:
        self._fetch("INSERT INTO orders VALUES ($1)", number)

    def enqueue(self, task: str, payload: Any, priority: int | None = None) -> Any:
        query = "SELECT run FROM detent.enqueue($1, $2, priority => $3, tenant => 'shop')"
        return self._fetch(query, task, json.dumps(payload), priority)[0]["run"]

    def enqueue_many(self, task: str, runs: list[Any]) -> list[Any]:
        query = "SELECT run FROM detent.enqueue_many($1, $2, 'shop')"
        return [row["run"] for row in self._fetch(query, task, json.dumps(runs))]

    def close(self) -> None:
        self.loop.run_until_complete(self.connection.close())
        self.loop.close()

    def _fetch(self, query: str, *arguments: object) -> list[Any]:
        return self.loop.run_until_complete(self.connection.fetch(query, *arguments))


class SqlAlchemyCaller:
    error = sqlalchemy.exc.DBAPIError

    def __init__(self, url: str) -> None:
        self.engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
        self.connection = self.engine.connect()

    @contextmanager
    def transaction(self, isolation: str | None = None) -> Iterator[None]:
        self.connection.execution_options(isolation_level=isolation or "READ COMMITTED")
        with self.connection.begin():
            yield

    def savepoint(self) -> Any:
        return self.connection.begin_nested()

    def add_order(self, number: int) -> None:
        self.connection.execute(sqlalchemy.text("INSERT INTO orders VALUES (:number)"), {"number": number})

    def enqueue(self, task: str, payload: Any, priority: int | None = None) -> Any:
        query = sqlalchemy.text(
            "SELECT run FROM detent.enqueue(:task, CAST(:payload AS jsonb), priority => :priority, tenant => 'shop')"
        )
        given = {"task": task, "payload": json.dumps(payload), "priority": priority}
        return self.connection.execute(query, given).scalar_one()

    def enqueue_many(self, task: str, runs: list[Any]) -> list[Any]:
        query = sqlalchemy.text("SELECT run FROM detent.enqueue_many(:task, CAST(:runs AS jsonb), 'shop')")
        return list(self.connection.execute(query, {"task": task, "runs": json.dumps(runs)}).scalars())

    def close(self) -> None:
        self.connection.close()
        self.engine.dispose()


class DjangoCaller:
    error = django.db.Error

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        given = {"NAME": parts.path.strip("/"), "USER": parts.username, "HOST": parse_qs(parts.query)["host"][0]}
        if not settings.configured:
            settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}}, USE_TZ=True)
            django.setup()
        self.connection = connections["default"]
        self.connection.settings_dict.update(given, PORT=parse_qs(parts.query).get("port", [""])[0])

    @contextmanager
    def transaction(self, isolation: str | None = None) -> Iterator[None]:
        with django_transaction.atomic():
            if isolation is not None:
                with self.connection.cursor() as cursor:
                    cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
            yield

    def savepoint(self) -> Any:
        return django_transaction.atomic()

    def add_order(self, number: int) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (%s)", [number])

    def enqueue(self, task: str, payload: Any, priority: int | None = None) -> Any:
        query = "SELECT run FROM detent.enqueue(%s, %s::jsonb, priority => %s, tenant => 'shop')"
        with self.connection.cursor() as cursor:
            cursor.execute(query, [task, json.dumps(payload), priority])
            return cursor.fetchone()[0]

    def enqueue_many(self, task: str, runs: list[Any]) -> list[Any]:
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT run FROM detent.enqueue_many(%s, %s::jsonb, 'shop')", [task, json.dumps(runs)])
            return [row[0] for row in cursor.fetchall()]

    def close(self) -> None:
        self.connection.close()


CALLERS: dict[str, Callable[[str], Caller]] = {
    "psycopg": PsycopgCaller,
    "asyncpg": AsyncpgCaller,
    "sqlalchemy": SqlAlchemyCaller,
    "django": DjangoCaller,
}
