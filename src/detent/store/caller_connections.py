"""Enqueue on a connection of an application: a part of its transaction, with its own driver.

A driver is recognised by the module of its classes, so none is imported here: whoever passes a connection has it
loaded. Each function below returns rows of run, created, status and scheduled_at, or an awaitable of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from detent.contract.task import EnqueuedRun
from detent.domain.documents import utc_instants
from detent.domain.on_demand import NewRun
from detent.store import sql

Rows = Sequence[Sequence[Any]]
Driver = Callable[[Any, str, str, str, str], Rows | Awaitable[Rows]]
COLUMNS = ("id", "created", "status", "scheduled_at")


def documents_of(runs: Sequence[NewRun]) -> str:
    """The runs as the SQL functions take them."""
    return msgspec.json.encode([utc_instants(run) for run in runs]).decode()


def enqueued_of(row: Sequence[Any]) -> EnqueuedRun:
    return msgspec.convert(dict(zip(COLUMNS, row, strict=True)), EnqueuedRun)


def driver_of(connection: Any) -> Driver | None:
    """How to enqueue on this connection; None: it is of no known kind."""
    kinds = [f"{kind.__module__}." for kind in type(connection).__mro__]
    for prefix, driver in DRIVERS.items():
        if any(kind.startswith(prefix) for kind in kinds):
            return driver
    return None


def refusal_of(error: BaseException) -> tuple[str | None, str]:
    """The SQLSTATE and the sentence of the server, of whichever driver the error is."""
    seen: BaseException | None = error
    while seen is not None:
        sqlstate = getattr(seen, "sqlstate", None) or getattr(seen, "pgcode", None)
        if isinstance(sqlstate, str):
            message = getattr(getattr(seen, "diag", None), "message_primary", None) or str(seen)
            return sqlstate, message.splitlines()[0]
        wrapped = getattr(seen, "orig", None)
        seen = wrapped if isinstance(wrapped, BaseException) and wrapped is not seen else seen.__cause__
    return None, ""


def _statement(schema: str, *markers: str) -> str:
    """The statement for a connection that does not have our search path, with the placeholders of its driver."""
    lines = (line for line in sql.task.ENQUEUE_AS_CALLER.text.splitlines() if not line.startswith("--"))
    text = " ".join(lines).replace("enqueue_many(", f'"{schema}".enqueue_many(')
    for position, marker in enumerate(markers, 1):
        text = text.replace(f"${position}", marker)
    return text


async def _on_asyncpg(connection: Any, schema: str, task: str, runs: str, tenant: str) -> Rows:
    rows = await connection.fetch(_statement(schema), task, runs, tenant)
    return [tuple(row) for row in rows]


def _on_psycopg(connection: Any, schema: str, task: str, runs: str, tenant: str) -> Rows | Awaitable[Rows]:
    from psycopg import AsyncConnection
    from psycopg.rows import tuple_row

    text = _statement(schema, "%s", "%s", "%s")
    if isinstance(connection, AsyncConnection):
        return _on_async_psycopg(connection, text, (task, runs, tenant))
    with connection.cursor(row_factory=tuple_row) as cursor:
        rows: Rows = cursor.execute(text, (task, runs, tenant)).fetchall()
        return rows


async def _on_async_psycopg(connection: Any, text: str, arguments: tuple[str, ...]) -> Rows:
    from psycopg.rows import tuple_row

    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(text, arguments)
        rows: Rows = await cursor.fetchall()
        return rows


def _on_cursor(connection: Any, schema: str, task: str, runs: str, tenant: str) -> Rows:
    """Django, whose cursors are tuples, whatever is below."""
    with connection.cursor() as cursor:
        cursor.execute(_statement(schema, "%s", "%s", "%s"), [task, runs, tenant])
        rows: Rows = cursor.fetchall()
        return rows


def _on_psycopg2(connection: Any, schema: str, task: str, runs: str, tenant: str) -> Rows:
    from psycopg2.extensions import cursor as plain_cursor  # type: ignore[import-untyped,unused-ignore] # of the caller

    with connection.cursor(cursor_factory=plain_cursor) as cursor:
        cursor.execute(_statement(schema, "%s", "%s", "%s"), (task, runs, tenant))
        rows: Rows = cursor.fetchall()
        return rows


def _on_sqlalchemy(connection: Any, schema: str, task: str, runs: str, tenant: str) -> Rows | Awaitable[Rows]:
    """A Connection or Session, or an awaitable twin of one."""
    from sqlalchemy import text

    statement = text(_statement(schema, ":task", ":runs", ":tenant"))
    result = connection.execute(statement, {"task": task, "runs": runs, "tenant": tenant})
    if isinstance(result, Awaitable):
        return _awaited(result)
    rows: Rows = result.all()
    return rows


async def _awaited(result: Awaitable[Any]) -> Rows:
    rows: Rows = (await result).all()
    return rows


# By how the module of one of its classes begins. The dot keeps psycopg2 apart from psycopg.
DRIVERS: dict[str, Driver] = {
    "asyncpg.": _on_asyncpg,
    "psycopg.": _on_psycopg,
    "psycopg2.": _on_psycopg2,
    "sqlalchemy.": _on_sqlalchemy,
    "django.": _on_cursor,
}
