"""A due tick is sent, whatever the node believes about its timers, its worker and its memory.

The scheduler and the fire are driven pass by pass on a clock of the test's own, with a store that records what is sent:
the faults below are of timing, and need no luck here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.domain.run import Claim
from detent.domain.schedule import Schedule
from detent.errors import Unavailable
from detent.runtime import clock as clocks
from detent.runtime import service
from detent.runtime.wakeups import Wakeups
from detent.scheduler import handoff, planning
from detent.scheduler import scheduler as scheduler_module
from detent.scheduler.planning import tick_of
from detent.scheduler.scheduler import Scheduler
from detent.store.cursors import Advance, Cursor, Exceptional, Leap
from detent.telemetry.metrics import Metrics

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
EVERY_SECOND = Schedule.parse("every 1s", anchor=NOW)
QUEUE, PARTITION, SLOW = 1, 7, 2


def cursor(job: int = 1, at: datetime = NOW, schedule: int = 1) -> Cursor:
    return Cursor(job, at, at, 1, False, QUEUE, schedule, 1, -1, PARTITION, 5, 1, False)


class SlowSchedule:
    """One whose missed ticks take long to count: until the test says so."""

    delay = None

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.answers = threading.Event()

    def anchored(self, _moment: datetime) -> Schedule:
        self.asked.set()
        assert self.answers.wait(30)
        return EVERY_SECOND

    def jitter(self, _job: int, _tick: datetime) -> timedelta:
        return timedelta()


class Cursors:
    """The rows, and what was sent about them."""

    def __init__(self) -> None:
        self.rows: dict[int, Cursor] = {}
        self.sent: list[Advance] = []
        self.missed: list[Leap] = []
        self.slow = SlowSchedule()
        self.error: Exception | None = None
        self.tries = 0

    async def window(self, _partitions: object, _lower: object, upper: datetime, _limit: int) -> list[Cursor]:
        return [row for row in self.rows.values() if row.fire_at is not None and row.fire_at <= upper]

    async def load(self, jobs: Sequence[int]) -> list[Cursor]:
        return [self.rows[job] for job in jobs if job in self.rows]

    async def schedules(self, _numbers: object) -> dict[int, Any]:
        return {1: EVERY_SECOND, SLOW: self.slow}

    async def miss(self, _node: int, leaps: Sequence[Leap], *, suspended: bool) -> set[int]:
        self.missed += leaps
        return {leap.cursor.job for leap in leaps}

    async def fire(self, *_by: object, careful: bool = False, patient: bool = False) -> list[Exceptional]:
        self.tries += 1
        if self.error is not None:
            raise self.error
        batch: Sequence[Advance] = _by[3]  # type: ignore[assignment]  # as the store takes it
        for advance in batch:
            self.sent.append(advance)
            self.rows[advance.cursor.job] = advance.moved
        return []


class Store:
    def __init__(self) -> None:
        self.cursors = Cursors()


class Membership:
    node, incarnation, trusted, held = 1, 1, True, False


class Book:
    suspended: frozenset[int] = frozenset()

    def weight_of(self, _tenant: int) -> int:
        return 1

    def tenant_of(self, _queue: int) -> int:
        return 1


class Worker:
    """A worker that says what the test says."""

    def __init__(self, room: int = 0, *, busy: bool = True) -> None:
        self.room = room
        self.busy = busy
        self.settled = 0
        self.max_waiting = 100

    def serves(self, _queue: int) -> bool:
        return True

    def open_capacity(self, _queue: int) -> int:
        return self.room

    def with_free_slot(self, _tenants: Iterable[int]) -> set[int]:
        return set()

    def checks_backlog(self) -> bool:
        return False

    def prefetch(self, _jobs: object) -> None:
        pass

    def reserve(self, queues: Sequence[int]) -> list[bool]:
        return [False] * len(queues)

    def release(self, _count: int) -> None:
        pass

    def accept_handed_off(self, claims: Sequence[Claim]) -> None:
        raise AssertionError(claims)


class Node:
    """A scheduler and its fire; time passes only when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, worker: Worker | None) -> None:
        self.now = 1000.0
        for module in (clocks, handoff, planning, scheduler_module, service):
            monkeypatch.setattr(module, "monotonic", lambda: self.now)
        self.clock = clocks.DatabaseClock()
        self.clock.observe(NOW, self.now, 0.0)
        self.store = Store()
        self.metrics = Metrics()
        parts: tuple[Any, Any, Any] = (self.store, Membership(), self.clock)
        book: Any = Book()
        taking: Any = worker
        self.scheduler = Scheduler(
            *parts, worker=taking, book=book, wakeups=Wakeups(), metrics=self.metrics, window_seconds=60
        )
        self.firing = self.scheduler.firing
        self.scheduler.lead([PARTITION])

    async def tick(self) -> float:
        """One pass, and the statements that it sent; what the loop would wait after it."""
        self.scheduler.loop._awake.clear()
        pause = await self.scheduler.tick()
        for _ in range(20):
            await asyncio.sleep(0)
        return 0.0 if self.scheduler.loop._awake.is_set() else pause

    async def silence(self, seconds: float) -> None:
        """Nothing happens but the scheduler's own passes, each after the wait that the one before returned."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + max(await self.tick(), 0.001))
        await self.tick()

    def add(self, cursors: Iterable[Cursor]) -> None:
        self.store.cursors.rows.update({row.job: row for row in cursors})

    @property
    def ticks_sent(self) -> list[datetime]:
        return [tick_of(advance.cursor) for advance in self.store.cursors.sent]


async def test_a_tick_that_waits_for_the_worker_is_sent_although_the_timer_came_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node(monkeypatch, Worker(room=0))
    node.add([cursor()])
    await node.tick()
    assert node.ticks_sent == []
    node.now += handoff.MOMENT - 0.0008  # uvloop's timers can be that early
    node.firing.pump()
    await node.silence(5)
    assert NOW in node.ticks_sent


async def test_a_tick_that_waits_for_the_worker_is_sent_when_nothing_ever_wakes_the_fire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node(monkeypatch, Worker(room=0))
    node.add([cursor()])
    await node.silence(handoff.MOMENT + 0.2)
    assert node.ticks_sent[:1] == [NOW]


async def test_no_tick_waits_for_a_worker_that_has_nothing_in_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, Worker(room=0, busy=False))
    node.add([cursor()])
    await node.tick()
    assert node.ticks_sent == [NOW]


async def test_the_sweep_offers_a_due_tick_again_that_memory_believes_to_be_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node(monkeypatch, None)
    node.add([cursor()])
    node.firing._due._cursors[1] = cursor()  # known, but in no line: as after a lost wake-up
    await node.silence(scheduler_module.SWEEP_EVERY + 1)
    assert NOW in node.ticks_sent


async def test_a_batch_whose_task_is_cancelled_before_it_begins_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node(monkeypatch, None)
    node.add([cursor()])
    await node.scheduler.tick()
    (task,) = node.firing._tasks
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await node.silence(2)
    assert NOW in node.ticks_sent


async def test_live_ticks_do_not_wait_while_missed_ones_are_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, None)
    outage = [cursor(job, NOW - timedelta(days=1), schedule=SLOW) for job in range(10, 40)]
    node.add([*outage, cursor(1)])
    await node.tick()
    slow = node.store.cursors.slow
    await asyncio.to_thread(slow.asked.wait, 30)
    node.now += 1
    await node.silence(1)
    assert {NOW, NOW + timedelta(seconds=1)} <= set(node.ticks_sent)
    assert node.store.cursors.missed == []
    slow.answers.set()
    while node.firing.misses.task is not None:
        await asyncio.sleep(0)
    assert {leap.cursor.job for leap in node.store.cursors.missed} == set(range(10, 40))


async def test_a_missed_tick_that_is_to_run_after_all_is_fired_late(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, None)
    node.add([cursor(1, NOW - timedelta(minutes=10))])
    node.store.cursors.slow.answers.set()
    await node.tick()
    while node.firing.misses.task is not None:
        await asyncio.sleep(0)
    await node.tick()
    (leap,) = node.store.cursors.missed
    assert leap.missed[0].reason == "merged"
    assert node.ticks_sent[0] == leap.next_tick


async def test_a_fire_that_the_database_refuses_is_tried_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, None)
    node.add([cursor()])
    node.store.cursors.error = Unavailable("The database refused a statement: no space left on device.")
    await node.silence(30)
    assert node.store.cursors.tries < 40
    assert node.firing.failing_seconds >= 29
    node.store.cursors.error = None
    await node.silence(5)
    assert NOW in node.ticks_sent
    assert node.firing.failing_seconds == 0


async def test_a_node_counts_ticks_that_it_holds_due_and_has_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, None)
    node.add([cursor(job) for job in range(1, 4)])
    node.store.cursors.error = Unavailable("The database refused a statement.")
    assert node.scheduler.unsent() == (0, 0.0)
    await node.silence(3)
    ticks, oldest = node.scheduler.unsent()
    assert ticks == 3
    assert oldest >= 3
    node.store.cursors.error = None
    await node.silence(5)
    assert node.scheduler.unsent() == (0, 0.0)


async def test_a_scheduler_that_makes_no_pass_is_seen_by_the_ticks_left_in_its_wheel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node(monkeypatch, None)
    node.add([cursor(at=NOW + timedelta(seconds=5))])
    await node.tick()
    node.now += 9
    ticks, oldest = node.scheduler.unsent()
    assert ticks == 1
    assert oldest == pytest.approx(4)
