"""Runs that wait for a retry are claimed when they are due, even if a timer fires early."""

from __future__ import annotations

import asyncio

import pytest

from detent.worker import retries
from detent.worker.retries import SLACK, Retries


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(retries, "monotonic", lambda: now[0])
    return now


def test_without_retries_the_worker_waits_as_long_as_it_may(clock: list[float]) -> None:
    assert Retries(lambda: None).pause(10.0) == 10.0


async def test_the_worker_looks_when_the_first_of_them_is_due(clock: list[float]) -> None:
    due = Retries(lambda: None)
    due.add([7.0])
    due.add([5.0, 3.0])
    assert due.pause(10.0) == 3.0
    assert due.pause(1.0) == 1.0


async def test_the_first_of_a_batch_wakes_the_worker() -> None:
    woken = asyncio.Event()
    due = Retries(woken.set)
    due.add([60.0, 0.001])
    await asyncio.wait_for(woken.wait(), 10)


async def test_a_check_that_came_too_early_is_followed_by_another(clock: list[float]) -> None:
    due = Retries(lambda: None)
    due.add([3.0])
    clock[0] = 103.0 - 0.0008
    due.claimed(clock[0])
    assert due.pause(10.0) < 0.001
    clock[0] = 103.0
    due.claimed(clock[0])
    assert due.pause(10.0) == pytest.approx(SLACK)
    clock[0] = 103.0 + SLACK + 0.001
    due.claimed(clock[0])
    assert due.pause(10.0) == 10.0
