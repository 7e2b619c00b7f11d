"""What the fire did: counted, and for the log at debug level and for traces. Nothing is built for those unless one of
them is enabled: the fire is the hottest path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from detent.cluster.membership import Membership
from detent.domain.identity import RunKey, first_token
from detent.scheduler.planning import FireMode, first_claims, tick_of
from detent.store.cursors import Advance, Exceptional, Leap
from detent.telemetry import tracing, transitions
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics

log = logger("firing")


def observed() -> bool:
    return tracing.active is not None or transitions.debug_enabled()


def log_fired(
    batch: Sequence[Advance],
    exceptions: Mapping[int, Exceptional],
    membership: Membership,
    sent: datetime,
    answered: datetime,
    handed_off: bool,
) -> None:
    node, debug, tracer = membership.node, transitions.debug_enabled(), tracing.active
    for item in batch:
        exception = exceptions.get(item.cursor.job)
        key = RunKey(item.cursor.job, tick_of(item.cursor))
        if exception is not None and exception.lane is None:  # it became no run
            if debug:
                event = "fire refused" if exception.why == "refused" else "tick skipped"
                transitions.log_tick(event, key, node, why=exception.why)
            continue
        lane = 0 if exception is None else exception.lane or 0
        if debug:
            (claim,) = first_claims([(item, lane)], first_token(membership.incarnation))
            transitions.log_claim("run fired", claim, node, lane=lane, handed_off=handed_off and lane >= 0)
        if tracer is not None:
            tracer.fired(key, node, sent, answered, handed_off=handed_off and lane >= 0)


def count_fired(
    metrics: Metrics,
    membership: Membership,
    sent: int,
    moved: int,
    mode: FireMode,
    exceptions: Mapping[int, Exceptional],
) -> None:
    overlaps = sum(exception.why == "overlap" for exception in exceptions.values())
    metrics.overlaps += overlaps
    metrics.fired += moved - overlaps - sum(item.why == "by request" for item in exceptions.values())
    if mode is not FireMode.PATIENT:  # there, to be refused is to wait
        metrics.refused_fires += sent - moved
    if moved < sent and not membership.trusted:
        log.warning("fires refused: another node leads these partitions", jobs=sent - moved)


def log_missed(leaps: Iterable[Leap], node: int) -> None:
    for leap in leaps if transitions.debug_enabled() else ():
        for missed in leap.missed:
            key = RunKey(leap.cursor.job, missed.first)
            event = "ticks skipped" if leap.suspended else "ticks missed"
            transitions.log_tick(event, key, node, ticks=missed.ticks, why=missed.reason)
