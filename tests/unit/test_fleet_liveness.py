"""The rule that nothing due may wait in silence is judged itself: records in which ticks go on, and ones in which they
do not although every other rule of the checker is content."""

from __future__ import annotations

import json
from itertools import pairwise

import msgspec
import pytest

from tests.support.fleet.checker import SKIPPED, SUCCEEDED, Promise, check
from tests.support.fleet.idle import BURSTS, DISTURBANCES, SILENCE, lasting, one_at_a_time
from tests.support.fleet.liveness import Liveness, disturbances, longest_calm, oldest_due
from tests.support.fleet.plans import Chance, Fault, Plan
from tests.support.fleet.records import Call, Done, Job, Record, Run, Tables

T = 1_800_000_000.0
SECONDS = 40
OLDEST, RECOVERY = 3.0, 2.0
LIVE = Liveness(OLDEST, RECOVERY)
PROMISE = Promise(statuses=(SUCCEEDED, SKIPPED), rules=LIVE.rules)
change = msgspec.structs.replace


def run(tick: int, at: float, lasts: float = 0.2) -> Run:
    result = json.dumps({"body": f"effect {tick}"})
    return Run(1, T + tick, 0, f"run-{tick}", 2, 7, at, at + lasts, 1, SUCCEEDED, None, None, None, result)


def skipped(tick: int, at: float, count: int = 1, reason: str = "paused") -> Run:
    until = T + tick + count - 1
    return Run(1, T + tick, 0, f"run-{tick}", None, None, None, at, None, SKIPPED, count, until, reason, None)


def call(tick: int, at: float) -> Call:
    return Call(f"key-{tick}", f"run-{tick}", "job-0", T + tick, 1, 2, "{}", at, f"effect {tick}", at + 0.1)


def quiet(stopped: float = 0.0, stuck_for: float = 0.0, *, every: int = 1) -> Record:
    """One job; its node is stopped from the tenth second on, its late ticks come when it goes on, and after the
    twentieth it is stuck for so long. A pause at the end gives up what has not come."""
    ended = T + SECONDS + 0.5
    calls: list[Call] = []
    runs: list[Run] = []
    for tick in range(every, SECONDS + 1, every):
        at = T + tick + 0.05
        if stopped and 10 <= tick < 10 + stopped:
            at = T + 10 + stopped + 0.3
        if stuck_for and 20 <= tick < 20 + stuck_for:
            at = T + 20 + stuck_for
        if at >= ended:
            runs.append(skipped(tick, ended + 0.05))
        else:
            calls.append(call(tick, at))
            runs.append(run(tick, at))
    fault = Fault(10.0, "stop", "n1", stopped)
    done = [Done(fault, T + 9.9, T + 10 + stopped)] if stopped else []
    job = Job(1, "id", "job-0", T, T + 0.2, ended, ended + 0.1, every)
    plan = Plan("idle", 1, SECONDS, (fault,) if stopped else ())
    return Record(plan, 5.0, T, ended + 5, [job], calls, Tables(runs), done, {})


@pytest.mark.parametrize("stopped", [0.0, 2.0, 8.0])
@pytest.mark.parametrize("every", [1, 5, 10])
def test_a_job_that_goes_on_after_a_disturbance_is_live(stopped: float, every: int) -> None:
    verdict = check(quiet(stopped, every=every), PROMISE)
    assert (verdict.violations, verdict.word) == ([], "ok")
    assert oldest_due(quiet(stopped, every=every), RECOVERY) < 0.5


def test_a_tick_that_stays_due_in_silence_is_found_although_all_else_is_well() -> None:
    """What was seen of the product: a job that stopped for good beside registrations, and a clean ledger, since the
    pause at the end gives up what has not come."""
    stuck = quiet(stuck_for=100.0)
    assert check(stuck, Promise(statuses=(SUCCEEDED, SKIPPED), latest=1.0)).word == "ok"
    verdict = check(stuck, PROMISE)
    assert verdict.word == "violated"
    assert [line[:2] for line in verdict.violations] == ["L1", "L2", "L3"]
    assert "had a due tick (1800000020) for 20.5 s on a trusted node (18 in all)" in verdict.violations[0]


def test_a_tick_that_is_freed_in_the_end_was_overdue_all_the_same() -> None:
    stuck = quiet(stuck_for=12.0)
    assert LIVE.due_ticks(stuck)
    assert LIVE.gaps(stuck)
    assert oldest_due(stuck, RECOVERY) == pytest.approx(12.0)
    assert Liveness(13.0, RECOVERY).due_ticks(stuck) == []


