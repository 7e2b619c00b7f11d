"""The comparison of enqueue rates: how ratios are made, and when it fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from detent.devtools.bench.enqueue_columns import EnqueueColumn

FOLDER = Path(__file__).parents[2] / "benchmarks" / "peers"
COLUMNS = [EnqueueColumn("single", 1), EnqueueColumn("insert", 8)]
VERSIONS = {"version": "1.0", "driver": "psycopg 3.0", "python": "3.13.0"}


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(FOLDER)
    import enqueue_report as module  # type: ignore[import-not-found]  # found once the folder is on the path

    yield module
    sys.modules.pop("enqueue_report", None)


def result(report: ModuleType, ours: list[float], theirs: list[float]) -> dict[str, object]:
    systems = [report.EnqueueSystem("detent", "a.py"), report.EnqueueSystem("queue", "b.py")]
    cells = {
        name: {column.name: [report.EnqueueCell(rate, 10.0, 20.0) for rate in rates] for column in COLUMNS}
        for name, rates in (("detent", ours), ("queue", theirs))
    }
    summary: dict[str, object] = report.summary(systems, COLUMNS, cells, dict.fromkeys(("detent", "queue"), VERSIONS))
    return summary


def test_a_ratio_is_the_median_of_those_of_each_round(report: ModuleType) -> None:
    found = result(report, [100.0, 900.0, 300.0], [50.0, 300.0, 200.0])
    text = report.as_text(found)
    assert "300 (100 - 900)" in text
    assert "10 + 20 us" in text
    assert "queue 1.0, psycopg 3.0, Python 3.13.0" in text
    assert text.split("times as many as")[1].splitlines()[1].split()[-1] == "2.00"
    assert report.faults(found) == []


def test_a_column_in_which_detent_is_behind_is_a_fault_unless_nothing_is_enqueued_in_it(report: ModuleType) -> None:
    (fault,) = report.faults(result(report, [100.0], [200.0]))
    assert fault == "Behind: one run per call, 1 connection: detent enqueues 0.50 times as many runs as queue."


def test_without_detent_there_are_no_ratios(report: ModuleType) -> None:
    cells = {"queue": {column.name: [report.EnqueueCell(5.0, 1.0, 1.0)] for column in COLUMNS}}
    found = report.summary([report.EnqueueSystem("queue", "b.py")], COLUMNS, cells, {"queue": VERSIONS})
    assert report.faults(found) == []
    assert "times" not in report.as_text(found)


def test_every_system_has_an_adapter() -> None:
    adapters = {path.name for path in (FOLDER / "adapters").glob("enqueue_*.py")}
    assert {f"enqueue_{name}.py" for name in ("detent", "procrastinate", "pgqueuer", "oban")} <= adapters
