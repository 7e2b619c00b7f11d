"""For how many runs a worker has capacity: by its slots, by its pace, and by what is not written yet."""

from __future__ import annotations

import pytest

from detent.worker import capacity
from detent.worker.capacity import MAX_UNWRITTEN, WorkerCapacity


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(capacity, "monotonic", lambda: now[0])
    return now


def over(worker: WorkerCapacity, runs: int, *, written: bool = True) -> None:
    for _ in range(runs):
        worker.over()
        if written:
            worker.written(1)


def test_as_many_wait_as_can_run_at_once(clock: list[float]) -> None:
    worker = WorkerCapacity(100)
    assert worker.free(0) == 200
    assert worker.free(150) == 50
    worker.reserved = 30
    assert worker.free(150) == 20
    assert worker.free(400) == 0


def test_a_quick_worker_lets_more_wait_and_a_slow_one_no_longer(clock: list[float]) -> None:
    worker = WorkerCapacity(100)
    over(worker, 2500)
    clock[0] += 0.25
    assert worker.free(0) == 100 + int(10_000 * capacity.MOMENT)
    clock[0] += 10
    assert worker.free(0) == 200


def test_nothing_waits_here_that_others_could_run(clock: list[float]) -> None:
    worker = WorkerCapacity(100)
    worker.others_work = True
    over(worker, 2000)
    clock[0] += 0.2
    assert worker.free(0) == 200


def test_what_is_over_but_not_written_takes_no_room_until_there_is_very_much_of_it(clock: list[float]) -> None:
    worker = WorkerCapacity(100)
    over(worker, 50, written=False)
    assert worker.free(50) == 200
    over(worker, MAX_UNWRITTEN, written=False)
    assert worker.free(50 + MAX_UNWRITTEN) == 0
