"""Converts the rows of a run to the document that the API returns. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec
from msgspec import UNSET

from detent.contract.run import Attempt, Run, RunProgress
from detent.domain.callbacks import WORKER_PREFIX
from detent.domain.idempotency import templated_key
from detent.domain.identity import RunKey, node_name, run_id
from detent.domain.states import CODES, RunStatus
from detent.store.db import Row

STATUSES = {code: status for status, code in CODES.items()}
NULL = msgspec.Raw(b"null")
FAULTS = frozenset({"failed", "timeout", "lost"})
MILLISECOND = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
JUST_BEFORE = timedelta(minutes=1)  # a job that is to run now is created a moment after its tick


class Origin(NamedTuple):
    """The fields that a run takes from its revision of the job."""

    job_id: UUID
    name: str
    template: str | None
    timezone: str
    created_at: datetime


def key_of(row: Row) -> RunKey:
    return RunKey(row["job"], row["scheduled_at"], row["serial"])


def status_of(row: Row) -> RunStatus:
    """History stores the status as a number, live runs and the view as text."""
    status = row["status"]
    return STATUSES[status] if isinstance(status, int) else RunStatus(status)


def run_of(
    row: Row, origin: Origin, kept: Sequence[Attempt], workers: Mapping[int, str], progress: RunProgress | None = None
) -> Run:
    """`workers`: the names of pull workers, by the number that owns their runs."""
    key, status = key_of(row), status_of(row)
    attempts, number = _numbered_on(row, _with_last_attempt(row, status, kept, workers))
    started, finished = row["started_at"], row["finished_at"]
    first_start = min((a.started_at for a in attempts if a.started_at is not None), default=started)
    return Run(
        id=run_id(key),
        job_id=origin.job_id,
        job=origin.name,
        scheduled_at=key.scheduled_at,
        status=status,
        reason=row["reason"],
        attempt=number,
        token=row["token"],
        started_at=started,
        finished_at=finished,
        duration_ms=_milliseconds(started, finished),
        lateness_ms=None if _asked_for_later(key, origin) else _milliseconds(key.scheduled_at, first_start),
        node=_node(row["node"], workers),
        result=_json(row["result"]),
        error=None if status is RunStatus.SUCCEEDED else _last_error(attempts),
        idempotency_key=templated_key(origin.job_id, origin.name, origin.template, origin.timezone, key),
        ticks=row["ticks"],
        until=row["until"],
        attempts=attempts,
        progress=progress,
    )


def attempt_of(row: Row, workers: Mapping[int, str], *, whole: bool = False) -> Attempt:
    """`whole`: with its traceback."""
    return Attempt(
        attempt=row["attempt"],
        token=row["token"],
        node=_node(row["node"], workers),
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        outcome=row["outcome"],
        error=row["error"],
        traceback=row["traceback"] if whole else UNSET,
    )


def _with_last_attempt(
    row: Row, status: RunStatus, kept: Sequence[Attempt], workers: Mapping[int, str]
) -> list[Attempt]:
    """An attempt that succeeded on the first try is stored only in the run itself."""
    if status is not RunStatus.SUCCEEDED or any(attempt.token == row["token"] for attempt in kept):
        return list(kept)
    return [*kept, attempt_of({**row, "outcome": "succeeded", "error": None}, workers)]


def _numbered_on(row: Row, attempts: Sequence[Attempt]) -> tuple[list[Attempt], int | None]:
    """The attempts, and the present one, in one sequence of numbers.

    A dead run that is retried counts its attempts anew, because its retries are counted anew: the numbers of the store
    begin at 1 again. output/list.sql does the same for the lines of attempts."""
    shown: list[Attempt] = []
    before = 0  # how many attempts earlier lives of the run had
    last: Attempt | None = None
    for attempt in attempts:
        before += _of_ended_life(last, attempt.attempt)
        last = attempt
        shown.append(msgspec.structs.replace(attempt, attempt=before + attempt.attempt) if before else attempt)
    if row["attempt"] is None:
        return shown, None
    if last is not None and row["token"] != last.token:
        before += _of_ended_life(last, row["attempt"])
    return shown, before + row["attempt"]


def _of_ended_life(last: Attempt | None, number: int) -> int:
    """How many attempts a life had, if `last` ended it; 0 if the next attempt, with this number, belongs to it too.

    Within a life numbers never fall. A number is repeated only after an attempt that was not counted, because it is not
    known to have started. Such an attempt is lost, or stale since its late result came, and it ends no life."""
    if last is None or number > last.attempt:
        return 0
    uncounted = last.outcome in ("lost", "stale") and last.started_at is None
    return last.attempt if number < last.attempt or (number == 1 and not uncounted) else 0


def _asked_for_later(key: RunKey, origin: Origin) -> bool:
    """Whether a run repeats its tick, or is of a tick from before its job was created, as in backfills: it is not late,
    however long ago its tick is."""
    return key.repeat > 0 or (not key.manual and key.scheduled_at < origin.created_at - JUST_BEFORE)


def _last_error(attempts: Iterable[Attempt]) -> str | None:
    errors = [attempt.error for attempt in attempts if attempt.outcome in FAULTS]
    return errors[-1] if errors else None


def _json(text: str | None) -> msgspec.Raw:
    """The result as stored; text that is not JSON is returned as a JSON string."""
    if text is None:
        return NULL
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return msgspec.Raw(msgspec.json.encode(text))
    return msgspec.Raw(text.encode())


def instant_of(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


def _milliseconds(start: datetime | None, end: datetime | None) -> int | None:
    return None if start is None or end is None else (end - start) // MILLISECOND


def _node(node: int | None, workers: Mapping[int, str]) -> str | None:
    if node is None or node > 0:
        return None if node is None else node_name(node)
    name = workers.get(node, "")
    return name if name.startswith(WORKER_PREFIX) else f"pull:{name}"
