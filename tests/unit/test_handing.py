"""When the fire waits for the worker of its own node, and when it does not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from detent.domain.run import Claim
from detent.scheduler import handing
from detent.scheduler.handing import ENOUGH, LONGEST_SECONDS, Waiting

OURS, OTHERS = 1, 2
BATCH = 1000


class FullWorker:
    """One that says what it is told to say."""

    def __init__(self, room: int = 0, concurrency: int = 5000) -> None:
        self.open_room = room
        self.settled = 0
        self.breath = concurrency
        self.busy = True
        self.backlog = False
        self.looks = 0

    def looks_first(self) -> bool:
        self.looks += 1
        return self.backlog

    def takes(self, queue: int) -> bool:
        return queue == OURS

    def reserve(self, queues: Sequence[int]) -> list[bool]:
        raise AssertionError(queues)

    def release(self, count: int) -> None:
        raise AssertionError(count)

    def accept_handed_off(self, claims: Sequence[Claim]) -> None:
        raise AssertionError(claims)


def waiting(worker: FullWorker | None) -> Waiting:
    return Waiting(worker)  # type: ignore[arg-type]  # as much of a worker as is asked


async def test_a_batch_is_as_large_as_the_room_of_our_own_worker() -> None:
    assert waiting(FullWorker(room=700)).batch(OURS, 0.1, BATCH) == 700
    assert waiting(FullWorker(room=7000)).batch(OURS, 0.1, BATCH) == BATCH


async def test_a_full_worker_is_waited_for() -> None:
    assert waiting(FullWorker(room=ENOUGH - 1)).batch(OURS, 0.1, BATCH) == 0


async def test_a_small_worker_has_room_for_a_batch_when_it_has_room_for_all_it_can_do_at_once() -> None:
    assert waiting(FullWorker(room=20, concurrency=20)).batch(OURS, 0.1, BATCH) == 20
    assert waiting(FullWorker(room=19, concurrency=20)).batch(OURS, 0.1, BATCH) == 0


@pytest.mark.parametrize("few", [1, 30])
async def test_few_ticks_need_little_room(few: int) -> None:
    assert waiting(FullWorker(room=few)).batch(OURS, 0.1, few) == few


async def test_nobody_is_waited_for_where_there_is_no_worker_or_others_could_take_the_runs() -> None:
    assert waiting(None).batch(OURS, 0.1, BATCH) == BATCH
    assert waiting(FullWorker()).batch(OTHERS, 0.1, BATCH) == BATCH
    with_others = waiting(FullWorker())
    with_others.others_work = True
    assert with_others.batch(OURS, 0.1, BATCH) == BATCH


async def test_ticks_that_have_waited_long_wait_no_longer() -> None:
    assert waiting(FullWorker()).batch(OURS, LONGEST_SECONDS + 1, BATCH) == BATCH


async def test_a_worker_that_does_not_get_on_is_not_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(handing, "monotonic", lambda: now[0])
    worker = FullWorker()
    line = waiting(worker)
    assert line.batch(OURS, 0.1, BATCH) == 0
    now[0] += handing.MOMENT
    worker.settled += handing.QUICK
    assert line.batch(OURS, 0.1, BATCH) == 0
    now[0] += handing.MOMENT
    worker.settled += 1
    assert line.batch(OURS, 0.1, BATCH) == BATCH
    assert line.batch(OURS, 0.1, BATCH) == BATCH
    now[0] += handing.MOMENT
    worker.settled += handing.QUICK
    assert line.batch(OURS, 0.1, BATCH) == 0


async def test_room_that_is_promised_to_a_batch_is_not_given_to_the_next() -> None:
    line = waiting(FullWorker(room=1500))
    assert line.batch(OURS, 0.1, BATCH) == BATCH
    line.promised = BATCH
    assert line.batch(OURS, 0.1, BATCH) == 500
    line.promised = 1400
    assert line.batch(OURS, 0.1, BATCH) == 0


async def test_a_worker_without_runs_is_not_waited_for_unless_it_is_about_to_look_whether_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(handing, "monotonic", lambda: now[0])
    idle = FullWorker()
    idle.busy = False
    assert waiting(idle).batch(OURS, 0.1, 1) == 1
    idle.backlog = True
    line = waiting(idle)
    assert line.batch(OURS, 0.1, 1) == 0
    assert idle.looks == 2
    now[0] += handing.MOMENT
    assert line.batch(OURS, 0.1, 1) == 1, "it is not waited for without end"
