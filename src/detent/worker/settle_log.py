"""What a settle wrote: counted, and in the log. Nothing is built for successes, unless debug lines are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from detent.domain.identity import from_seconds
from detent.domain.job import kind_of
from detent.domain.run import SUCCESS, Acceptance, End, GoneTarget, HeldRun, PlannedRetry
from detent.domain.states import CODES, RunStatus
from detent.telemetry import transitions
from detent.telemetry.metrics import OUTCOMES, Kind, Metrics

STATUSES = {CODES[status]: status for status in (RunStatus.SUCCEEDED, RunStatus.DEAD, RunStatus.CANCELLED)}
Written = End | PlannedRetry | Acceptance | None
EVENTS: tuple[tuple[str, str, Callable[[Written], bool]], ...] = (
    ("attempt failed, retry follows", "info", lambda end: isinstance(end, PlannedRetry)),
    ("run accepted, its target reports the end", "info", lambda end: isinstance(end, Acceptance)),
    ("run dead", "warning", lambda end: _status(end) is RunStatus.DEAD),
    ("run cancelled", "info", lambda end: _status(end) is RunStatus.CANCELLED),
)


def count_settled(metrics: Metrics, written: Sequence[HeldRun]) -> set[int]:
    """Count the ends of attempts. Returns the jobs whose runs are dead."""
    dead: set[int] = set()
    firsts = [held for held in written if held.claim.attempt == 1]
    metrics.lateness.add([held.started - held.claim.scheduled_at.timestamp() - held.staggered for held in firsts])
    for kind, group in _by_kind(written).items():
        some = [held for held in group if not isinstance(held.end, Acceptance)]
        unsuccessful = _unsuccessful(some)
        successes = len(some) - len(unsuccessful)
        metrics.duration[kind].add([held.finished - held.started for held in some])
        metrics.attempts[kind, "succeeded"] += successes
        metrics.ends[kind, RunStatus.SUCCEEDED] += successes
        for held in unsuccessful:
            if held.outcome in OUTCOMES:
                metrics.attempts[kind, held.outcome] += 1
            status = _status(held.end)
            if status is None:
                metrics.retries += 1
            else:
                metrics.ends[kind, status] += 1
            if status is RunStatus.DEAD:
                dead.add(held.claim.job)
    return dead


def _unsuccessful(some: Sequence[HeldRun]) -> list[HeldRun]:
    return [held for held in some if held.end is not SUCCESS and held.outcome != "succeeded"]


def log_settled(written: Sequence[HeldRun], node: int) -> None:
    """Successes at debug level, everything else at info and above."""
    unsuccessful = _unsuccessful(written)
    for event, level, concerns in EVENTS if unsuccessful else ():
        transitions.log_some(level, event, [facts_of(held, node) for held in unsuccessful if concerns(held.end)])
    for held in written if transitions.debug_enabled() else ():
        if _status(held.end) is RunStatus.SUCCEEDED:
            seconds = round(held.finished - held.started, 6)
            transitions.log_claim("run succeeded", held.claim, node, seconds=seconds)


def facts_of(held: HeldRun, node: int) -> dict[str, object]:
    facts: dict[str, object] = {} if held.definition is None else {"job": held.definition.name}
    end = held.end
    facts |= {
        **transitions.facts_of(held.claim, node),
        "outcome": held.outcome,
        "error": None if end is None else end.error,
    }
    if end is not None and end.traceback is not None:
        facts["exception"] = end.traceback
    if isinstance(end, PlannedRetry):
        facts["again_in"] = round(end.delay.total_seconds(), 3)
    return facts


def gone_target(held: HeldRun) -> GoneTarget:
    return GoneTarget(held.claim.job, held.claim.revision, from_seconds(held.started))


def _by_kind(written: Sequence[HeldRun]) -> dict[Kind, Sequence[HeldRun]]:
    """Group by kind of target. A batch with one kind, the usual case, is not copied."""
    kinds: list[Kind] = [
        "unknown" if held.definition is None else kind_of(held.definition.spec.target) for held in written
    ]
    if len(set(kinds)) == 1:
        return {kinds[0]: written}
    pairs = list(zip(kinds, written, strict=True))
    return {kind: [held for its, held in pairs if its == kind] for kind in set(kinds)}


def _status(end: Written) -> RunStatus | None:
    return STATUSES[end.status] if isinstance(end, End) else None
