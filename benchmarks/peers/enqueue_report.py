"""The enqueue rates of several systems as a table and as JSON: medians, ranges, and where detent is behind."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from detent.devtools.bench.enqueue_columns import EnqueueColumn

DETENT = "detent"


@dataclass(frozen=True)
class EnqueueSystem:
    name: str
    adapter: str


def summary(
    systems: Sequence[EnqueueSystem],
    columns: Sequence[EnqueueColumn],
    rates: Mapping[str, Mapping[str, Sequence[float]]],
    versions: Mapping[str, Mapping[str, str]],
) -> dict[str, Any]:
    return {
        "systems": [{"name": each.name, **versions[each.name]} for each in systems],
        "columns": [_column(column, systems, rates) for column in columns],
    }


def _column(
    column: EnqueueColumn, systems: Sequence[EnqueueSystem], rates: Mapping[str, Mapping[str, Sequence[float]]]
) -> dict[str, Any]:
    measured = {each.name: rates[each.name][column.name] for each in systems}
    medians = {name: statistics.median(found) for name, found in measured.items()}
    peers = {name: rate for name, rate in medians.items() if name != DETENT}
    best = max(peers, key=peers.__getitem__, default=None)
    ours = medians.get(DETENT)
    return {
        "name": column.name,
        "title": column.title,
        "compared": column.enqueues,
        "per_second": medians,
        "lowest": {name: min(found) for name, found in measured.items()},
        "highest": {name: max(found) for name, found in measured.items()},
        "best_peer": best,
        "times_best_peer": None if best is None or ours is None else ours / peers[best],
    }


def faults(result: Mapping[str, Any]) -> list[str]:
    """The columns in which detent is not ahead of every other system. The INSERT alone is no work of theirs."""
    return [
        f"{column['title']}: detent enqueues {column['per_second'][DETENT]:,.0f}/s, "
        f"{column['best_peer']} {column['per_second'][column['best_peer']]:,.0f}/s."
        for column in result["columns"]
        if column["compared"] and column["times_best_peer"] is not None and column["times_best_peer"] <= 1
    ]


def as_text(result: Mapping[str, Any]) -> str:
    names = [system["name"] for system in result["systems"]]
    rows = [("runs per second (lowest - highest)", *names, "x best peer")]
    rows += [_row(column, names) for column in result["columns"]]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, "", *(_note(system) for system in result["systems"])])


def _row(column: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    times = column["times_best_peer"]
    cells = (_cell(column, name) for name in names)
    return (column["title"], *cells, "" if times is None or not column["compared"] else f"{times:.2f}")


def _cell(column: Mapping[str, Any], name: str) -> str:
    middle, lowest, highest = (column[which][name] for which in ("per_second", "lowest", "highest"))
    return f"{middle:,.0f} ({lowest:,.0f} - {highest:,.0f})"


def _note(system: Mapping[str, Any]) -> str:
    return f"{system['name']} {system['version']}, {system['driver']}, Python {system['python']}"
