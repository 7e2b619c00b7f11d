"""The database's clock as a node knows it: a lower bound, always."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.domain.identity import EPOCH
from detent.runtime import clock as module
from detent.runtime.clock import SAMPLES_KEPT, STEP_BACK, DatabaseClock

START = 1_750_000_000.0


class World:
    """A server's clock and a node's, both moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ahead: float = 1000.0) -> None:
        self.monotonic = 50.0
        self.ahead = ahead
        monkeypatch.setattr(module, "monotonic", lambda: self.monotonic)
        monkeypatch.setattr(module, "wall", lambda: EPOCH + timedelta(seconds=START + self.monotonic))

    @property
    def server(self) -> float:
        return START + self.monotonic + self.ahead

    def sample(self, clock: DatabaseClock, there: float = 0.001, back: float = 0.001) -> None:
        """One heartbeat: `there` seconds to the server, `back` seconds with the answer."""
        self.monotonic += there
        read = EPOCH + timedelta(seconds=self.server)
        self.monotonic += back
        clock.observe(read, self.monotonic, there + back)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def error(clock: DatabaseClock, world: World) -> float:
    """How far the estimate is behind the server."""
    return world.server - clock.seconds()


def test_a_clock_without_a_sample_knows_nothing(world: World) -> None:
    clock = DatabaseClock()
    assert not clock.known
    world.sample(clock)
    assert clock.known


def test_the_estimate_is_behind_by_the_way_back_and_never_ahead(world: World) -> None:
    clock = DatabaseClock()
    world.sample(clock, there=0.3, back=0.05)
    assert error(clock, world) == pytest.approx(0.05, abs=1e-5)
    world.monotonic += 7
    assert error(clock, world) == pytest.approx(0.05, abs=1e-5)


def test_the_fastest_recent_answer_is_the_best_and_is_forgotten_in_time(world: World) -> None:
    clock = DatabaseClock()
    world.sample(clock, back=0.001)
    for _ in range(SAMPLES_KEPT - 1):
        world.sample(clock, back=0.08)
        assert error(clock, world) == pytest.approx(0.001, abs=1e-5)
    world.sample(clock, back=0.08)
    assert error(clock, world) == pytest.approx(0.08, abs=1e-5), "clocks drift: an old bound is not kept for ever"


def test_a_server_that_stepped_forward_is_followed_at_once(world: World) -> None:
    clock = DatabaseClock()
    world.sample(clock)
    world.ahead += 3600
    world.sample(clock)
    assert 0 <= error(clock, world) < 0.01


def test_a_server_that_stepped_back_is_followed_at_once(world: World) -> None:
    clock = DatabaseClock()
    for _ in range(3):
        world.sample(clock)
    world.ahead -= 30
    assert error(clock, world) < 0, "it cannot be known before the next sample"
    world.sample(clock)
    assert 0 <= error(clock, world) < 0.01


def test_a_slow_answer_is_not_taken_for_a_step_back(world: World) -> None:
    clock = DatabaseClock()
    world.sample(clock, back=0.001)
    world.sample(clock, back=2.0)
    assert error(clock, world) == pytest.approx(0.001, abs=1e-5)


def test_the_offset_says_how_far_the_nodes_own_clock_is_ahead(world: World) -> None:
    clock = DatabaseClock()
    world.sample(clock)
    assert clock.offset == pytest.approx(-1000, abs=0.01)


def test_all_units_say_the_same(world: World) -> None:
    clock = DatabaseClock()
    world.sample(clock)
    assert clock.milliseconds() == int(clock.seconds() * 1000)
    assert clock.now() == EPOCH + timedelta(seconds=clock.seconds())


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 3), st.floats(0, 30)), min_size=1, max_size=20))
def test_the_estimate_is_a_lower_bound_whatever_the_delays(delays: list[tuple[float, float, float]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        world, clock = World(patch), DatabaseClock()
        for there, back, pause in delays:
            world.sample(clock, there, back)
            world.monotonic += pause
            assert error(clock, world) >= -1e-5
        assert error(clock, world) <= min(back for _, back, _ in delays[-SAMPLES_KEPT:]) + 1e-5


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 0.5), st.floats(-5, 5)), min_size=2, max_size=20))
def test_after_any_step_of_the_server_the_estimate_is_ahead_by_less_than_a_step_back(
    steps: list[tuple[float, float]],
) -> None:
    """A small step back is told from a slow answer only if the answer was fast; the fire asks the server anyway."""
    with pytest.MonkeyPatch.context() as patch:
        world, clock = World(patch), DatabaseClock()
        world.sample(clock)
        for delay, step in steps:
            world.ahead += step
            world.sample(clock, delay / 2, delay / 2)
            assert error(clock, world) >= -(STEP_BACK.total_seconds() + delay + 1e-5)
