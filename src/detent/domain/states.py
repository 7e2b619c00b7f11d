"""The run state machine as one table. Workers take every end that they write from it, so they cannot write a
transition that it does not have; the schema's CHECK constraints and its view `runs` are tested against it.

pending ──claim──▶ running ──succeed──▶ succeeded
   ▲  ▲              │ │ │
   │  └──give back───┘ │ └──exhaust──▶ dead
retrying ◀──fail, lose─┘
any open state ──cancel──▶ cancelled          a tick that never ran: skipped, missed
"""

from __future__ import annotations

from enum import StrEnum


class RunStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    MISSED = "missed"


class Event(StrEnum):
    CLAIM = "claim"
    GIVE_BACK = "give back"
    SUCCEED = "succeed"
    FAIL = "fail"
    LOSE = "lose"
    EXHAUST = "exhaust"
    CANCEL = "cancel"


OPEN = frozenset({RunStatus.PENDING, RunStatus.RUNNING, RunStatus.RETRYING})
FINAL = frozenset(RunStatus) - OPEN

TRANSITIONS: dict[tuple[RunStatus, Event], RunStatus] = {
    (RunStatus.PENDING, Event.CLAIM): RunStatus.RUNNING,
    (RunStatus.RETRYING, Event.CLAIM): RunStatus.RUNNING,
    (RunStatus.RUNNING, Event.GIVE_BACK): RunStatus.PENDING,
    (RunStatus.RUNNING, Event.SUCCEED): RunStatus.SUCCEEDED,
    (RunStatus.RUNNING, Event.FAIL): RunStatus.RETRYING,
    (RunStatus.RUNNING, Event.LOSE): RunStatus.RETRYING,
    (RunStatus.RUNNING, Event.EXHAUST): RunStatus.DEAD,
    (RunStatus.RUNNING, Event.CANCEL): RunStatus.CANCELLED,
    (RunStatus.PENDING, Event.CANCEL): RunStatus.CANCELLED,
    (RunStatus.RETRYING, Event.CANCEL): RunStatus.CANCELLED,
}

# How finished statuses are written in run_history.
CODES: dict[RunStatus, int] = {
    RunStatus.SUCCEEDED: 1,
    RunStatus.DEAD: 2,
    RunStatus.CANCELLED: 3,
    RunStatus.SKIPPED: 4,
    RunStatus.MISSED: 5,
}

# How a worker ends a run that it holds, by what happened to the run. Worker code takes every code it writes from here.
END_CODES: dict[Event, int] = {
    event: CODES[after]
    for (before, event), after in TRANSITIONS.items()
    if before is RunStatus.RUNNING and after in FINAL
}
