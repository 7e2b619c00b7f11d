"""The wait before the next attempt."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.domain.retry import Backoff, longest_delay, retry_delay

backoffs = st.sampled_from(get_args(Backoff))
seconds = st.floats(0, 31_536_000)


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [("fixed", [2, 2, 2, 2]), ("linear", [2, 4, 6, 8]), ("exponential", [2, 4, 8, 16])],
)
def test_each_backoff_grows_in_its_own_way(backoff: Backoff, delays: list[float]) -> None:
    assert [longest_delay(attempt, backoff, 2, 1000) for attempt in (1, 2, 3, 4)] == delays


@pytest.mark.parametrize("backoff", get_args(Backoff))
def test_no_wait_is_longer_than_the_ceiling(backoff: Backoff) -> None:
    assert longest_delay(10, backoff, 60, 60) == 60
    assert longest_delay(32_767, backoff, 31_536_000, 3600) == 3600


@given(st.integers(1, 32_767), backoffs, seconds, seconds, st.floats(0, 1, exclude_max=True))
def test_the_wait_lies_between_nothing_and_the_longest(
    attempt: int, backoff: Backoff, base: float, ceiling: float, chance: float
) -> None:
    delay = retry_delay(attempt, backoff, base, ceiling, chance)
    assert 0 <= delay <= longest_delay(attempt, backoff, base, ceiling) <= ceiling


@given(st.integers(1, 32_766), backoffs, seconds, seconds)
def test_a_later_attempt_never_waits_less_at_its_longest(
    attempt: int, backoff: Backoff, base: float, ceiling: float
) -> None:
    assert longest_delay(attempt, backoff, base, ceiling) <= longest_delay(attempt + 1, backoff, base, ceiling)


def test_a_herd_that_failed_together_is_spread_over_the_whole_wait() -> None:
    delays = [retry_delay(3, "exponential", 1, 100, chance / 100) for chance in range(100)]
    assert (min(delays), max(delays)) == (0, 4 * 0.99)
    assert len(set(delays)) == 100
