"""The points of the comparison: what a user of an SDK meets, in the order of a first week with it.

A cell of kind `types` is read by mypy and pyright: every line marked `# wrong` has to be flagged, and no other. A line
marked `# needed` is what the point is about, and has to be accepted. A cell of kind `run` is executed and prints its
verdict as its last line: `yes: …`, `partly: …` or `no: …`.
"""

from __future__ import annotations

from typing import NamedTuple


class System(NamedTuple):
    name: str
    title: str
    package: str


class Point(NamedTuple):
    name: str
    title: str
    question: str
    kind: str = "run"


SYSTEMS = (
    System("detent", "detent", "detent"),
    System("procrastinate", "Procrastinate", "procrastinate"),
    System("celery", "Celery", "celery"),
    System("taskiq", "taskiq", "taskiq"),
    System("dbos", "DBOS", "dbos"),
    System("temporal", "Temporal", "temporalio"),
)

POINTS = (
    Point(
        "typed_enqueue",
        "Typed enqueue",
        "Do mypy and pyright flag a misspelt keyword, a missing argument and a value of the wrong type where a run is "
        "enqueued, also with a delay?",
        "types",
    ),
    Point(
        "typed_options",
        "Typed options",
        "Do the type checkers flag a misspelt option of the decorator, one of the wrong type, and a misspelt option "
        "of one enqueue?",
        "types",
    ),
    Point(
        "typed_result",
        "Typed result",
        "Does the result have the type that the function returns, for coroutines and for plain functions?",
        "types",
    ),
    Point("validated", "Validated at enqueue", "Are wrong arguments refused before anything is stored?"),
    Point(
        "rich_arguments",
        "Dates, dataclasses, models",
        "Does a function receive the datetime, dataclass and pydantic model that it declares?",
    ),
    Point("signature", "Wrong signatures", "Is a function that cannot be called refused where it is defined?"),
    Point("context", "Run injected", "Does a function get its run (id, attempt) where it asks for it, with a type?"),
    Point("transaction", "In your transaction", "Is a run enqueued on your own connection, and gone after a rollback?"),
    Point(
        "options",
        "Delay, time, priority, unique key",
        "Can one enqueue have a delay, an exact time, a priority and a unique key?",
    ),
    Point("batch", "Many at once", "Are 1,000 runs enqueued in one call, all or none?"),
    Point("blocking", "Sync and async code", "Can plain code and coroutines enqueue and wait for the result?"),
    Point("retry_by_class", "Retry by exception class", "Is TimeoutError retried and KeyError not, by declaration?"),
    Point("retry_delay", "Delay per exception", "Can each exception have its own delay, without code in the function?"),
    Point(
        "retry_now", "Retry and discard from inside", "Can a function ask for a retry after 30 s, and give up quietly?"
    ),
    Point(
        "traceback", "Traceback kept", "Can another process read the traceback, with cause and notes, of each attempt?"
    ),
    Point("logs", "Logs kept", "Are the log lines and prints of a run stored with it, and readable while it runs?"),
    Point("progress", "Progress", "Can a function report its progress, and another process read it while it runs?"),
    Point("cancel", "Cancel a run that runs", "Does cancelling from another process end a coroutine that is running?"),
    Point("dependencies", "Dependencies", "Are values injected and cleaned up, per run and per worker?"),
    Point("middleware", "Middleware", "Can code of yours wrap every run, and see its arguments, result and exception?"),
    Point("lifespan", "Start and stop hooks", "Does the worker run code of yours at its start and at its end?"),
    Point(
        "test_mode", "Tests without services", "Can a test enqueue, run, and move the clock past a retry of an hour?"
    ),
    Point("test_schedule", "Tests of schedules", "Can a test move the clock over a change of daylight saving time?"),
    Point("dst", "Daylight saving", "Does a daily job at 02:30 run once in the night without and with two 02:30?"),
    Point("one_tick", "Two processes, one run", "With two schedulers, does each tick make exactly one run?"),
    Point("kill", "SIGKILL during a run", "Is the run of a killed worker executed again by itself, and how soon?"),
    Point("django", "Django", "Can django.tasks use it, with the enqueue in the transaction of the request?"),
    Point("fastapi", "FastAPI", "Can a FastAPI app enqueue and work in one process, and lose nothing when it stops?"),
    Point("reload", "Reload", "Does the worker start again when code changes?"),
    Point("import_time", "Import", "How long does the import of the SDK take?"),
)
