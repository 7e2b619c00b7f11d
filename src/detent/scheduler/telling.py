"""What the fire did, for those who read or trace it. Asked for only then: a fire is the hottest thing there is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from detent.cluster.membership import Membership
from detent.domain.identity import RunKey, first_token
from detent.domain.run import Claim
from detent.scheduler.planning import Planned, tick_of
from detent.store.cursors import Cursor, Exceptional, Leap
from detent.telemetry import tracing, transitions


def observed() -> bool:
    return tracing.active is not None or transitions.debug_enabled()


def first_claim(cursor: Cursor, lane: int, token: int) -> Claim:
    """The hold on a run that was handed off as it was fired."""
    return Claim(cursor.job, lane, tick_of(cursor), 0, token, cursor.revision, 1, 0, cursor.once, False, cursor.queue)


def tell_fired(
    batch: Sequence[Planned],
    exceptions: Mapping[int, Exceptional],
    membership: Membership,
    sent: datetime,
    answered: datetime,
    handed_off: bool,
) -> None:
    node, telling, tracer = membership.node, transitions.debug_enabled(), tracing.active
    for item in batch:
        exception = exceptions.get(item.before.job)
        key = RunKey(item.before.job, tick_of(item.before))
        if exception is not None and exception.lane is None:  # no run came of it
            if telling:
                told = "fire refused" if exception.why == "refused" else "tick skipped"
                transitions.log_tick(told, key, node, why=exception.why)
            continue
        lane = 0 if exception is None else exception.lane or 0
        if telling:
            claim = first_claim(item.before, lane, first_token(membership.incarnation))
            transitions.log_claim("run fired", claim, node, lane=lane, handed_off=handed_off and lane >= 0)
        if tracer is not None:
            tracer.fired(key, node, sent, answered, handed_off=handed_off and lane >= 0)


def tell_missed(leaps: Iterable[Leap], node: int) -> None:
    for leap in leaps if transitions.debug_enabled() else ():
        for missed in leap.missed:
            key = RunKey(leap.cursor.job, missed.first)
            transitions.log_tick("ticks missed", key, node, ticks=missed.ticks, why=missed.reason)
