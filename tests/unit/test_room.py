"""For how many runs a worker has room: by its slots, by its pace, and by what is not written yet."""

from __future__ import annotations

import pytest

from detent.worker import room
from detent.worker.room import MOST_UNWRITTEN, Room


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(room, "monotonic", lambda: now[0])
    return now


def over(place: Room, runs: int, *, written: bool = True) -> None:
    for _ in range(runs):
        place.over()
        if written:
            place.written()


def test_as_many_wait_as_can_run_at_once(clock: list[float]) -> None:
    place = Room(100)
    assert place.free(0) == 200
    assert place.free(150) == 50
    place.reserved = 30
    assert place.free(150) == 20
    assert place.free(400) == 0


def test_a_quick_worker_lets_more_wait_and_a_slow_one_no_longer(clock: list[float]) -> None:
    place = Room(100)
    over(place, 2500)
    clock[0] += 0.25
    assert place.free(0) == 100 + int(10_000 * room.MOMENT)
    clock[0] += 10
    assert place.free(0) == 200


def test_nothing_waits_here_that_others_could_run(clock: list[float]) -> None:
    place = Room(100)
    place.others_work = True
    over(place, 2000)
    clock[0] += 0.2
    assert place.free(0) == 200


def test_what_is_over_but_not_written_takes_no_room_until_there_is_very_much_of_it(clock: list[float]) -> None:
    place = Room(100)
    over(place, 50, written=False)
    assert place.free(50) == 200
    over(place, MOST_UNWRITTEN, written=False)
    assert place.free(50 + MOST_UNWRITTEN) == 0
