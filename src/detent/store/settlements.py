"""The ends of runs, and the statements that write them."""

from __future__ import annotations

from collections import Counter
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
    """The statements that settle these runs: one for each kind that is among them. The kinds: runs of tasks, single
    runs of other jobs, and runs of other jobs that have several here."""
    for of_tasks, some in by_kind(batch, _claim_of):
        if of_tasks:
            yield _settle_tasks(some)
        else:
            yield from _settle_ticks(some)


def by_kind(batch: Sequence[Item], claim_of: Callable[[Item], Claim]) -> list[tuple[bool, Sequence[Item]]]:
    """The runs that are not of tasks, and those that are, as far as there are any: each has its own statements."""
    of_tasks = [claim_of(item).lane >= FIRST_TASK_LANE for item in batch]
    if len(set(of_tasks)) < 2:
        return [(of_tasks[0], batch)] if batch else []
    pairs = list(zip(of_tasks, batch, strict=True))
    return [(kind, [item for is_task, item in pairs if is_task is kind]) for kind in (False, True)]


def _settle_ticks(batch: Sequence[Settlement]) -> Iterator[tuple[Statement, Columns]]:
    """The statement that names runs by their jobs costs less than the one that names them by lanes, and takes one run
    of each job. Only jobs that allow overlap have several."""
    counts = Counter(map(_job_of, batch))
    alone = batch if len(counts) == len(batch) else [item for item in batch if counts[item.claim.job] == 1]
    if alone:
        yield sql.run.SETTLE, _columns_by_job(sorted(alone, key=_job_of))
    if len(alone) < len(batch):
        several = (item for item in reversed(batch) if counts[item.claim.job] > 1)
        # A settlement that is here twice is sent once, because the statement would write its history twice. Both get
        # the same answer: callers find them by job and lane.
        first_of = {_key_of(item.claim): item for item in several}
        yield sql.run.SETTLE_LANES, _columns_by_lane(list(first_of.values()))


def _columns_by_job(batch: Sequence[Settlement]) -> Columns:
    claims, started, finished, statuses, reasons, results, outcomes, errors, _, tracebacks, _ = zip(*batch, strict=True)
    jobs, lanes, ats, serials, tokens = key_columns(claims)
    keys = (*agreed(lanes), *agreed(ats), *agreed(serials), *agreed(tokens))
    texts = (*agreed(statuses), *agreed(reasons), *agreed(outcomes), *agreed(errors))
    times = ([time.timestamp() for time in started], [time.timestamp() for time in finished])
    return (jobs, *keys, *texts, *times, if_any(results), if_any(tracebacks))


def _columns_by_lane(batch: Sequence[Settlement]) -> Columns:
    claims, started, finished, statuses, reasons, results, outcomes, errors, _, tracebacks, _ = zip(*batch, strict=True)
    jobs, lanes, ats, serials, tokens = key_columns(claims)
    texts = (reasons, results, outcomes, errors, tracebacks)
    return (jobs, ats, tokens, started, finished, lanes, serials, statuses, *texts)


def _settle_tasks(batch: Sequence[Settlement]) -> tuple[Statement, Columns]:
    if not all(map(_is_plain, batch)):
        return sql.task.SETTLE, _columns_by_lane(batch)
    claims, started, finished, *_ = zip(*batch, strict=True)
    jobs, lanes, ats, serials, tokens = key_columns(claims)
    times = ([time.timestamp() for time in started], [time.timestamp() for time in finished])
    alike = (one_for_all(ats), one_for_all(tokens), *times, one_for_all(lanes), one_for_all(serials))
    return sql.task.SETTLE_SUCCEEDED, (jobs, *alike)


def _is_plain(item: Settlement) -> bool:
    """A success at the first attempt, without result or reason."""
    return item.status == SUCCEEDED and item.result is None and item.reason is None and item.claim.attempt == 1


def key_columns(claims: Sequence[Claim]) -> tuple[Sequence[object], ...]:
    """By which statements name runs: job, lane, scheduled_at, serial, token."""
    return tuple(zip(*map(_key_of, claims), strict=True))
