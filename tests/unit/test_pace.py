"""The pace of bulk operations."""

from __future__ import annotations

import pytest

from detent.domain.pace import Pace, pace, read_rate
from detent.errors import UsageError


@pytest.mark.parametrize(
    ("text", "rate"), [("100/s", 100), ("100", 100), (" 0.5/s ", 0.5), ("600/m", 10), ("36000/h", 10)]
)
def test_a_rate_is_so_many_in_a_second(text: str, rate: float) -> None:
    assert read_rate("--rate", text) == rate


@pytest.mark.parametrize("text", ["", "fast", "0/s", "-1", "1/d", "1e9/s", "nan", "100001/s"])
def test_what_is_no_rate_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(UsageError, match=r"^The rate is .* give a number of runs per second"):
        read_rate("The rate", text)


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(None, Pace(1000, 0)), (100, Pace(50, 0.5)), (1, Pace(1, 1)), (0.1, Pace(1, 10)), (50_000, Pace(1000, 0.02))],
)
def test_lots_and_their_pauses_make_the_rate(rate: float | None, expected: Pace) -> None:
    assert pace(rate, 1000) == expected
