"""The named events by which the parts of a node wake each other.

A part subscribes its own methods when it is constructed, and calls events by name. No part has to know which others
listen, and parts can be constructed in any order. An event is a hint: each part also checks by itself after a while, so
a lost event costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, ParamSpec

if TYPE_CHECKING:
    from detent.domain.run import GoneTarget, HeldRun

Arguments = ParamSpec("Arguments")


class Wakeup(Generic[Arguments]):
    """Calls its subscribers in the order of their subscription, at once and on the caller's thread."""

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: tuple[Callable[Arguments, None], ...] = ()

    def subscribe(self, subscriber: Callable[Arguments, None]) -> None:
        self._subscribers = (*self._subscribers, subscriber)

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        for subscriber in self._subscribers:
            subscriber(*args, **kwargs)


class Wakeups:
    """All events of one node's session."""

    def __init__(self) -> None:
        # From other nodes and from API processes (cluster/hints.py).
        self.jobs_changed: Wakeup[[set[int] | None]] = Wakeup()  # these jobs; None: some job
        self.queues_changed: Wakeup[[]] = Wakeup()
        self.runs_ready: Wakeup[[]] = Wakeup()
        self.runs_enqueued: Wakeup[[int | None]] = Wakeup()  # of this job; None: hints may have been lost
        self.runs_cancelled: Wakeup[[]] = Wakeup()
        self.share_changed: Wakeup[[]] = Wakeup()  # a node joined, left or released partitions
        self.hold_changed: Wakeup[[]] = Wakeup()  # all ticks are held, or no longer

        # From leadership, at every pass.
        self.draining: Wakeup[[bool]] = Wakeup()
        self.others_work: Wakeup[[bool]] = Wakeup()  # whether other workers could take this node's runs
        self.programs_pull: Wakeup[[bool]] = Wakeup()  # whether programs pull runs over the API

        # From the scheduler and the worker of this node.
        self.cursors_moved: Wakeup[[]] = Wakeup()  # the wheel has something new
        self.catch_ups_added: Wakeup[[]] = Wakeup()
        self.runs_queued: Wakeup[[]] = Wakeup()  # runs were fired into their queues, or rescued
        self.runs_given_back: Wakeup[[]] = Wakeup()
        self.runs_put_off: Wakeup[[Sequence[HeldRun]]] = Wakeup()  # given back, to wait before they are claimed again
        self.capacity_freed: Wakeup[[]] = Wakeup()
        self.reply_lost: Wakeup[[]] = Wakeup()  # this node may hold runs that it does not know of
        self.runs_died: Wakeup[[set[int]]] = Wakeup()  # of these jobs
        self.targets_gone: Wakeup[[list[GoneTarget]]] = Wakeup()  # they answered 410
