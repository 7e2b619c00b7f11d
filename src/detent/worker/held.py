"""A run in hand, and how the task that runs it is interrupted.

A task runs one run after another, so being cancelled says nothing about which of them was meant: the run itself knows,
and what is left of a cancellation ends with it."""

from __future__ import annotations

import asyncio
from datetime import datetime

from detent.model import Claim, Definition


class Held:
    """A run in hand: waiting for a slot, running, or done and being settled."""

    __slots__ = ("begun", "claim", "definition", "expired", "followed", "passed_on", "started", "stop", "task")

    def __init__(self, claim: Claim, started: datetime) -> None:
        self.claim = claim
        self.started = started
        self.definition: Definition | None = None
        self.task: asyncio.Task[None] | None = None
        self.begun = False
        self.stop = False
        self.expired = False
        self.passed_on = False
        self.followed = False


def is_running(held: Held) -> bool:
    return held.task is not None and not held.passed_on


def expire(held: Held) -> None:
    held.expired = True
    if held.task is not None:
        held.task.cancel()


async def come_to_rest(task: asyncio.Task[None]) -> None:
    """A run was asked to stop, perhaps when it was over already: what is left of that must not hit the next one."""
    while task.cancelling():
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            pass
        task.uncancel()
