"""The comparison with peers: who is in it, and how its ratios are made."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "peers"


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(FOLDER)
    import report as module  # type: ignore[import-not-found]  # found once the folder is on the path

    yield module
    for name in ("report", "systems"):
        sys.modules.pop(name, None)


def test_every_peer_has_an_adapter_and_says_what_is_measured(report: ModuleType) -> None:
    import systems  # type: ignore[import-not-found]  # as above

    assert len({peer.name for peer in systems.PEERS}) == len(systems.PEERS)
    for peer in systems.PEERS:
        assert (FOLDER / "adapters" / peer.adapter).is_file()
        assert peer.measured


def test_ratios_are_to_the_best_peer_of_the_same_run_with_and_without_those_that_leave_something_out(
    report: ModuleType,
) -> None:
    import systems

    queue = systems.System("queue", "a.py", 10, "put in and done")
    filled = systems.System("queue, filled", "a.py", 10, "done", whole=False)
    cells = {
        "detent": [report.Cell(900.0, None), report.Cell(1000.0, None), report.Cell(5000.0, None)],
        "queue": [report.Cell(400.0, None), report.Cell(500.0, None), report.Cell(600.0, None)],
        "queue, filled": [report.Cell(2000.0, 100.0)],
    }
    result = report.summary([systems.DETENT, queue, filled], cells)
    assert (result["best_whole"], result["best"]) == ("queue", "queue, filled")
    rows = {row["name"]: row for row in result["systems"]}
    assert [row["name"] for row in result["systems"]] == ["queue, filled", "detent", "queue"]
    assert rows["detent"]["runs_per_second"] == 1000.0
    assert rows["detent"]["times_best_whole"] == 2.0
    assert rows["detent"]["times_best"] == 0.5
    assert (rows["detent"]["lowest"], rows["detent"]["highest"]) == (900.0, 5000.0)
    first, second, *_ = report.as_text(result).splitlines()
    assert first.split()[:2] == ["system", "runs/s"]
    assert second.startswith("queue, filled   2,000")


def test_without_peers_there_are_no_ratios(report: ModuleType) -> None:
    import systems

    result = report.summary([systems.DETENT], {"detent": [report.Cell(900.0, None)]})
    assert result["best"] is None
    assert result["systems"][0]["times_best"] is None
