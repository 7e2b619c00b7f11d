"""When a fire waits for the worker of its own node, and when it does not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from detent.domain.run import Claim
from detent.runtime.wakeups import Wakeups
from detent.scheduler import handoff
from detent.scheduler.handoff import ENOUGH, LONGEST_SECONDS, WorkerWait

OURS, OTHERS = 1, 2
BATCH = 1000


class FullWorker:
    """A worker whose answers are set by the test."""

    def __init__(self, room: int = 0, concurrency: int = 5000) -> None:
        self.room = room
        self.settled = 0
        self.max_waiting = concurrency
        self.busy = True
        self.backlog = False
        self.looks = 0

    def open_capacity(self, _queue: int) -> int:
        return self.room

    def with_free_slot(self, _tenants: Iterable[int]) -> set[int]:
        return set()

    def checks_backlog(self) -> bool:
        self.looks += 1
        return self.backlog

    def serves(self, queue: int) -> bool:
        return queue == OURS

    def reserve(self, queues: Sequence[int]) -> list[bool]:
        raise AssertionError(queues)

    def release(self, count: int) -> None:
        raise AssertionError(count)

    def accept_handed_off(self, claims: Sequence[Claim]) -> None:
        raise AssertionError(claims)


def waiting(worker: FullWorker | None, wakeups: Wakeups | None = None) -> WorkerWait:
    return WorkerWait(worker, wakeups or Wakeups())  # type: ignore[arg-type]  # the parts of a worker that are used


async def test_a_batch_is_as_large_as_the_capacity_of_our_own_worker() -> None:
    assert waiting(FullWorker(room=700)).batch_limit(OURS, 0.1, BATCH) == 700
    assert waiting(FullWorker(room=7000)).batch_limit(OURS, 0.1, BATCH) == BATCH


async def test_a_full_worker_is_waited_for() -> None:
    assert waiting(FullWorker(room=ENOUGH - 1)).batch_limit(OURS, 0.1, BATCH) == 0


async def test_a_small_worker_is_given_a_batch_once_all_of_its_slots_are_free() -> None:
    assert waiting(FullWorker(room=20, concurrency=20)).batch_limit(OURS, 0.1, BATCH) == 20
    assert waiting(FullWorker(room=19, concurrency=20)).batch_limit(OURS, 0.1, BATCH) == 0


@pytest.mark.parametrize("few", [1, 30])
async def test_few_ticks_need_little_capacity(few: int) -> None:
    assert waiting(FullWorker(room=few)).batch_limit(OURS, 0.1, few) == few


async def test_a_fire_does_not_wait_without_a_worker_or_where_others_could_take_the_runs() -> None:
    assert waiting(None).batch_limit(OURS, 0.1, BATCH) == BATCH
    assert waiting(FullWorker()).batch_limit(OTHERS, 0.1, BATCH) == BATCH
    wakeups = Wakeups()
    with_others = waiting(FullWorker(), wakeups)
    wakeups.others_work(True)
    assert with_others.batch_limit(OURS, 0.1, BATCH) == BATCH


async def test_ticks_that_have_already_waited_long_are_fired() -> None:
    assert waiting(FullWorker()).batch_limit(OURS, LONGEST_SECONDS + 1, BATCH) == BATCH


async def test_a_worker_that_makes_no_progress_is_not_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(handoff, "monotonic", lambda: now[0])
    worker = FullWorker()
    line = waiting(worker)
    assert line.batch_limit(OURS, 0.1, BATCH) == 0
    now[0] += handoff.MOMENT
    worker.settled += handoff.QUICK
    assert line.batch_limit(OURS, 0.1, BATCH) == 0
    now[0] += handoff.MOMENT
    worker.settled += 1
    assert line.batch_limit(OURS, 0.1, BATCH) == BATCH
    assert line.batch_limit(OURS, 0.1, BATCH) == BATCH
    now[0] += handoff.MOMENT
    worker.settled += handoff.QUICK
    assert line.batch_limit(OURS, 0.1, BATCH) == 0


async def test_capacity_that_is_promised_to_a_batch_is_not_given_to_the_next() -> None:
    line = waiting(FullWorker(room=1500))
    assert line.batch_limit(OURS, 0.1, BATCH) == BATCH
    line.promised = BATCH
    assert line.batch_limit(OURS, 0.1, BATCH) == 500
    line.promised = 1400
    assert line.batch_limit(OURS, 0.1, BATCH) == 0


async def test_a_worker_without_runs_is_not_waited_for_unless_it_is_about_to_check_its_backlog(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(handoff, "monotonic", lambda: now[0])
    idle = FullWorker()
    idle.busy = False
    assert waiting(idle).batch_limit(OURS, 0.1, 1) == 1
    idle.backlog = True
    line = waiting(idle)
    assert line.batch_limit(OURS, 0.1, 1) == 0
    assert idle.looks == 2
    now[0] += handoff.MOMENT
    assert line.batch_limit(OURS, 0.1, 1) == 1, "the wait ends"
