"""What has to hold after nodes were killed while tasks were sent: from the history of runs, and from what the tasks
themselves recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple


class TaskFigures(NamedTuple):
    runs: int
    tasks: int
    missing: list[str]
    unknown: list[str]
    """Tasks of a run that the history does not have."""
    several_tasks: list[str]
    """Runs with more than one task id."""
    repeated: int
    """Executions beyond the first of a task id: the message was sent twice, or delivered twice."""


def figures_of(runs: Collection[str], executed: Sequence[Mapping[str, Any]]) -> TaskFigures:
    by_run: dict[str, set[str]] = {}
    for each in executed:
        by_run.setdefault(each["headers"]["Detent-Run-Id"], set()).add(each["id"])
    counts = Counter(each["id"] for each in executed)
    return TaskFigures(
        runs=len(runs),
        tasks=len(counts),
        missing=sorted(set(runs) - by_run.keys()),
        unknown=sorted(by_run.keys() - set(runs)),
        several_tasks=sorted(run for run, ids in by_run.items() if len(ids) > 1),
        repeated=sum(counts.values()) - len(counts),
    )
