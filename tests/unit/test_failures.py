"""What an exception that comes out of a handler means for its run."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from detent import NotRetryable, Retry
from detent.targets.exceptions import LONGEST_ERROR, LONGEST_WAIT, describe, failure_of


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


@pytest.mark.parametrize(
    ("asked", "waits"),
    [
        (30, 30),
        (0.5, 0.5),
        (-1, 0),
        (timedelta(minutes=10), 600),
        (timedelta(seconds=-5), 0),
        (timedelta.max, LONGEST_WAIT),
        (Decimal("1.5"), 1.5),
        (Fraction(3, 2), 1.5),
        (float("inf"), LONGEST_WAIT),
        (float("-inf"), 0),
        (10**400, LONGEST_WAIT),
        (-(10**400), 0),
    ],
)
def test_a_handler_may_ask_for_a_longer_wait(asked: Any, waits: float) -> None:
    failed = failure_of(Retry("busy", after=asked))
    assert (failed.error, failed.retryable, failed.retry_after) == ("Retry: busy", True, waits)


class Mute:
    def __repr__(self) -> str:
        raise ValueError("mute")


@pytest.mark.parametrize(
    ("asked", "mistake"),
    [
        ("60", "after is '60': give a number of seconds or a timedelta"),
        (float("nan"), "after is nan: give a number of seconds or a timedelta"),
        (Decimal("NaN"), "after is Decimal('NaN'): give a number of seconds or a timedelta"),
        ([60], "after is [60]: give a number of seconds or a timedelta"),
        (1j, "after is 1j: give a number of seconds or a timedelta"),
        (Mute(), "after cannot be read: ValueError: mute"),
    ],
)
def test_an_invalid_wait_is_reported_and_the_jobs_backoff_applies(asked: Any, mistake: str) -> None:
    failed = failure_of(Retry("busy", after=asked))
    assert (failed.error, failed.retryable, failed.retry_after) == (f"Retry: busy ({mistake})", True, None)


class Mean(type):
    """A class that hides what it is."""

    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(name)


class Hidden(Exception, metaclass=Mean):  # noqa: N818 - raised by a handler
    pass


class Text(str):
    """A text that is none when it is formatted."""

    def __format__(self, how: str) -> str:
        raise ValueError(how)

    def __str__(self) -> str:
        raise ValueError


class Wordy(Exception):  # noqa: N818 - as above
    def __str__(self) -> str:
        return Text("fine")


class Endless(Exception):  # noqa: N818 - as above
    def __str__(self) -> str:
        return str(self)


class Broken(Exception):  # noqa: N818 - as above
    def __str__(self) -> str:
        raise Broken


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Hidden("x"), "Hidden: x"),
        (Wordy(), "Wordy: fine"),
        (Endless(), "Endless: its text cannot be read: RecursionError: "),
        (Broken(), "Broken: its text cannot be read: Broken"),
        (ValueError("\ud800\0é"), "ValueError: \ufffd\ufffdé"),
        (ValueError(""), "ValueError"),
        (ExceptionGroup("g", [ExceptionGroup("h", [KeyError("k")]), ValueError("v")]), "ExceptionGroup: g (2 sub-exce"),
    ],
    ids=["hidden", "wordy", "endless", "broken", "unstorable", "silent", "group"],
)
def test_no_exception_is_too_odd_to_be_described(error: BaseException, text: str) -> None:
    failed = failure_of(error)
    assert failed.error.startswith(text)
    assert all(type(each) is str for each in (failed.error, *failed.kinds))


def test_the_exceptions_of_a_group_are_named_and_not_all_of_very_many() -> None:
    nested = ExceptionGroup("h", [KeyError("k"), ValueError("v")])
    assert describe(ExceptionGroup("g", [nested, OSError("o")])) == (
        "ExceptionGroup: g (2 sub-exceptions): KeyError: 'k'; ValueError: v; OSError: o"
    )
    many = describe(ExceptionGroup("many", [ValueError(str(number)) for number in range(1000)]))
    assert many.endswith("ValueError: 9")


def test_a_text_of_any_length_is_cut() -> None:
    assert len(describe(ValueError("x" * 100_000))) <= LONGEST_ERROR


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, KeyboardInterrupt])
def test_a_job_may_name_any_exception_that_is_not_to_be_tried_again(kind: type[BaseException]) -> None:
    assert kind.__name__ in failure_of(kind()).kinds
