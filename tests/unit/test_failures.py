"""What an exception that comes out of a handler means for its run."""

from __future__ import annotations

import pytest

from detent import NotRetryable, RetryLater
from detent.worker.execute import LONGEST_WAIT, failure_of


class OutOfStockError(LookupError):
    pass


def test_any_exception_is_worth_another_try_and_says_what_it_is() -> None:
    failed = failure_of(OutOfStockError("none left"))
    assert (failed.error, failed.retryable, failed.retry_after) == ("OutOfStockError: none left", True, None)
    assert set(failed.kinds) >= {"OutOfStockError", f"{__name__}.OutOfStockError", "LookupError", "Exception"}
    assert "object" not in failed.kinds


def test_a_handler_may_say_that_another_try_cannot_help() -> None:
    failed = failure_of(NotRetryable("the order is gone"))
    assert (failed.error, failed.retryable) == ("NotRetryable: the order is gone", False)


@pytest.mark.parametrize(("asked", "waits"), [(30, 30), (0.5, 0.5), (-1, 0), (float("inf"), LONGEST_WAIT)])
def test_a_handler_may_ask_for_a_longer_wait(asked: float, waits: float) -> None:
    failed = failure_of(RetryLater("busy", seconds=asked))
    assert (failed.error, failed.retryable, failed.retry_after) == ("RetryLater: busy", True, waits)
