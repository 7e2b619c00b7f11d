"""Hints between nodes: each is only a hint, but none is lost that could have been sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from detent.queue import hints
from detent.queue.hints import Hints


class Upkeep:
    def __init__(self) -> None:
        self.sent: list[str] = []
        self.sending = asyncio.Event()
        self.go_on = asyncio.Event()

    async def wake(self, _channel: str, payload: str) -> None:
        self.sent.append(payload)
        self.sending.set()
        await self.go_on.wait()


class Store:
    def __init__(self) -> None:
        self.upkeep = Upkeep()
        self.database = None


async def test_runs_that_become_ready_while_others_are_announced_are_announced_after_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hints, "hearing", lambda *_: None)
    store: Any = Store()
    nothing: Any = lambda *_: None  # noqa: E731 - five callbacks that nothing calls here
    sender = Hints(store, nothing, nothing, nothing, nothing, hold_changed=nothing, queues_changed=nothing)
    sender.announce_runs()
    await store.upkeep.sending.wait()
    sender.announce_runs()
    store.upkeep.go_on.set()
    assert sender._announcement is not None
    await sender._announcement
    assert store.upkeep.sent == ["ready", "ready"]
