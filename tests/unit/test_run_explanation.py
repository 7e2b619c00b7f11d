"""The sentences about an on-demand run: when it was due, what it waits for, and each attempt."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from detent.contract.run import Attempt, Run
from detent.domain.states import RunStatus
from detent.jobs.run_explanation import RunFacts, explain_run

DUE = datetime(2030, 1, 1, 12, tzinfo=UTC)
NOW = DUE + timedelta(minutes=1)
ID = UUID("0192f4c8-8c00-7c00-8000-000000000007")
OTHER = UUID("0192f4c8-8c00-7c00-8000-000000000008")


def run_like(status: str = "pending", **fields: Any) -> Run:
    empty: dict[str, Any] = dict.fromkeys(Run.__struct_fields__)
    given = {
        "id": ID, "job_id": ID, "job": "mail", "scheduled_at": DUE, "status": RunStatus(status), "attempts": [],
        "result": msgspec.Raw(b"null"), "attempt": 1,
    }  # fmt: skip
    return Run(**{**empty, **given, **fields})


def facts_like(**fields: Any) -> RunFacts:
    plain = RunFacts(
        name="mail", status="active", reason=None, task=True, key_limit=None, key_rate=None, now=NOW, held=False,
        place="backlog", parked=False, paced=False, not_before=DUE, attempt=1, key=None, owner=None,
        queue="default", suspended=False, ahead=0, holders=[], unfinished=[], needs="task:", stopped=False,
    )  # fmt: skip
    return plain._replace(**fields)


LATER = NOW + timedelta(minutes=9)


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({}, "It waits for a worker that serves the queue 'default'."),
        (
            {"ahead": 12},
            "It waits for a worker that serves the queue 'default'. 12 runs of the same priority are ahead of it.",
        ),
        (
            {"ahead": 1000},
            "It waits for a worker that serves the queue 'default'. 1,000 or more runs of the same priority are ahead "
            "of it.",
        ),
        (
            {"lack": "No worker is running: start one with `detent worker`."},
            "No worker is running: start one with `detent worker`.",
        ),
        (
            {"stopped": True, "lack": "No worker is running."},
            "It waits: a limit of 0 stops the queue 'default' or its tenant, see `detent queue list`.",
        ),
        ({"not_before": LATER}, "It may start at 2030-01-01 12:10:00 UTC, in 9 min."),
        (
            {"not_before": LATER, "attempt": 3},
            "It waits for its next attempt, number 3, which may start at 2030-01-01 12:10:00 UTC, in 9 min.",
        ),
        (
            {"not_before": LATER, "paced": True, "key": "c1", "key_rate": 0.5},
            "The rate of its concurrency key 'c1' (0.5 per second) lets it start at 2030-01-01 12:10:00 UTC, in 9 min.",
        ),
        (
            {"parked": True, "key": "c1", "key_limit": 2, "holders": [ID, OTHER]},
            f"It waits for its concurrency key 'c1': at most 2 runs with it may run at the same time, and {ID}, "
            f"{OTHER} do.",
        ),
        (
            {"parked": True, "key": "c1"},
            "It waits for its concurrency key 'c1': at most one run with it may run at the same time. A place is free, "
            "and a worker is about to start the next one.",
        ),
        (
            {"status": "paused", "reason": "the target is down", "parked": True},
            "It waits: the task is paused (the target is down). It starts when the task is resumed.",
        ),
        (
            {"task": False, "status": "paused", "unfinished": [OTHER]},
            f"It waits for its turn: the job has its maximum of unfinished runs, among them {OTHER}.",
        ),
        ({"suspended": True}, "It waits: the tenant is suspended by an administrator of the cluster."),
        ({"held": True}, "It waits: the cluster is paused, and no run starts."),
        ({"status": "deleted"}, "Its job is deleted: it will be cancelled."),
        ({"place": "live", "owner": 7}, "A worker has claimed it and has not started it yet."),
    ],
)
def test_a_run_that_has_not_started_says_what_it_waits_for(facts: dict[str, Any], sentence: str) -> None:
    known = facts_like(**facts)
    first, *rest = explain_run(run_like(), known)
    kind = "task" if known.task else "job"
    due = "it was enqueued, and was due at 2030-01-01 12:00:00 UTC."
    assert first == f"It is an on-demand run of the {kind} 'mail': {due}"
    assert rest == [sentence]


def test_attempts_are_told_by_when_the_run_was_due() -> None:
    failed = Attempt(
        attempt=1, token=1, node="a1", started_at=DUE + timedelta(seconds=2), finished_at=DUE + timedelta(seconds=3),
        outcome="failed", error="HTTP 500",
    )  # fmt: skip
    run = run_like("dead", attempts=[failed], finished_at=DUE + timedelta(seconds=3), reason="retries exhausted")
    assert explain_run(run, facts_like(place=None))[1:] == [
        "Attempt 1 started 2.0 s after it was due on node a1 and failed after 1.0 s: HTTP 500.",
        "It died at 2030-01-01 12:00:03 UTC because its retries were used up.",
    ]
    running = run_like("running", started_at=DUE + timedelta(seconds=2), attempt=2)
    assert explain_run(running, facts_like(place="live", owner=7))[1:] == [
        "Attempt 2 started 2.0 s after it was due and has not ended."
    ]
