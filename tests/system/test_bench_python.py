"""`detent bench python` measures what it says: both sides call the function for every run."""

from __future__ import annotations

import pytest

from detent.devtools.bench import python


async def test_both_sides_call_every_function_in_turn() -> None:
    told: list[int] = []
    result = await python.bench_python(250, 5, 2, told.append)
    assert told == [500, 1000, 1500, 2000]
    assert [each.kind for each in result.kinds] == ["coroutine", "thread"]
    table = dict(python.as_table(result))
    assert table["runs"] == "2 rounds of 250 each, 5 at once"
    for each in result.kinds:
        assert len(each.bare.per_second) == len(each.target.per_second) == 2
        low, high = sorted(mine / raw for mine, raw in zip(each.target.per_second, each.bare.per_second, strict=True))
        assert each.ratio == pytest.approx((low + high) / 2)
        assert table[f"{each.kind}: ratio"].startswith(f"{each.ratio:.2f}")
