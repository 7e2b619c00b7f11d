"""Which passes of a worker claim from the queues, while on-demand runs ask for many."""

from __future__ import annotations

import pytest

from detent.worker import queue_reads
from detent.worker.queue_reads import READ_EVERY, QueueReads


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(queue_reads, "monotonic", lambda: now[0])
    return now


def test_the_first_pass_reads_and_the_next_only_after_a_moment(clock: list[float]) -> None:
    reads = QueueReads()
    assert [reads.begins(needed=False) for _ in range(3)] == [True, False, False]
    clock[0] += READ_EVERY
    assert [reads.begins(needed=False) for _ in range(2)] == [True, False]


def test_a_hint_or_a_need_makes_the_next_pass_read(clock: list[float]) -> None:
    reads = QueueReads()
    reads.begins(needed=False)
    reads.hint()
    assert [reads.begins(needed=False), reads.begins(needed=False), reads.begins(needed=True)] == [True, False, True]


def test_after_a_pass_that_did_not_read_another_follows_soon(clock: list[float]) -> None:
    reads = QueueReads()
    assert reads.wait(10.0, read=reads.begins(needed=False)) == 10.0
    clock[0] += READ_EVERY / 2
    assert reads.wait(10.0, read=reads.begins(needed=False)) == pytest.approx(READ_EVERY / 2)
    clock[0] += READ_EVERY
    assert reads.wait(10.0, read=False) == 0.0
