"""Announcements are gathered, and none is lost: neither one that comes while another is sent, nor one that fails."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from detent.cluster import hints as module
from detent.cluster.hints import Hints
from detent.runtime.wakeups import Wakeups
from detent.store.db import OutcomeUnknown
from tests.support.waiting import until


class Upkeep:
    """Records what is sent; `meanwhile` happens after the server has notified the listeners and before we know."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.failures = 0

    async def wake(self, _channel: str, payload: str) -> None:
        if self.failures:
            self.failures -= 1
            raise OutcomeUnknown("the reply was lost")
        self.sent.append(payload)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()


@pytest.fixture
def upkeep() -> Upkeep:
    return Upkeep()


@pytest.fixture
def hints(upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch) -> Hints:
    monkeypatch.setattr(module, "GATHER", 0.001)
    store: Any = SimpleNamespace(upkeep=upkeep, database=SimpleNamespace(pooled=False))
    return Hints(store, Wakeups())


async def test_announcements_that_come_together_are_one(hints: Hints, upkeep: Upkeep) -> None:
    for _ in range(5):
        hints.announce_runs()
    await until(lambda: upkeep.sent)
    await hints.close()
    assert upkeep.sent == ["ready"]


async def test_runs_that_become_ready_while_others_are_announced_are_announced_too(
    hints: Hints, upkeep: Upkeep
) -> None:
    upkeep.meanwhile = hints.announce_runs
    hints.announce_runs()
    await until(lambda: len(upkeep.sent) == 2, what="the second announcement")
    await hints.close()
    assert upkeep.sent == ["ready", "ready"]


async def test_an_announcement_that_fails_is_sent_again(hints: Hints, upkeep: Upkeep) -> None:
    upkeep.failures = 2
    hints.announce_runs()
    await until(lambda: upkeep.sent, what="the announcement")
    await hints.close()
    assert upkeep.sent == ["ready"]


async def test_the_end_does_not_wait_for_an_announcement_that_never_succeeds(hints: Hints, upkeep: Upkeep) -> None:
    upkeep.failures = 1_000_000
    hints.announce_runs()
    await hints.close()
    assert upkeep.sent == []
