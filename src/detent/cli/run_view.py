"""Runs for people: the columns of their lists, and one run on a sheet with its attempts and stored steps.

A pipe gets the same fields as ever, with instants in UTC; a terminal gets them in the zone of this machine, which is
named once on each sheet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

from detent.cli import output, times
from detent.cli.base import on_terminal
from detent.cli.invocation import invocation
from detent.cli.output import Column, Field, Item
from detent.cli.text import clean
from detent.domain.callbacks import WORKER_PREFIX
from detent.domain.counts import plural
from detent.domain.identity import decode_run_id

COLUMNS = (
    Column("ID", lambda run: run["id"]),
    Column("JOB", lambda run: run["job"], least=12),
    Column("STATUS", lambda run: run["status"], status=True),
    Column("SCHEDULED", lambda run: run["scheduled_at"], lambda run, at: times.relative(run["scheduled_at"], at)),
    Column("LATE", lambda run: run["lateness_ms"], lambda run, at: lateness(run), extra=True, right=True),
    Column(
        "TOOK",
        lambda run: run["duration_ms"],
        lambda run, at: times.span(run["duration_ms"]),
        extra=True,
        right=True,
    ),
    Column("ATTEMPT", lambda run: run["attempt"], extra=True, right=True),
    Column("NOTE", lambda run: note(run), extra=True, least=12),
)

ONE_LINE = 60
MOST_SHOWN = 4_096  # characters of a payload or result on a terminal
ATTEMPT_COLUMNS = (
    Column("ATTEMPT", lambda attempt: attempt["attempt"], right=True),
    Column("OUTCOME", lambda attempt: attempt["outcome"], status=True),
    Column(
        "STARTED",
        lambda attempt: attempt["started_at"],
        lambda attempt, at: times.clock(attempt["started_at"]),
        extra=True,
    ),
    Column("TOOK", lambda attempt: attempt["finished_at"], lambda attempt, at: took(attempt), right=True),
    Column("NODE", lambda attempt: attempt["node"], extra=True),
    Column("ERROR", lambda attempt: attempt["error"], least=40, folds=True),
)

STEP_COLUMNS = (
    Column("STEP", lambda step: step["name"], least=12),
    Column("ATTEMPT", lambda step: step["attempt"], right=True),
    Column("FINISHED", lambda step: step["finished_at"], lambda step, at: times.clock(step["finished_at"]), extra=True),
    Column("TOOK", lambda step: step["duration_ms"], lambda step, at: times.span(step["duration_ms"]), right=True),
)


def note(run: Item) -> str | None:
    if run["status"] == "running" and (run["node"] or "").startswith(WORKER_PREFIX):
        return "waits for its callback"
    why: str | None = run["error"] or run["reason"]
    return f"{plural(run['ticks'], 'tick')}: {why}" if run["ticks"] else why


def lateness(run: Item) -> str:
    """How late a run started. One that was asked for after its tick, as in a backfill, is not late."""
    if run["lateness_ms"] is not None or run["started_at"] is None:
        return times.span(run["lateness_ms"])
    key = decode_run_id(UUID(run["id"]))
    return "re-run" if key is not None and key.repeat else "backfill"


def history_columns() -> tuple[Column, ...]:
    return tuple(column for column in COLUMNS if column.title != "JOB")


def show(run: Item) -> None:
    """One run in the chosen format."""
    output.print_fields(run, fields(run, times.now()))
    if invocation().format == "text":
        print_attempts(run.get("attempts") or [])
        print_steps(run.get("steps") or [])


def print_attempts(attempts: list[Item]) -> None:
    if not attempts:
        return
    if on_terminal():
        print()
        output.print_table(attempts, ATTEMPT_COLUMNS)
        for text in tracebacks(attempts):
            print(text)
    else:
        output.print_lines(("attempt", *(column.plain(item) for column in ATTEMPT_COLUMNS)) for item in attempts)


def print_steps(steps: list[Item]) -> None:
    """Those whose results are stored, which a later attempt does not repeat."""
    if not steps:
        return
    if on_terminal():
        print()
        output.print_table(steps, STEP_COLUMNS)
    else:
        output.print_lines(("step", *(column.plain(item) for column in STEP_COLUMNS)) for item in steps)


def tracebacks(attempts: list[Item]) -> Iterator[str]:
    """What failed attempts raised, each under its number; an attempt like the one before is not shown again."""
    shown = None
    for attempt in attempts:
        text = attempt.get("traceback")
        if text and text != shown:
            yield f"\nTraceback of attempt {attempt['attempt']}:\n{clean(text)}"
        elif text:
            yield f"\nTraceback of attempt {attempt['attempt']}: as before."
        shown = text or shown


def progress_text(progress: Item) -> str:
    """Such as `40 % importing`."""
    return f"{progress['fraction']:.0%}".replace("%", " %") + (f" {progress['message']}" if progress["message"] else "")


def fields(run: Item, at: datetime) -> Iterator[Field]:
    yield Field("id", "Id", run["id"])
    yield Field("job", "Job", run["job"])
    yield Field("status", "Status", run["status"])
    yield Field("reason", "Reason", run["reason"])
    yield Field(
        "ticks", "Ticks", run["ticks"], f"{plural(run['ticks'] or 0, 'tick')}, until {times.local(run['until'])}"
    )
    yield Field("until", "", run["until"], "")
    yield from _times(run, at)
    yield Field("attempt", "Attempt", run["attempt"])
    if run.get("progress"):
        since = times.relative(run["progress"]["at"], at)
        yield Field("progress", "Progress", run["progress"], f"{clean(progress_text(run['progress']))}, {since}")
    yield Field("node", "Node", run["node"])
    yield Field("token", "Token", run["token"])
    yield Field("idempotency_key", "Idempotency key", run["idempotency_key"])
    if "concurrency_key" in run:
        yield Field("concurrency_key", "Concurrency key", run["concurrency_key"])
    if "not_before" in run:
        yield Field("not_before", "Not before", run["not_before"], times.local_both(run["not_before"], at))
    if "waiting_for" in run:
        yield Field("waiting_for", "Waiting for", run["waiting_for"])
    if "payload" in run:
        yield Field("payload", "Payload", run["payload"], indented(run["payload"]))
    yield Field("result", "Result", run["result"], indented(run["result"]))
    yield Field("error", "Error", run["error"])


def _times(run: Item, at: datetime) -> Iterator[Field]:
    """When a run was due, started and ended."""
    yield Field("scheduled_at", "Scheduled", run["scheduled_at"], times.local_both(run["scheduled_at"], at))
    yield Field("started_at", "Started", run["started_at"], times.local(run["started_at"]) + _started_late(run))
    length = f", took {times.span(run['duration_ms'])}" if run["duration_ms"] is not None else ""
    yield Field("finished_at", "Finished", run["finished_at"], times.local(run["finished_at"]) + length)
    yield Field("lateness_ms", "", run["lateness_ms"], "")
    yield Field("duration_ms", "", run["duration_ms"], "")


def _started_late(run: Item) -> str:
    late = lateness(run)
    if not late:
        return ""
    if run["lateness_ms"] is None:
        return f" ({late})"
    return f", {late} late" if (run["attempt"] or 1) == 1 else f" (the first attempt {late} late)"


def indented(value: object) -> str | None:
    """Objects and lists that are long over several lines, and the beginning of what is very long; anything else as it
    is."""
    if isinstance(value, str):
        return _beginning(value, value) if len(value) > MOST_SHOWN else None
    if not isinstance(value, dict | list):
        return None
    written = json.dumps(value, ensure_ascii=False)
    if len(written) <= ONE_LINE:
        return None
    return _beginning(json.dumps(value, ensure_ascii=False, indent=2), value)


def _beginning(text: str, value: object) -> str:
    if len(text) <= MOST_SHOWN:
        return text
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
    return f"{text[:MOST_SHOWN]}… ({size:,} bytes; --json shows all)"


def took(attempt: Item) -> str:
    started, finished = times.read_instant(attempt["started_at"]), times.read_instant(attempt["finished_at"])
    if started is None or finished is None:
        return ""
    return times.span((finished - started).total_seconds() * 1000)
