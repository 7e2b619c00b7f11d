"""What was measured, as a table and as JSON: medians, ranges, and ratios to the best peer of the same run."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from systems import DETENT, System


@dataclass
class Cell:
    """One system in one round. `filled_per_second` is how quickly its jobs were put in, where that was apart. CPU is
    that of one run; on a machine that does other things too it tells more than runs per second."""

    runs_per_second: float
    filled_per_second: float | None
    cpu_microseconds: float | None = None
    server_cpu_microseconds: float | None = None


def summary(systems: Sequence[System], cells: Mapping[str, Sequence[Cell]]) -> dict[str, Any]:
    """Two best peers: of those whose runs were counted on their whole way, and of all, whatever they leave out."""
    rows = [_row(system, cells[system.name]) for system in systems if cells.get(system.name)]
    peers = [row for row in rows if row["name"] != DETENT.name]
    best_whole = _best([row for row in peers if row["whole"]])
    best = _best(peers)
    for row in rows:
        row["times_best_whole"] = _times(row, best_whole)
        row["times_best"] = _times(row, best)
    rows.sort(key=lambda row: -row["runs_per_second"])
    return {"best_whole": best_whole and best_whole["name"], "best": best and best["name"], "systems": rows}


def _best(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    return max(rows, key=lambda row: row["runs_per_second"], default=None)


def _times(row: Mapping[str, Any], best: Mapping[str, Any] | None) -> float | None:
    return None if best is None else row["runs_per_second"] / best["runs_per_second"]


def _row(system: System, cells: Sequence[Cell]) -> dict[str, Any]:
    rates = [cell.runs_per_second for cell in cells]
    return {
        "name": system.name,
        "measured": system.measured,
        "whole": system.whole,
        "jobs": system.jobs,
        "rounds": len(cells),
        "runs_per_second": statistics.median(rates),
        "lowest": min(rates),
        "highest": max(rates),
        "filled_per_second": _median(cell.filled_per_second for cell in cells),
        "cpu_microseconds": _median(cell.cpu_microseconds for cell in cells),
        "server_cpu_microseconds": _median(cell.server_cpu_microseconds for cell in cells),
    }


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def as_text(result: Mapping[str, Any]) -> str:
    head = ("system", "runs/s", "lowest - highest", "x best whole", "x best", "put in/s", "CPU us", "server's")
    rows = [head, *(_texts(row) for row in result["systems"])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
    notes = [f"{row['name']}: {row['jobs']:,} {row['measured']}" for row in result["systems"]]
    return "\n".join([*lines, "", *notes])


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *others = zip(row, widths, strict=True)
    return [first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)]


def _texts(row: Mapping[str, Any]) -> tuple[str, ...]:
    def number(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    return (
        row["name"],
        number(row["runs_per_second"], ",.0f"),
        f"{row['lowest']:,.0f} - {row['highest']:,.0f}",
        number(row["times_best_whole"], ".2f"),
        number(row["times_best"], ".2f"),
        number(row["filled_per_second"], ",.0f"),
        number(row["cpu_microseconds"], ",.0f"),
        number(row["server_cpu_microseconds"], ",.0f"),
    )
