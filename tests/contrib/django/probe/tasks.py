"""Tasks that show what the worker does with them, and receivers that note every signal in a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from django.db import connection

from detent.contrib.django import compat, task

NOTES = Path(os.environ.get("PROBE_NOTES", os.devnull))


def note(line: str) -> None:
    with NOTES.open("a") as notes:
        notes.write(f"{line}\n")


def receive(name: str) -> Any:
    def received(sender: type, task_result: Any, **_: Any) -> None:
        note(f"{name} {task_result.task.name} {task_result.status} {task_result.attempts} {os.getpid()}")

    return received


RECEIVERS = {name: receive(name) for name in ("task_enqueued", "task_started", "task_finished")}
for signal, receiver in RECEIVERS.items():
    getattr(compat, signal).connect(receiver)


def query(sender: type, task_result: Any, **_: Any) -> None:
    """A receiver that uses the database, which Django refuses on an event loop."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    note(f"queried {task_result.task.name} {task_result.status} {task_result.attempts} {os.getpid()}")


compat.task_finished.connect(query)


@task
def echo(*args: Any, **kwargs: Any) -> Any:
    return {"args": list(args), "kwargs": kwargs}


@task(takes_context=True, max_retries=2, retry_base_seconds=0, retry_on=(KeyError,))
def fails_once(context: Any, key: str) -> Any:
    if context.attempt == 1:
        raise KeyError(key)
    return {"attempt": context.attempt, "before": [each.exception_class_path for each in context.task_result.errors]}


class OuterError(Exception):
    """Raised from another."""


@task(takes_context=True)
async def breaks_deeply(context: Any) -> None:
    try:
        os.environ["MISSING"]
    except KeyError as error:
        raise OuterError("outer: nothing here") from error


@task
def large(size: int) -> str:
    return "x" * size


@task
def not_json() -> Any:
    return object()


@task(isolate="process")
def whose_process() -> int:
    return os.getpid()


@task(every=1, call_with={"kind": "hourly"})
def ticks(kind: str) -> str:
    return kind


@task(queue_name="unserved")
def unserved() -> None:
    """Its queue has no worker."""
