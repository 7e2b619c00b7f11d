"""The enqueue rates of several systems as tables and as JSON: medians, ranges, and where detent is behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from detent.devtools.bench.enqueue_columns import EnqueueColumn

DETENT = "detent"


@dataclass(frozen=True)
class EnqueueSystem:
    name: str
    adapter: str


@dataclass(frozen=True)
class EnqueueCell:
    """One system in one column of one round. CPU is that of one run; a busy machine changes it less than the rate."""

    per_second: float
    cpu_microseconds: float
    server_cpu_microseconds: float


Cells = Mapping[str, Mapping[str, Sequence[EnqueueCell]]]


def summary(
    systems: Sequence[EnqueueSystem],
    columns: Sequence[EnqueueColumn],
    cells: Cells,
    versions: Mapping[str, Mapping[str, str]],
) -> dict[str, Any]:
    return {
        "systems": [{"name": each.name, **versions[each.name]} for each in systems],
        "columns": [
            _column(column, {each.name: cells[each.name][column.name] for each in systems}) for column in columns
        ],
    }


def _column(column: EnqueueColumn, measured: Mapping[str, Sequence[EnqueueCell]]) -> dict[str, Any]:
    return {
        "name": column.name,
        "title": column.title,
        "compared": column.enqueues,
        "systems": {name: _row(found) for name, found in measured.items()},
        "times": {name: _times(measured[DETENT], found) for name, found in measured.items() if name != DETENT}
        if DETENT in measured
        else {},
    }


def _row(cells: Sequence[EnqueueCell]) -> dict[str, float]:
    rates = [cell.per_second for cell in cells]
    return {
        "per_second": median(rates),
        "lowest": min(rates),
        "highest": max(rates),
        "cpu_microseconds": median(cell.cpu_microseconds for cell in cells),
        "server_cpu_microseconds": median(cell.server_cpu_microseconds for cell in cells),
    }


def _times(ours: Sequence[EnqueueCell], theirs: Sequence[EnqueueCell]) -> float:
    """The median of the ratios of each round: both were measured within seconds of each other."""
    return median(our.per_second / their.per_second for our, their in zip(ours, theirs, strict=True))


def faults(result: Mapping[str, Any]) -> list[str]:
    """The columns in which detent is not ahead of every other system. The INSERT alone is no work of theirs."""
    return [
        f"Behind: {column['title']}: detent enqueues {times:.2f} times as many runs as {name}."
        for column in result["columns"]
        if column["compared"]
        for name, times in column["times"].items()
        if times <= 1
    ]


def as_text(result: Mapping[str, Any]) -> str:
    names = [system["name"] for system in result["systems"]]
    columns = result["columns"]
    rates = [("per second (lowest - highest)", *names), *(_cells(column, names, _rate) for column in columns)]
    cpu = [("CPU per run: client + server", *names), *(_cells(column, names, _cpu) for column in columns)]
    peers = [name for name in names if name != DETENT]
    ratios = [("detent, times as many as", *peers)]
    ratios += [
        (column["title"], *(f"{column['times'][name]:.2f}" for name in peers))
        for column in columns
        if column["compared"] and column["times"]
    ]
    notes = [
        f"{each['name']} {each['version']}, {each['driver']}, Python {each['python']}" for each in result["systems"]
    ]
    tables = [rates, cpu, ratios] if len(ratios) > 1 and peers else [rates, cpu]
    return "\n\n".join([*(_table(rows) for rows in tables), "\n".join(notes)])


def _cells(column: Mapping[str, Any], names: Sequence[str], text: Any) -> tuple[str, ...]:
    return (column["title"], *(text(column["systems"][name]) for name in names))


def _rate(row: Mapping[str, float]) -> str:
    return f"{row['per_second']:,.0f} ({row['lowest']:,.0f} - {row['highest']:,.0f})"


def _cpu(row: Mapping[str, float]) -> str:
    return f"{row['cpu_microseconds']:,.0f} + {row['server_cpu_microseconds']:,.0f} us"


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
