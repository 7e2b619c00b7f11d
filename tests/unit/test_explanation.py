"""The sentences that explain a tick, without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from detent.contract.run import Attempt, Run
from detent.domain.ledger import Entry
from detent.domain.schedule import Schedule
from detent.domain.states import RunStatus
from detent.jobs.explanation import Facts, JobEvent, RuleInForce, explain, span

AT = datetime(2026, 3, 10, 8, 0, tzinfo=UTC)
DAILY = Schedule.parse("0 9 * * *", timezone="Europe/Berlin")
SECOND = timedelta(seconds=1)
NODE = "00000000000000aa"
RUN_ID = UUID("01a1df62-89c3-7000-8000-000000000004")


def facts(**known: Any) -> Facts:
    rule = RuleInForce(DAILY, 3, JobEvent(datetime(2026, 3, 1, 12, tzinfo=UTC), "deploys"))
    fields = {"job": "report", "at": AT, "now": AT + timedelta(hours=4), "created": JobEvent(AT - 99 * SECOND, "ada")}
    return Facts(**{**fields, "partition": 17, "rule": rule, "is_tick": True, **known})


def told(**known: Any) -> str:
    sentences = explain(facts(**known))
    assert all(sentence[0].isupper() or sentence[0].isdigit() for sentence in sentences)
    assert all(sentence.endswith(".") for sentence in sentences)
    return " ".join(sentences)


def attempt(number: int, outcome: str, after: float, took: float, error: str | None = None, **fields: Any) -> Attempt:
    started = AT + after * SECOND
    known = {"attempt": number, "token": number, "node": NODE, "started_at": started, "error": error}
    return Attempt(**{**known, "finished_at": started + took * SECOND, "outcome": outcome, **fields})


def run(status: str, *attempts: Attempt, **fields: Any) -> Run:
    known: dict[str, Any] = {
        "id": RUN_ID,
        "job_id": RUN_ID,
        "job": "report",
        "scheduled_at": AT,
        "status": RunStatus(status),
        "reason": None,
        "attempt": len(attempts) or 1,
        "token": 1,
        "started_at": attempts[-1].started_at if attempts else None,
        "finished_at": attempts[-1].finished_at if attempts and status in ("succeeded", "dead") else None,
        "duration_ms": None,
        "lateness_ms": None,
        "node": NODE,
        "result": msgspec.Raw(b"null"),
        "error": None,
        "idempotency_key": "k",
        "ticks": None,
        "until": None,
        "attempts": list(attempts),
    }
    return Run(**{**known, **fields})


def outcome(status: str, reason: str | None = None, ticks: int = 1) -> dict[str, Any]:
    return {"status": status, "entry": Entry(AT, AT + (ticks - 1) * timedelta(days=1), ticks, status, reason)}


def test_a_tick_is_reported_in_utc_and_on_the_wall_clock_with_the_revision_in_force() -> None:
    text = told(status="scheduled", now=AT - timedelta(hours=2))
    assert text.startswith(
        "2026-03-10 08:00:00 UTC (09:00:00 in Europe/Berlin) is a tick of 'report'. Its schedule is: "
    )
    assert (
        "in Europe/Berlin, set by revision 3 at 2026-03-01 12:00:00 UTC (13:00:00 in Europe/Berlin) by deploys." in text
    )
    assert text.endswith("It fires in 2 h.")


def test_every_attempt_of_a_run_is_reported() -> None:
    made = run(
        "succeeded",
        attempt(1, "failed", 0.004, 2, "HTTP 503."),
        attempt(2, "lost", 60, 5, started_at=None),
        attempt(3, "timeout", 90, 300, "No answer within 300 s."),
        attempt(4, "succeeded", 400, 1.5),
    )
    text = told(**outcome("succeeded"), run=made)
    assert f"It became run {RUN_ID}, which succeeded at " in text
    assert f"Attempt 1 started 4 ms after the tick on node {NODE} and failed after 2.0 s: HTTP 503." in text
    assert f"Attempt 2 on node {NODE} was lost with its node." in text
    assert "Attempt 3 started 1 min 30 s after the tick" in text
    assert "and timed out after 5 min: No answer within 300 s." in text
    assert "Attempt 4 started 6 min 40 s after the tick" in text


def test_an_attempt_that_was_given_up_says_so_and_which_late_report_was_refused() -> None:
    silent = "The target accepted the run and sent neither a heartbeat nor the end of the run within 2 s."
    made = run(
        "dead",
        attempt(1, "stale", 0.004, 6, f"{silent} refused: succeeded", node="callback:a"),
        attempt(2, "stale", 60, 5, "refused: failed"),
        attempt(3, "lost", 90, 6, silent, node="callback:a"),
    )
    text = told(**outcome("dead"), run=made)
    assert f" and was given up after 6.0 s; a later report that it succeeded was refused: {silent}" in text
    assert " and was given up after 5.0 s; a later report that it failed was refused. " in text
    assert f" and was given up after 6.0 s: {silent}" in text
    assert "reassigned" not in text and "its node" not in text


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("pending", "which waits for a worker."),
        ("retrying", "which waits for its next attempt, number 1."),
        ("running", f"which is running on node {NODE}."),
    ],
)
def test_a_run_that_is_not_over_is_reported(status: str, words: str) -> None:
    assert words in told(**outcome(status), run=run(status))


def test_a_run_that_was_to_fire_later_than_its_tick_says_so() -> None:
    ran = run("succeeded", attempt(1, "succeeded", 4.0, 1.0))
    assert "It was to fire 3.9 s after the tick because of jitter." in told(run=ran, fires_at=AT + 3.9 * SECOND)
    assert "was to fire" not in told(run=ran, fires_at=AT)


def test_a_tick_that_the_clock_moved_says_so() -> None:
    schedule = Schedule.parse("30 2 * * *", timezone="Europe/Berlin")
    at = datetime(2026, 3, 29, 1, tzinfo=UTC)
    text = " ".join(explain(facts(at=at, now=at, rule=RuleInForce(schedule), status="due")))
    assert "The clocks change then: 02:30 does not exist on 2026-03-29: runs at 03:00." in text


def test_a_tick_in_the_repeated_hour_says_so() -> None:
    schedule = Schedule.parse("30 2 * * *", timezone="Europe/Berlin")
    at = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    text = " ".join(explain(facts(at=at, now=at, rule=RuleInForce(schedule), status="due")))
    assert "02:30 comes twice on 2026-10-25: runs once, the first time." in text


def test_an_ordinary_day_has_no_word_about_clocks() -> None:
    assert "clock" not in told(**outcome("succeeded"), run=run("succeeded", attempt(1, "succeeded", 0, 1)))


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("overlap", "another run of the job was unfinished"),
        (
            "paused",
            "the job was paused at 2026-03-09 08:00:00 UTC (09:00:00 in Europe/Berlin) by ada (why).",
        ),
        ("by request", "It did not run: it was marked to be skipped."),
        ("tenant suspended", "It did not run: the tenant was suspended by an administrator of the cluster."),
        ("edited", "An edit does not fire ticks."),
        ("deleted", "had not fired when the job was deleted"),
        ("quota", "It did not run: quota."),
    ],
)
def test_each_reason_for_a_skipped_tick_is_reported(reason: str, words: str) -> None:
    pause = JobEvent(AT - timedelta(days=1), "ada", "why") if reason == "paused" else None
    assert words in told(**outcome("skipped", reason), pause=pause)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("grace", "When a node processed it 3 h later, it was older than the job's grace period."),
        ("merged", "only the latest missed tick was run (missed_window RUN_ONCE)."),
        ("policy", "no missed tick was run (missed_window SKIP)."),
        ("limit", "more ticks had been missed than max_missed allows."),
        ("dropped", "It waited to be caught up until the catch-up was dropped, 2026-03-10 11:00:00 UTC"),
        ("deleted", "It waited to be caught up until the job was deleted, 2026-03-10 11:00:00 UTC"),
        ("max_runs", "It waited to be caught up until the job had used all its max_runs, 2026-03-10 11:00:00 UTC"),
    ],
)
def test_each_reason_for_a_missed_tick_is_reported(reason: str, words: str) -> None:
    text = told(**outcome("missed", reason, ticks=5), recorded_at=AT + timedelta(hours=3))
    assert words in text
    assert "The ledger has one entry for 5 ticks, from " in text


def test_an_instant_without_neighbours_and_a_job_without_a_rule_are_reported() -> None:
    assert told(is_tick=False).endswith("It has no tick before or after that time.")
    assert "there is none after that" in told(is_tick=False, before=AT)
    assert "there is none before that" in told(is_tick=False, after=AT)
    assert "had no tick left" in " ".join(explain(facts(rule=None, completed=True)))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0121, "12 ms"), (1.5, "1.5 s"), (200, "3 min 20 s"), (120, "2 min"), (7500, "2 h 5 min"), (200_000, "2 days")],
)
def test_a_span_of_time_reads_well(seconds: float, words: str) -> None:
    assert span(timedelta(seconds=seconds)) == words


def test_a_tick_that_a_backfill_ran_is_not_called_late() -> None:
    ran = run("succeeded", attempt(1, "succeeded", 48 * 3600, 1))
    text = told(run=ran, backfilled=True, created=JobEvent(AT + 47 * 3600 * SECOND, "ada"), **outcome("succeeded"))
    assert "A backfill ran it: the job was created at 2026-03-12 07:00:00 UTC (08:00:00 in " in text
    assert f"Attempt 1 started at 2026-03-12 08:00:00 UTC (09:00:00 in Europe/Berlin) on node {NODE} and" in text
    assert "after the tick" not in text and "partition" not in text
    assert "A backfill ran it: no schedule was in force." in told(run=ran, backfilled=True, **outcome("succeeded"))
