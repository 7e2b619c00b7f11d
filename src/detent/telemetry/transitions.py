"""The transitions of each run in the log: one line each, with the keys of `telemetry/log.py`.

Transitions that every run goes through are logged at debug level. The loops check `debug_enabled()` once for each
batch, so that these lines cost nothing while the level is higher. Unusual transitions are logged at info level and
above; when many happen at once, the first ones are logged, with the number of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from detent.domain.identity import RunKey, node_name, run_id
from detent.domain.run import Claim
from detent.telemetry.log import debug_enabled as debug_enabled
from detent.telemetry.log import logger

log = logger("run")

MAX_LINES = 20


def facts_of(claim: Claim, node: int | None) -> dict[str, Any]:
    """`node` is None for a run of a worker that pulls."""
    facts = {"run_id": str(claim.run_id), "job_number": claim.job, "attempt": claim.attempt, "token": claim.token}
    return facts if node is None else {**facts, "node": node_name(node)}


def log_claim(event: str, claim: Claim, node: int, **more: object) -> None:
    log.debug(event, **facts_of(claim, node), **more)


def log_claims(event: str, claims: Iterable[Claim], node: int) -> None:
    for claim in claims:
        log_claim(event, claim, node)


def log_tick(event: str, key: RunKey, node: int, **more: object) -> None:
    """Log a tick that became no run."""
    log.debug(event, run_id=str(run_id(key)), job_number=key.job, node=node_name(node), **more)


def log_requested(event: str, runs: Iterable[UUID], by: str) -> None:
    """Log what a user requested for runs; `by` is that user."""
    log_some("info", event, [{"run_id": str(run), "by": by} for run in runs])


def log_some(level: str, event: str, items: Sequence[Mapping[str, object]], to: Any = log) -> None:
    """Log unusual transitions: the first MAX_LINES of them, and the number of the others."""
    write = getattr(to, level)
    for item in items[:MAX_LINES]:
        write(event, **item)
    if len(items) > MAX_LINES:
        write(f"{event}: and others", others=len(items) - MAX_LINES)
