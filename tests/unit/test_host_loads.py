"""Calls to hosts that do not answer: how many slots they leave free, and for whom."""

from __future__ import annotations

from detent.domain.job import HttpTarget, PythonTarget, TopicTarget
from detent.targets.called_hosts import HostKey, host_of
from detent.targets.host_loads import ANSWERED_WITHIN, FORGOTTEN_SECONDS, HostLoad, HostLoads

HANGS = HostKey(1, "hangs.example", 443)
OTHER = HostKey(1, "other.example", 443)
LIVE = HostKey(1, "live.example", 443)


class Calls(HostLoads):
    def __init__(self, slots: int = 100, headroom: float = 0.2) -> None:
        self.now = 1000.0
        super().__init__(slots, headroom, clock=lambda: self.now)

    def answer(self, key: HostKey, seconds: float = 0.1) -> None:
        self.ended(self.began(key), self.now - seconds, True)

    def taken_by(self, key: HostKey, wanted: int = 1000) -> list[HostLoad]:
        """As many calls as may begin."""
        taken: list[HostLoad] = []
        while len(taken) < wanted and self.free and not (self.crowded and self.waiting_time(key)):
            taken.append(self.began(key))
        return taken

    @property
    def free(self) -> int:
        return self._slots - self._inside


def test_a_silent_host_leaves_the_headroom_and_the_next_one_half_of_it() -> None:
    calls = Calls()
    calls.answer(LIVE)
    assert len(calls.taken_by(HANGS)) == 80
    assert len(calls.taken_by(OTHER)) == 10
    assert calls.free == 10


def test_a_host_that_answers_takes_every_slot_also_while_another_one_is_silent() -> None:
    calls = Calls()
    calls.answer(LIVE)
    calls.taken_by(HANGS)
    assert len(calls.taken_by(LIVE)) == 20
    assert calls.free == 0


def test_the_only_host_that_is_called_is_not_limited() -> None:
    assert len(Calls().taken_by(HANGS)) == 100


def test_one_answer_ends_the_limit_of_a_host() -> None:
    calls = Calls()
    calls.answer(OTHER)
    first, *_ = calls.taken_by(LIVE)
    assert calls.waiting_time(LIVE) >= 1.0
    calls.ended(first, calls.now - 3.0, True)
    assert len(calls.taken_by(LIVE)) == 21


def test_a_host_is_silent_again_some_time_after_its_last_answer() -> None:
    calls = Calls()
    calls.answer(OTHER)
    calls.answer(LIVE)
    calls.now += ANSWERED_WITHIN + 0.1
    assert len(calls.taken_by(LIVE)) == 80


def test_a_slow_host_has_twice_the_time_of_its_last_answer() -> None:
    calls = Calls()
    calls.answer(OTHER)
    calls.answer(LIVE, seconds=60.0)
    calls.now += 119.0
    assert len(calls.taken_by(LIVE)) == 100


def test_a_host_with_a_few_calls_waits_for_a_slot_like_any_other() -> None:
    calls = Calls()
    calls.answer(LIVE)
    calls.taken_by(LIVE, 96)
    calls.now += ANSWERED_WITHIN + 0.1
    assert len(calls.taken_by(OTHER, 4)) == 4
    assert calls.free == 0
    assert calls.waiting_time(OTHER) == 0.0
    assert calls.waiting_time(LIVE) > 0.0


def test_many_runs_that_wait_for_a_host_come_back_one_after_the_other() -> None:
    calls = Calls()
    calls.answer(LIVE)
    calls.taken_by(HANGS)
    waits = [calls.waiting_time(HANGS) for _ in range(5000)]
    assert min(waits) >= 1.0
    assert 5.0 < max(waits) <= 11.0
    late = sorted(waits[-1000:])
    assert late[100] < 3.0 < 7.0 < late[900]


def test_without_headroom_no_host_is_limited() -> None:
    for calls in (Calls(headroom=0.0), Calls(slots=0), Calls(slots=1)):
        calls.answer(LIVE)
        for _ in range(50):
            calls.began(HANGS)
        assert not calls.crowded


def test_a_host_that_is_not_called_any_more_is_forgotten() -> None:
    calls = Calls()
    calls.answer(OTHER)
    calls.taken_by(HANGS, 1)
    calls.now += FORGOTTEN_SECONDS + 1
    calls.forget_unused()
    assert len(calls.taken_by(HANGS)) == 99  # it is the only one


def test_the_host_of_a_target_is_known_without_a_call() -> None:
    assert host_of(HttpTarget(url="https://a.example/x?y=1"), 7) == HostKey(7, "a.example", 443)
    assert host_of(HttpTarget(url="http://a.example:8080/{{ job }}"), 7) == HostKey(7, "a.example", 8080)
    assert host_of(TopicTarget(url="redis://a.example:6380/0", topic="t"), 7) == HostKey(7, "a.example", 6380)
    assert host_of(PythonTarget(function="f"), 7) is None
    assert host_of(TopicTarget(url="stomp://a.example", topic="t"), 7) is None
