"""Jobs that a caller with limited roles registers must be within the limits: it could not see or change them later."""

from __future__ import annotations

from collections.abc import Iterable

from detent.domain.job import JobSpec
from detent.domain.roles import described
from detent.errors import Conflict, NotAuthorised
from detent.store.job_limits import current_limits


def check_limits(items: Iterable[object]) -> None:
    """Of items that may also be faults, which are reported elsewhere."""
    limits = current_limits()
    if limits is None:
        return
    for item in items:
        if isinstance(item, JobSpec) and not any(limit.includes(item.queue, item.tags) for limit in limits):
            name = "The job" if item.name is None else f"The job {item.name!r}"
            raise NotAuthorised(
                f"{name} has the queue {item.queue!r} and the tags {', '.join(item.tags) or '(none)'}, and your roles "
                f"are limited to {described(limits)}: set its queue and tags accordingly."
            )


def busy(name: str) -> Conflict:
    """A job could not be changed after several attempts."""
    if current_limits() is not None:
        return Conflict(
            f"The job {name!r} is beyond the limits of your roles, or is being changed by other requests: choose "
            "another name, or try again."
        )
    return Conflict(f"The job {name!r} is being changed by other requests: try again.")
