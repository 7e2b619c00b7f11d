"""Callers whose roles are limited to some jobs: which routes know these limits.

The statements behind these routes find only jobs and runs within the limits of the caller (`store/job_limits.py`). All
other routes are about a whole tenant or the cluster, so a limited caller is refused there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from detent.api.auth import Caller
from detent.domain.roles import JobLimit, JobLimits, Scope, described
from detent.errors import NotAuthorised
from detent.store.job_limits import current_limits, limited_to
from detent.store.tenant_wall import walled

_API = "/api/v1"
# Beginnings of paths; pages of the dashboard and their forms have the same.
LIMITED = (
    *(f"{_API}/{noun}" for noun in ("jobs", "runs", "tasks", "dead-letters", "incidents", "bulk", "schedules")),
    f"{_API}/queues/{{queue}}/claim",
    *("/jobs", "/tasks", "/runs", "/timeline", "/dead-letters"),
)


def knows_limits(path: str) -> bool:
    """Whether the route of this path template restricts what it shows and changes to the limits of its caller."""
    return any(path == known or path.startswith(f"{known}/") for known in LIMITED)


@contextmanager
def admitted(caller: Caller, needed: Scope, path: str) -> Iterator[None]:
    """Refuse what the caller may not do; hold the statements of this block to its tenant and to its jobs."""
    caller.check(needed)
    limits = caller.limits(needed)
    if limits is not None and not knows_limits(path):
        raise NotAuthorised(
            f"Your roles are limited to {described(limits)}, and this is about all jobs: ask for a role without a "
            "limit."
        )
    with walled(caller.wall), limited_to(limits):
        yield


@contextmanager
def also_needs(caller: Caller, needed: Scope) -> Iterator[None]:
    """As `admitted`, inside a route that needs more for some of its requests."""
    caller.check(needed)
    with limited_to(caller.limits(needed)):
        yield


def check_claim(queue: str) -> None:
    """Runs are claimed by queue: a limit to a tag does not permit it."""
    limits: JobLimits | None = current_limits()
    if limits is not None and JobLimit(queue) not in limits:
        raise NotAuthorised(
            f"Your roles are limited to {described(limits)}, and this claims all runs of the queue {queue!r}: ask for "
            "a role for that queue."
        )
