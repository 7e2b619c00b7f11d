"""Effects that happen once, and steps that are not repeated, while nodes are killed: in short; `python -m
chaos.effects` does it with 2,000 increments and at every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.effects.driver import POINTS, increment, order, write_app
from tests.support.processes import Nodes


@pytest.mark.parametrize("count", [150, pytest.param(2000, marks=(pytest.mark.long, pytest.mark.timeout(400)))])
async def test_increments_under_kills_sum_to_exactly_their_number(
    cluster: Nodes, folder: Path, sql: Any, count: int
) -> None:
    await write_app(folder, sql)
    counted = await increment(cluster, sql, count, seed=1, kills=2)
    assert (counted.total, counted.succeeded) == (count, 2 * count)
    assert counted.kills >= 1


@pytest.mark.parametrize("points", [("in pack", "behind pack"), pytest.param(POINTS, marks=pytest.mark.long)])
async def test_a_job_that_is_killed_at_a_step_repeats_none_that_was_stored(
    cluster: Nodes, folder: Path, sql: Any, points: tuple[str, ...]
) -> None:
    await write_app(folder, sql)
    assert await order(cluster, sql, points) == []