def test_a_tick_that_nothing_at_all_is_known_of_is_due_until_the_end() -> None:
    record = quiet(stuck_for=100.0)
    forgotten = change(record, tables=Tables([each for each in record.tables.runs if each.status == SUCCEEDED]))
    assert LIVE.due_ticks(forgotten) == LIVE.due_ticks(record) != []


def test_a_disturbance_excuses_its_own_time_and_that_of_the_recovery_only() -> None:
    late = quiet(8.0, 12.0)
    assert LIVE.due_ticks(late) != []
    again = Done(Fault(20.0, "stop", "n1"), T + 19.9, T + 31.0)
    assert LIVE.due_ticks(change(late, done=[*late.done, again])) == []
    short = Done(Fault(20.0, "stop", "n1"), T + 19.9, T + 25.0)
    assert LIVE.due_ticks(change(late, done=[*late.done, short])) != []


def test_two_short_stretches_of_calm_are_not_one_long_one() -> None:
    disturbed = [(10.0, 12.0), (14.0, 16.0)]
    assert longest_calm((9.0, 18.0), disturbed) == 2.0
    assert longest_calm((11.0, 11.5), disturbed) == 0.0
    assert longest_calm((0.0, 30.0), []) == 30.0
    record = change(quiet(), done=[Done(Fault(0, "a"), 1.0, 3.0), Done(Fault(0, "b"), 4.0, 6.0)])
    assert disturbances(record, 1.5) == [(1.0, 7.5)]


def test_a_run_that_is_not_settled_or_not_tried_again_is_found() -> None:
    record = quiet()
    late = [run(tick, T + tick + 0.05, 9.0 if tick == 20 else 0.2) for tick in range(1, SECONDS + 1)]
    unsettled = change(record, tables=Tables(late))
    assert LIVE.due_ticks(unsettled) == []
    (line,) = LIVE.open_runs(unsettled)
    assert line.startswith("L2 job-0: the run of 1800000020 was unfinished for 9.")
    patient = change(unsettled, jobs=[change(unsettled.jobs[0], takes=8.0)])
    assert LIVE.open_runs(patient) == []


def test_ticks_that_are_recorded_as_skipped_or_missed_in_time_are_not_due_any_more() -> None:
    record = quiet()
    runs = [each for each in record.tables.runs if not 20 <= each.scheduled_at - T < 23]
    calls = [each for each in record.calls if not 20 <= each.scheduled_at - T < 23]
    merged = change(record, calls=calls, tables=Tables([*runs, skipped(20, T + 22.6, 3, "overlap")]))
    assert LIVE.due_ticks(merged) == [] == LIVE.open_runs(merged)
    assert check(merged, PROMISE._replace(rules=(LIVE.due_ticks, LIVE.open_runs))).word == "ok"
    late = change(merged, tables=Tables([*runs, skipped(20, T + 29, 3, "overlap")]))
    assert LIVE.due_ticks(late) != []


def test_a_tick_during_a_pause_is_not_due_and_may_be_there() -> None:
    record = quiet()
    (job,) = record.jobs
    job = change(job, gaps=((T + 19.9, T + 20.1),))
    without = change(record, jobs=[job], calls=[c for c in record.calls if c.key != "key-20"])
    without = change(without, tables=Tables([r for r in record.tables.runs if r.run_id != "run-20"]))
    assert check(without, PROMISE).word == check(change(record, jobs=[job]), PROMISE).word == "ok"
    assert check(change(without, jobs=record.jobs), PROMISE).word == "violated"


def test_a_run_by_hand_is_no_sign_of_the_tick_of_its_second() -> None:
    record = quiet(stuck_for=100.0)
    by_hand = change(call(25, T + 25.2), scheduled_at=T + 25.117, key="by hand", run_id="by hand")
    assert LIVE.due_ticks(change(record, calls=[*record.calls, by_hand])) == LIVE.due_ticks(record)


def test_disturbances_come_one_at_a_time_with_silence_after_each() -> None:
    draw = one_at_a_time(DISTURBANCES)
    faults = draw(Chance("idle", 3), lasting(DISTURBANCES), 5.0)
    assert len(faults) == len(DISTURBANCES)
    assert faults == draw(Chance("idle", 3), lasting(DISTURBANCES), 5.0) != draw(Chance("idle", 4), 600.0, 5.0)
    pairs = pairwise(faults)
    assert all(later.at - (earlier.at + earlier.seconds) >= SILENCE - 1 for earlier, later in pairs)
    assert len(one_at_a_time(BURSTS)(Chance("idle", 3), lasting(BURSTS[:1]), 5.0)) == 1
