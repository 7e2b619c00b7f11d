"""The runs that a worker has claimed: found by their claim, whatever other runs their job has."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from detent.domain.identity import ON_DEMAND, RunKey
from detent.domain.run import Claim, HeldRun
from detent.worker.held import HeldRuns

TICK = datetime(2030, 1, 1, tzinfo=UTC)


def held(job: int, minute: int = 0, token: int = 1) -> HeldRun:
    return HeldRun(Claim(job, 0, TICK + timedelta(minutes=minute), 0, token, 1), 0.0)


def of_task(serial: int = ON_DEMAND, token: int = 1) -> HeldRun:
    return HeldRun(Claim(1, serial, TICK, serial, token, 1), 0.0)


def test_runs_of_a_task_are_found_and_removed_by_their_lane() -> None:
    hand = HeldRuns()
    runs = [of_task(ON_DEMAND + n) for n in range(3)]
    for run in [*runs, held(1)]:
        hand.add(run)
    assert len(hand) == len(list(hand)) == 4
    assert all(hand.find(run.claim) is run for run in runs)
    assert set(hand.of_run(runs[0].claim.key)) >= {runs[0]}
    assert runs[1] not in hand.of_run(runs[0].claim.key)
    assert hand.remove(runs[1].claim) is runs[1]
    assert hand.remove(runs[1].claim) is None
    again = of_task(ON_DEMAND)
    hand.add(again)
    assert hand.find(runs[0].claim) is again
    assert len(hand) == 3


def test_a_run_of_a_task_that_is_claimed_again_is_held_twice_until_the_first_claim_is_settled() -> None:
    for removed in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        hand = HeldRuns()
        runs = [of_task(token=token) for token in (1, 2, 3)]
        for run in runs:
            hand.add(run)
        assert len(hand) == 3
        assert set(hand.of_run(runs[0].claim.key)) == set(hand) == set(runs)
        for count, number in enumerate(removed, 1):
            assert hand.remove(runs[number].claim) is runs[number]
            assert hand.find(runs[number].claim) is None
            assert len(hand) == len(list(hand)) == 3 - count
        assert not hand


def test_runs_of_one_job_are_distinguished_by_tick_and_token() -> None:
    hand = HeldRuns()
    runs = [held(1), held(1, minute=1), held(1, token=2), held(2)]
    for run in runs:
        hand.add(run)
    assert len(hand) == 4
    assert all(hand.find(run.claim) is run for run in runs)
    assert hand.remove(runs[1].claim) is runs[1]
    assert hand.remove(runs[1].claim) is None
    assert set(hand) == {runs[0], runs[2], runs[3]}
    assert len(hand) == 3


def test_a_claim_that_was_asked_to_stop_is_still_the_same_hold() -> None:
    hand = HeldRuns()
    run = held(1)
    hand.add(run)
    before = run.claim
    run.claim = run.claim._replace(cancel=True)
    assert hand.find(before) is run
    assert hand.remove(before) is run
    assert not hand


def test_the_same_hold_is_held_once() -> None:
    hand = HeldRuns()
    hand.add(held(1))
    again = held(1)
    hand.add(again)
    assert len(hand) == 1
    assert hand.of_run(RunKey(1, TICK)) == (again,)
