"""Enqueued runs while nodes and enqueuers are killed, in short; `python -m chaos.on_demand` does it with 100,000."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.orders.checker import check
from tests.support.orders.driver import Scale, perform

QUICK = {"fsync": "off", "full_page_writes": "off"}
SCALE = Scale(500, ("n1", "n2"), ("e1", "e2"), 1.5, (2.0, 6.0), (0.5, 4.0), QUICK)


@pytest.mark.parametrize(
    "scale",
    [
        pytest.param(SCALE, id="short"),
        pytest.param(SCALE._replace(runs=2000), id="longer", marks=pytest.mark.long),
        pytest.param(SCALE._replace(runs=2000, promotes=True), id="promotion", marks=pytest.mark.long),
    ],
)
async def test_what_is_committed_ends_once_and_what_is_rolled_back_never_runs(folder: Path, scale: Scale) -> None:
    verdict = check(await perform(folder, scale, 0))
    assert verdict.violations == []
    assert verdict.untested == []
