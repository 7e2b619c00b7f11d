"""What `decide` writes for each outcome: the only place where outcomes become transitions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.domain.job import HttpTarget, JobSpec
from detent.domain.run import SUCCESS, Cancelled, Claim, Committed, End, Failed, Outcome, PlannedRetry, Succeeded
from detent.domain.states import CODES, RunStatus
from detent.errors import Retry
from detent.targets.exceptions import kinds_of
from detent.worker.settle import decide

STARTED = datetime(2026, 1, 1, tzinfo=UTC)
RETRYABLE = [Failed("broken"), Failed("slow", outcome="timeout"), Failed("said", result="a body")]
FINAL = [Failed("wrong", retryable=False), Failed("gone", retryable=False, result="a body")]


def claim(attempt: int = 1, *, once: bool = False) -> Claim:
    return Claim(1, 0, STARTED, 0, 1 << 22 | 1, 1, attempt, once=once)


def spec(**fields: Any) -> JobSpec:
    values = {"max_retries": 2, "retry_backoff": "exponential", "retry_base_seconds": 10, "retry_max_seconds": 100}
    return JobSpec(schedule="every 1h", target=HttpTarget(url="http://x/"), **{**values, **fields})


def decided(outcome: Outcome, held: Claim | None = None, of: JobSpec | None = None, chance: float = 0.5) -> Any:
    return decide(held or claim(), of or spec(), outcome, chance)


@pytest.mark.parametrize("attempt", [1, 3])
@pytest.mark.parametrize("once", [False, True])
def test_a_success_ends_the_run_whatever_came_before(attempt: int, once: bool) -> None:
    held = claim(attempt, once=once)
    assert decided(Succeeded("fine"), held) == End(CODES[RunStatus.SUCCEEDED], None, "fine", "succeeded", None)
    assert decided(Succeeded(), held) is SUCCESS


@pytest.mark.parametrize("once", [False, True])
def test_a_cancelled_run_ends_and_says_why(once: bool) -> None:
    held = claim(once=once)
    assert decided(Cancelled("cancelled while it ran"), held) == End(
        CODES[RunStatus.CANCELLED], "cancelled while it ran", None, "cancelled", "cancelled while it ran"
    )


@pytest.mark.parametrize("once", [False, True])
def test_what_the_handler_committed_itself_is_not_written_again(once: bool) -> None:
    assert decided(Committed(), claim(once=once)) is None


@pytest.mark.parametrize("failed", RETRYABLE, ids=str)
@pytest.mark.parametrize(("attempt", "longest"), [(1, 10), (2, 20)])
def test_a_failure_with_retries_left_is_tried_again(failed: Failed, attempt: int, longest: float) -> None:
    held = claim(attempt)
    assert decided(failed, held) == PlannedRetry(failed.outcome, failed.error, timedelta(seconds=longest / 2))


@pytest.mark.parametrize("failed", RETRYABLE, ids=str)
@pytest.mark.parametrize("attempt", [3, 4])
def test_the_last_failure_is_the_end(failed: Failed, attempt: int) -> None:
    held = claim(attempt)
    assert decided(failed, held) == End(
        CODES[RunStatus.DEAD], "retries exhausted", failed.result, failed.outcome, failed.error
    )


@pytest.mark.parametrize("failed", FINAL, ids=str)
@pytest.mark.parametrize("attempt", [1, 3])
def test_a_failure_that_a_retry_cannot_fix_ends_the_run(failed: Failed, attempt: int) -> None:
    written = decided(failed, claim(attempt))
    assert (written.status, written.reason) == (CODES[RunStatus.DEAD], "not retryable")
    assert (written.result, written.outcome, written.error) == (failed.result, failed.outcome, failed.error)


@pytest.mark.parametrize("failed", [*RETRYABLE, *FINAL], ids=str)
def test_a_run_that_may_be_called_only_once_is_never_tried_again(failed: Failed) -> None:
    written = decided(failed, claim(once=True), spec(max_retries=1000))
    assert isinstance(written, End)
    assert written.status == CODES[RunStatus.DEAD]


def test_a_job_without_retries_is_dead_after_its_first_failure() -> None:
    written = decided(Failed("broken"), of=spec(max_retries=0))
    assert (written.status, written.reason) == (CODES[RunStatus.DEAD], "retries exhausted")


def test_without_a_definition_nothing_is_tried_again() -> None:
    written = decide(claim(), None, Failed("The job's definition is gone.", retryable=False), 0.5)
    assert isinstance(written, End)
    assert written.status == CODES[RunStatus.DEAD]


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [(None, 5), (2.0, 5), (30.0, 30), (100.0, 100), (86_400.0, 100), (float("inf"), 100), (-1.0, 5), (float("nan"), 5)],
)
def test_a_retry_after_of_the_target_is_respected_up_to_the_maximum_of_the_job(
    asked: float | None, seconds: float
) -> None:
    written = decided(Failed("busy", retry_after=asked))
    assert written.delay == timedelta(seconds=seconds)


@pytest.mark.parametrize(("backoff", "seconds"), [("fixed", [5, 5]), ("linear", [5, 10]), ("exponential", [5, 10])])
def test_the_wait_follows_the_jobs_own_backoff(backoff: str, seconds: list[float]) -> None:
    delays = [decided(Failed("broken"), claim(attempt), spec(retry_backoff=backoff)).delay for attempt in (1, 2)]
    assert delays == [timedelta(seconds=number) for number in seconds]


def test_the_wait_is_never_longer_than_the_job_allows() -> None:
    written = decided(Failed("broken"), claim(90), spec(max_retries=1000), chance=0.999)
    assert written.delay <= timedelta(seconds=100)


@pytest.mark.parametrize(
    ("names", "retried"),
    [([], True), (["KeyError"], True), (["ValueError"], False), (["Exception"], False), (["shop.errors.Gone"], False)],
)
def test_an_exception_that_the_job_names_is_not_tried_again(names: list[str], retried: bool) -> None:
    failed = Failed("Gone: no", kinds=("Gone", "shop.errors.Gone", "ValueError", "builtins.ValueError", "Exception"))
    written = decided(failed, of=spec(no_retry_on=names))
    assert isinstance(written, PlannedRetry) == retried
    assert retried or written.reason == "not retryable"


def test_characters_that_postgresql_refuses_are_replaced() -> None:
    for retries in (0, 2):
        assert decided(Failed("a\0b\ud800"), of=spec(max_retries=retries)).error == "a\ufffdb\ufffd"
    assert decided(Failed("said", retryable=False, result="\0")).result == "\ufffd"
    assert decided(Succeeded("\udfff é")).result == "\ufffd é"
    assert decided(Succeeded("é")).result == "é"


@pytest.mark.parametrize("outcome", [None, "fine", Failed(5), Failed("x", kinds=None), Failed("x", retry_after="60")])  # type: ignore[arg-type]
def test_a_value_that_is_not_an_outcome_is_refused(outcome: Any) -> None:
    with pytest.raises((TypeError, AttributeError, AssertionError)):
        decided(outcome)


@pytest.mark.parametrize(
    ("fields", "failed", "retried"),
    [
        ({"retry_on": ["OSError"]}, Failed("x", kinds=kinds_of(ConnectionResetError())), True),
        ({"retry_on": ["builtins.OSError"]}, Failed("x", kinds=kinds_of(ConnectionResetError())), True),
        ({"retry_on": ["OSError"]}, Failed("x", kinds=kinds_of(ValueError())), False),
        ({"retry_on": ["OSError"]}, Failed("x", kinds=kinds_of(Retry())), True),
        ({"retry_on": ["OSError"]}, Failed("its process died"), True),
        ({"retry_on": ["TimeoutError"]}, Failed("x", outcome="timeout"), True),
        ({"retry_on": ["KeyError"]}, Failed("x", outcome="timeout"), False),
        ({"no_retry_on": ["TimeoutError"]}, Failed("x", outcome="timeout"), False),
        (
            {"retry_on": ["OSError"], "no_retry_on": ["TimeoutError"]},
            Failed("x", kinds=kinds_of(TimeoutError())),
            False,
        ),
        ({"retry_on": ["OSError"]}, Failed("x", retryable=False, kinds=kinds_of(OSError())), False),
    ],
)
def test_a_job_may_name_the_exceptions_that_are_retried(fields: dict[str, Any], failed: Failed, retried: bool) -> None:
    assert isinstance(decided(failed, of=spec(max_retries=3, **fields)), PlannedRetry) == retried


@pytest.mark.parametrize(
    ("error", "after", "seconds"),
    [(ConnectionResetError(), None, 5), (OSError(), None, 60), (OSError(), 90, 90), (TimeoutError(), None, 60)],
)
def test_the_wait_after_an_exception_is_that_of_its_most_specific_name(
    error: Exception, after: float | None, seconds: float
) -> None:
    waits = {"OSError": 60, "ConnectionError": 5}
    failed = Failed("x", retry_after=after, kinds=kinds_of(error))
    planned = decided(failed, of=spec(max_retries=3, retry_delays=waits, retry_base_seconds=3000))
    assert planned.delay.total_seconds() == seconds
