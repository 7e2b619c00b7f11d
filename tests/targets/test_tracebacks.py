"""Tracebacks as text."""

from __future__ import annotations

from typing import Any

from detent.domain.masking import Mask
from detent.targets.exceptions import failure_of
from detent.targets.python import HandlerFunction
from detent.targets.tracebacks import LONGEST_TRACEBACK, traceback_of


def third(value: str) -> int:
    password = "hunter2-hunter2"
    return int(value) if password else 0


def second(value: str) -> int:
    try:
        return third(value)
    except ValueError as error:
        error.add_note("while the order was read")
        raise KeyError("order") from error


def first(run: Any) -> int:
    return second("many")


def raised(function: Any = first) -> BaseException:
    try:
        HandlerFunction(function)(None)  # type: ignore[arg-type] # these functions ask nothing of their run
    except BaseException as error:
        assert error.__traceback__ is not None
        return error.with_traceback(error.__traceback__.tb_next)  # as a worker has it: from the call of the handler on
    raise AssertionError("it raised nothing")


def test_a_traceback_has_all_levels_the_cause_and_its_notes() -> None:
    text = traceback_of(raised())
    assert text is not None
    for part in ("in first", "in second", "in third", "ValueError: invalid literal", "while the order was read"):
        assert part in text
    assert "direct cause" in text
    assert text.endswith("KeyError: 'order'")


def test_it_begins_in_the_code_of_the_user_and_shows_no_values_of_variables() -> None:
    text = traceback_of(raised()) or ""
    assert "detent/targets" not in text
    assert "src/detent" not in text
    assert "'many'" in text, "the text of the exception"
    assert 'password = "hunter2' not in text


def test_members_of_a_group_are_shown() -> None:
    def grouped(run: Any) -> None:
        raise BaseExceptionGroup("both", [raised(), OSError("disk")])

    text = traceback_of(raised(grouped)) or ""
    assert "ExceptionGroup: both" in text
    assert "OSError: disk" in text
    assert "in third" in text


def test_a_context_is_shown() -> None:
    def again(run: Any) -> None:
        try:
            first(run)
        except KeyError:
            raise RuntimeError("and then") from None if run else RuntimeError("the cause")

    assert "the cause" in (traceback_of(raised(again)) or "")


def test_a_long_traceback_keeps_its_beginning_and_its_end() -> None:
    def long(run: Any) -> None:
        raise ValueError("\n".join(f"line {number} {'x' * 100}" for number in range(1_000)))

    text = traceback_of(raised(long)) or ""
    assert len(text) < LONGEST_TRACEBACK + 100
    assert text.startswith("Traceback")
    assert "characters left out" in text
    assert "line 999" in text


def test_an_endless_recursion_is_no_endless_text() -> None:
    def deep(run: Any) -> None:
        deep(run)

    text = traceback_of(raised(deep)) or ""
    assert len(text) < LONGEST_TRACEBACK + 100
    assert "RecursionError" in text


def test_secrets_are_masked_also_where_it_is_shortened() -> None:
    secret = "s3cr3t-v4lue-of-a-key"

    def leaky(run: Any) -> None:
        raise ValueError(f"{secret} " * 2_000)

    assert secret[:8] not in (traceback_of(raised(leaky), Mask([secret])) or "")


def test_an_exception_whose_parts_cannot_be_read_has_no_traceback_and_fails_all_the_same() -> None:
    class Broken(Exception):  # noqa: N818 - it says what it is
        @property
        def __notes__(self) -> Any:  # type: ignore[override] # what a hostile class does
            raise SystemExit("no notes")

        def __str__(self) -> str:
            raise SystemExit("no text")

    def broken(run: Any) -> None:
        raise Broken

    failed = failure_of(raised(broken))
    assert failed.error.startswith("Broken")
    assert failed.traceback is None or "Broken" in failed.traceback


def test_a_failure_has_the_traceback_of_its_exception() -> None:
    failed = failure_of(raised())
    assert failed.traceback is not None
    assert "in third" in failed.traceback
