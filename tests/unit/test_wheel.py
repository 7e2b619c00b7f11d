"""The timing wheel against a heap, which has the same interface and nothing to get wrong."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from detent.scheduler.wheel import WIDTHS, TimingWheel

DAY = WIDTHS[-1]
keys = st.integers(0, 30)
# Near and far, and on both sides of where slots of every level begin.
distances = st.one_of(
    st.integers(-50, 50),
    st.integers(0, 3 * DAY),
    st.builds(lambda width, n, off: width * n + off, st.sampled_from(WIDTHS), st.integers(0, 70), st.integers(-1, 1)),
)


class HeapWheel:
    """The oracle."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.due: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def add(self, key: int, due: int) -> None:
        self.due[key] = due
        heapq.heappush(self._heap, (due, key))

    def discard(self, key: int) -> None:
        self.due.pop(key, None)

    def advance(self, now: int) -> list[int]:
        self.now = max(self.now, now)
        taken = []
        while self._heap and self._heap[0][0] <= self.now:
            due, key = heapq.heappop(self._heap)
            if self.due.get(key) == due:
                del self.due[key]
                taken.append(key)
        return taken

    def next_due(self) -> int | None:
        return min(self.due.values(), default=None)


class WheelAgainstHeap(RuleBasedStateMachine):
    @initialize(now=st.integers(0, 2_000_000_000_000))
    def begin(self, now: int) -> None:
        self.wheel, self.heap = TimingWheel(now), HeapWheel(now)

    @rule(key=keys, distance=distances)
    def add(self, key: int, distance: int) -> None:
        self.wheel.add(key, self.heap.now + distance)
        self.heap.add(key, self.heap.now + distance)

    @rule(key=keys)
    def discard(self, key: int) -> None:
        self.wheel.discard(key)
        self.heap.discard(key)

    @rule(distance=distances)
    def advance(self, distance: int) -> None:
        now = self.heap.now + distance  # backwards too: the present never goes back
        assert sorted(self.wheel.advance(now)) == sorted(self.heap.advance(now))

    @precondition(lambda self: self.heap.due)
    @rule()
    def advance_as_the_sleeper_does(self) -> None:
        """Wake when the wheel says so, until something is due: not late, and not after many looks in vain."""
        first = self.heap.next_due()
        assert first is not None
        for _ in range(2 * len(WIDTHS)):
            wake = self.wheel.next_due()
            assert wake is not None
            assert wake <= max(first, self.heap.now)
            taken = self.wheel.advance(wake)
            assert sorted(taken) == sorted(self.heap.advance(wake))
            if taken:
                return
        raise AssertionError("the sleeper woke again and again, and nothing was due")

    @invariant()
    def both_hold_the_same(self) -> None:
        if hasattr(self, "heap"):
            assert len(self.wheel) == len(self.heap.due)
            assert all(key in self.wheel for key in self.heap.due)
            promised, first = self.wheel.next_due(), self.heap.next_due()
            assert (promised is None) == (first is None)
            assert promised is None or first is None or promised <= first


WheelAgainstHeap.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
test_the_wheel_does_what_a_heap_does = WheelAgainstHeap.TestCase


@given(st.lists(st.tuples(st.integers(0, 10**7), distances), max_size=50), st.integers(0, 2_000_000_000_000))
@settings(deadline=None)
def test_everything_comes_out_exactly_once(pairs: list[tuple[int, int]], now: int) -> None:
    wheel = TimingWheel(now)
    due = {key: now + distance for key, distance in pairs}
    for key, at in due.items():
        wheel.add(key, at)
    taken = [key for moment in sorted({max(now, at) for at in due.values()}) for key in wheel.advance(moment)]
    assert sorted(taken) == sorted(due)
    assert len(wheel) == 0
    assert wheel.next_due() is None


@pytest.mark.parametrize("width", WIDTHS)
def test_a_key_comes_out_at_its_millisecond_and_not_before(width: int) -> None:
    for at in (width - 1, width, width + 1, 3 * width + 7):
        wheel = TimingWheel(0)
        wheel.add(1, at)
        assert wheel.advance(at - 1) == []
        assert wheel.advance(at) == [1]
        assert wheel.advance(at) == []


def test_a_key_that_is_added_again_moves() -> None:
    wheel = TimingWheel(0)
    wheel.add(1, 5_000)
    wheel.add(1, 90_000)
    assert wheel.advance(89_999) == []
    assert wheel.advance(90_000) == [1]


def test_what_is_past_is_due_at_once() -> None:
    wheel = TimingWheel(10_000)
    wheel.add(1, 3)
    assert wheel.next_due() == 3
    assert wheel.advance(0) == [1]


def test_a_jump_over_an_hour_is_not_many_steps() -> None:
    """Slots are kept by number: what is empty costs nothing, however far the present moves."""
    wheel = TimingWheel(0)
    wheel.add(1, 10**15)
    assert wheel.advance(10**15 - 1) == []
    assert wheel.advance(10**15) == [1]


def test_after_a_jump_over_every_level_the_earlier_keys_still_come_first() -> None:
    wheel = TimingWheel(0)
    dues = (5, 40, 700, 2_500, 45_000, 130_000, 3_000_000, 9_000_000, 80_000_000, DAY + 1, 3 * DAY)
    for key, due in reversed(list(enumerate(dues))):
        wheel.add(key, due)
    assert wheel.advance(3 * DAY) == list(range(len(dues)))
