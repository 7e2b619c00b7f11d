"""The ends of runs, and the statements that write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import NamedTuple, TypeVar

from detent.domain.identity import FIRST_TASK_LANE
from detent.domain.run import Claim
from detent.domain.states import CODES, RunStatus
from detent.store import sql
from detent.store.arrays import agreed, if_any, one_for_all
from detent.store.statement import Statement
from detent.telemetry.metrics import Kind

SUCCEEDED = CODES[RunStatus.SUCCEEDED]
Item = TypeVar("Item")
Columns = tuple[object, ...]


class Settlement(NamedTuple):
    """The end of a run: its claim, when it ran, and the final status with its texts. `target` is for metrics only,
    `name` for the log: that of the job."""

    claim: Claim
    started: datetime
    finished: datetime
    status: int
    reason: str | None = None
    result: str | None = None
    outcome: str = "succeeded"
    error: str | None = None
    target: Kind = "unknown"
    traceback: str | None = None
    name: str | None = None


_claim_of: Callable[[Settlement], Claim] = attrgetter("claim")
_job_of: Callable[[Settlement], int] = attrgetter("claim.job")
_key_of: Callable[[Claim], tuple[object, ...]] = itemgetter(slice(5))


def settle_statements(batch: Sequence[Settlement]) -> Iterator[tuple[Statement, Columns]]:
    """What ends these runs; a single statement, unless runs of tasks are among them or a job has several runs."""
    for of_tasks, some in by_kind(batch, _claim_of):
        if of_tasks:
            yield _settle_tasks(some)
        else:
            for runs in _one_of_each_job(some):
                yield sql.run.SETTLE, _columns_by_job(runs)


def by_kind(batch: Sequence[Item], claim_of: Callable[[Item], Claim]) -> list[tuple[bool, Sequence[Item]]]:
    """The runs that are not of tasks, and those that are, as far as there are any: each has its own statements."""
    of_tasks = [claim_of(item).lane >= FIRST_TASK_LANE for item in batch]
    if len(set(of_tasks)) < 2:
        return [(of_tasks[0], batch)] if batch else []
    pairs = list(zip(of_tasks, batch, strict=True))
    return [(kind, [item for is_task, item in pairs if is_task is kind]) for kind in (False, True)]


def _one_of_each_job(batch: Sequence[Settlement]) -> Iterator[Sequence[Settlement]]:
    """Sorted by job, as the statement needs it. Only jobs that allow overlap have several runs."""
    left = sorted(batch, key=_job_of)
    if len(set(map(_job_of, left))) == len(left):
        yield left
        return
    while left:
        first_of = {item.claim.job: item for item in reversed(left)}
        if len(first_of) == len(left):
            yield left
            return
        yield sorted(first_of.values(), key=_job_of)
        left = [item for item in left if first_of[item.claim.job] is not item]


def _columns_by_job(batch: Sequence[Settlement]) -> Columns:
    claims, started, finished, statuses, reasons, results, outcomes, errors, _, tracebacks, _ = zip(*batch, strict=True)
    jobs, lanes, ats, serials, tokens = key_columns(claims)
    keys = (*agreed(lanes), *agreed(ats), *agreed(serials), *agreed(tokens))
    texts = (*agreed(statuses), *agreed(reasons), *agreed(outcomes), *agreed(errors))
    times = ([time.timestamp() for time in started], [time.timestamp() for time in finished])
    return (jobs, *keys, *texts, *times, if_any(results), if_any(tracebacks))


def _settle_tasks(batch: Sequence[Settlement]) -> tuple[Statement, Columns]:
    claims, started, finished, statuses, reasons, results, outcomes, errors, _, tracebacks, _ = zip(*batch, strict=True)
    jobs, lanes, ats, serials, tokens = key_columns(claims)
    if not all(map(_is_plain, batch)):
        texts = (reasons, results, outcomes, errors, tracebacks)
        return sql.task.SETTLE, (jobs, ats, tokens, started, finished, lanes, serials, statuses, *texts)
    times = ([time.timestamp() for time in started], [time.timestamp() for time in finished])
    alike = (one_for_all(ats), one_for_all(tokens), *times, one_for_all(lanes), one_for_all(serials))
    return sql.task.SETTLE_SUCCEEDED, (jobs, *alike)


def _is_plain(item: Settlement) -> bool:
    """A success at the first attempt, without result or reason."""
    return item.status == SUCCEEDED and item.result is None and item.reason is None and item.claim.attempt == 1


def key_columns(claims: Sequence[Claim]) -> tuple[Sequence[object], ...]:
    """By which statements name runs: job, lane, scheduled_at, serial, token."""
    return tuple(zip(*map(_key_of, claims), strict=True))
