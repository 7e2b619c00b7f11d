"""The ends of runs, and the statements that write them. Each argument is a column of the runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from detent.domain.identity import FIRST_TASK_LANE, from_seconds
from detent.domain.run import SUCCESS, Claim, HeldRun
from detent.store import sql
from detent.store.arrays import agreed, if_any, one_for_all
from detent.store.connection import Row
from detent.store.statement import Statement

Item = TypeVar("Item")
Columns = tuple[object, ...]
claim_of: Callable[[HeldRun], Claim] = attrgetter("claim")
_key_of: Callable[[Claim], tuple[object, ...]] = itemgetter(slice(5))


def settle_statements(batch: Sequence[HeldRun]) -> Iterator[tuple[Statement, Columns]]:
    """The statements that settle these runs: one for each kind that is among them. The kinds: runs of tasks, single
    runs of other jobs, and runs of other jobs that have several here."""
    for of_tasks, some in by_kind(batch, claim_of):
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


def _settle_ticks(batch: Sequence[HeldRun]) -> Iterator[tuple[Statement, Columns]]:
    """The statement that names runs by their jobs costs less than the one that names them by lanes, and takes one run
    of each job. Only jobs that allow overlap have several."""
    jobs = [held.claim.job for held in batch]
    if len(set(jobs)) == len(batch):  # nearly always
        yield sql.run.SETTLE, _columns_by_job(batch, jobs)
        return
    counts = Counter(jobs)
    alone = [held for held in batch if counts[held.claim.job] == 1]
    if alone:
        yield sql.run.SETTLE, _columns_by_job(alone, [held.claim.job for held in alone])
    several = (held for held in reversed(batch) if counts[held.claim.job] > 1)
    # A run that is here twice is sent once, because the statement would write its history twice. Both get the same
    # answer: callers find them by job and lane.
    first_of = {_key_of(held.claim): held for held in several}
    yield sql.run.SETTLE_LANES, _columns_by_lane(list(first_of.values()))


def _columns_by_job(batch: Sequence[HeldRun], jobs: list[int]) -> Columns:
    in_order = sorted(jobs)
    if in_order != jobs:
        batch = sorted(batch, key=lambda held: held.claim.job)
    _, lanes, ats, serials, tokens = key_columns([held.claim for held in batch])
    keys = (*agreed(lanes), *agreed(ats), *agreed(serials), *agreed(tokens))
    plain = all(held.end is SUCCESS for held in batch)  # nearly always: then one row stands for all
    statuses, reasons, results, outcomes, errors, tracebacks = end_columns(batch[:1] if plain else batch)
    texts = (*agreed(statuses), *agreed(reasons), *agreed(outcomes), *agreed(errors))
    return (in_order, *keys, *texts, *_seconds(batch), if_any(results), if_any(tracebacks))


def _columns_by_lane(batch: Sequence[HeldRun]) -> Columns:
    jobs, lanes, ats, serials, tokens = key_columns([held.claim for held in batch])
    statuses, reasons, results, outcomes, errors, tracebacks = end_columns(batch)
    texts = (reasons, results, outcomes, errors, tracebacks)
    return (jobs, ats, tokens, *time_columns(batch), lanes, serials, statuses, *texts)


def end_columns(batch: Sequence[HeldRun]) -> tuple[Sequence[Any], ...]:
    """What ends or retries of one kind say."""
    ends: list[Any] = [held.end for held in batch]
    return tuple(zip(*ends, strict=True))


def _settle_tasks(batch: Sequence[HeldRun]) -> tuple[Statement, Columns]:
    if any(held.end != SUCCESS or held.claim.attempt != 1 for held in batch):
        return sql.task.SETTLE, _columns_by_lane(batch)
    jobs, lanes, ats, serials, tokens = key_columns([held.claim for held in batch])
    alike = (one_for_all(ats), one_for_all(tokens), *_seconds(batch), one_for_all(lanes), one_for_all(serials))
    return sql.task.SETTLE_SUCCEEDED, (jobs, *alike)


def among(batch: Sequence[HeldRun], rows: Iterable[Row]) -> list[HeldRun]:
    """Those of these runs that the rows name, by job and lane."""
    named = {(row["job"], row["lane"]) for row in rows}
    return [held for held in batch if (held.claim.job, held.claim.lane) in named] if named else []


def key_columns(claims: Sequence[Claim]) -> tuple[Sequence[object], ...]:
    """By which statements name runs: job, lane, scheduled_at, serial, token."""
    return tuple(zip(*map(_key_of, claims), strict=True))


def _seconds(batch: Sequence[HeldRun]) -> tuple[Sequence[float], Sequence[float]]:
    """When they were called, and when they ended, for statements that take seconds: these cost half as much to send."""
    return [held.started for held in batch], [held.finished for held in batch]


def time_columns(batch: Sequence[HeldRun]) -> tuple[Sequence[datetime], Sequence[datetime]]:
    """As `_seconds`, for statements that take times."""
    started, finished = _seconds(batch)
    return [from_seconds(at) for at in started], [from_seconds(at) for at in finished]
