"""The rules that judge a storm of callbacks find what is wrong."""

from __future__ import annotations

import pytest

from tests.support.callback_storm.verdict import (
    STALE,
    Called,
    EndedRun,
    RecordedAttempt,
    Reported,
    StormRecord,
    judge,
)

GOOD = StormRecord(
    runs=["a", "b"],
    calls=[Called("a", 1, 5), Called("b", 1, 5), Called("b", 2, 6)],
    reports=[
        Reported("a", 5, "complete", "plain", 200, answer="succeeded", result="x"),
        Reported("a", 5, "complete", "forged", 403),
        Reported("b", 5, "complete", "late", 409, STALE),
        Reported("b", 6, "complete", "doubled", 200, answer="succeeded", result="y"),
        Reported("b", 6, "complete", "doubled", 200, answer="succeeded", result="y"),
    ],
    history=[EndedRun("a", "succeeded", 5, "x"), EndedRun("b", "succeeded", 6, "y")],
    attempts=[RecordedAttempt("b", 5, "stale")],
)


def changed(place: int, **fields: object) -> list[Reported]:
    return [each._replace(**fields) if at == place else each for at, each in enumerate(GOOD.reports)]  # type: ignore[arg-type]  # names of fields


def test_a_record_without_faults_has_none_but_may_prove_little() -> None:
    verdict = judge(GOOD)
    assert verdict.violations == []
    assert "no report was early" in verdict.untested
    assert "no node was killed" in verdict.untested


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (GOOD._replace(unfinished=1), "have not ended"),
        (GOOD._replace(history=[*GOOD.history, GOOD.history[0]]), "has 2 ends"),
        (GOOD._replace(history=GOOD.history[:1]), "has 0 ends"),
        (GOOD._replace(history=[EndedRun("a", "dead", 5, "x"), GOOD.history[1]]), "is dead"),
        (GOOD._replace(history=[GOOD.history[0], EndedRun("b", "succeeded", 5, "y")]), "ended under 5"),
        (GOOD._replace(calls=[*GOOD.calls, Called("a", 2, 9)]), "was called again under 9"),
        (GOOD._replace(reports=changed(0, status=409)), "accepted were []"),
        (GOOD._replace(reports=changed(1, status=200, result="x")), "was answered 200"),
        (GOOD._replace(reports=changed(2, problem="")), "a late report"),
        (GOOD._replace(attempts=[]), "is recorded as None"),
        (GOOD._replace(reports=changed(4, status=409)), "copies of a report"),
        (GOOD._replace(reports=[*GOOD.reports, Reported("a", 5, "fail", "contrary", 200)]), "completed and failed"),
        (GOOD._replace(reports=[*GOOD.reports, Reported("a", 4, "fail", "failure", 200)]), "is not recorded"),
    ],
)
def test_each_fault_is_found(record: StormRecord, words: str) -> None:
    assert any(words in line for line in judge(record).violations), judge(record).violations
