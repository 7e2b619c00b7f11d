"""Enqueue as a part of a transaction of the caller, on the caller's own connection and in the caller's own thread."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from detent.errors import NotAuthorised, UsageError
from detent.sdk.gateway import not_registered

if TYPE_CHECKING:
    from detent.contract.task import EnqueuedRun
    from detent.domain.on_demand import NewRun
    from detent.sdk.connect import Place


async def enqueue_on(connection: Any, place: Place, task: str, runs: Sequence[NewRun]) -> list[EnqueuedRun]:
    """Blocking connections block the loop of the caller for as long as their statement takes."""
    try:
        rows = _begun(connection, place, task, runs)
        return _enqueued(await rows if inspect.isawaitable(rows) else rows)
    except Exception as error:
        raise _meaning(error, task) from error


def enqueue_on_sync(connection: Any, place: Place, task: str, runs: Sequence[NewRun]) -> list[EnqueuedRun]:
    try:
        rows = _begun(connection, place, task, runs)
        if inspect.isawaitable(rows):
            rows.close()  # type: ignore[attr-defined] # a coroutine, which was not started
            raise UsageError("This connection has to be awaited: use `await task.options(connection=…).enqueue(…)`.")
        return _enqueued(rows)
    except Exception as error:
        raise _meaning(error, task) from error


def _begun(connection: Any, place: Place, task: str, runs: Sequence[NewRun]) -> Any:
    """The rows, or an awaitable of them."""
    from detent.store.caller_connections import documents_of, driver_of

    driver = driver_of(connection)
    if driver is None:
        kind = type(connection)
        raise UsageError(
            f"connection= got a {kind.__module__}.{kind.__qualname__}: give a connection of asyncpg or psycopg, a "
            "connection or session of SQLAlchemy, or Django's connection."
        )
    return driver(connection, place.schema, task, documents_of(runs), place.tenant)


def _enqueued(rows: Sequence[Sequence[Any]]) -> list[EnqueuedRun]:
    from detent.store.caller_connections import enqueued_of

    return [enqueued_of(row) for row in rows]


def _meaning(error: Exception, task: str) -> Exception:
    """What the SQL function refused; any other error of the driver as it is."""
    from detent.store.caller_connections import refusal_of

    sqlstate, message = refusal_of(error)
    match sqlstate:
        case "22023":
            return UsageError(f"{message}.")
        case "42704":
            return not_registered(task)
        case "42501":
            return NotAuthorised(f"{message}.")
        case _:
            return error
