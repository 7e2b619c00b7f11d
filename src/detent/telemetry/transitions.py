"""What becomes of each run, in the log: one line for every transition, with the facts by which lines are found again.

Transitions that every run goes through are told at debug level. The loops ask `told()` once for a batch, so that while
nobody wants to read them they cost nothing. Those that should not happen are told at info and above; when very many
happen at once, some of them stand for the rest, whose number is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from detent.domain.identity import RunKey, node_name, run_id
from detent.domain.run import Claim
from detent.telemetry.log import debugging, logger

log = logger("run")

MOST_LINES = 20


def told() -> bool:
    """Whether anybody reads what every run goes through."""
    return debugging()


def facts_of(claim: Claim, node: int | None) -> dict[str, Any]:
    """`node` is None for what a worker that pulls has."""
    facts = {"run": str(claim.run_id), "job_number": claim.job, "attempt": claim.attempt, "token": claim.token}
    return facts if node is None else {**facts, "node": node_name(node)}


def tell(event: str, claim: Claim, node: int, **more: object) -> None:
    log.debug(event, **facts_of(claim, node), **more)


def tell_all(event: str, claims: Iterable[Claim], node: int) -> None:
    for claim in claims:
        tell(event, claim, node)


def tell_tick(event: str, key: RunKey, node: int, **more: object) -> None:
    """Of a tick that became no run."""
    log.debug(event, run=str(run_id(key)), job_number=key.job, node=node_name(node), **more)


def tell_asked(event: str, runs: Iterable[UUID], by: str) -> None:
    """What somebody asked for."""
    tell_some("info", event, [{"run": str(run), "by": by} for run in runs])


def tell_some(level: str, event: str, items: Sequence[Mapping[str, object]], to: Any = log) -> None:
    """Those that are no daily affair."""
    say = getattr(to, level)
    for item in items[:MOST_LINES]:
        say(event, **item)
    if len(items) > MOST_LINES:
        say(f"{event}: and others", others=len(items) - MOST_LINES)
