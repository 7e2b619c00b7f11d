"""The jobs that the statements of a request see and change, where its caller is limited to some.

Who makes a request is known at the door. `limited_to` keeps which jobs it may touch, and every statement that finds
jobs or runs for a request takes `job_limits()` as its last parameter: a page is not filtered after it was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

from detent.domain.roles import JobLimits

_limits: ContextVar[JobLimits | None] = ContextVar("job_limits", default=None)


@contextmanager
def limited_to(limits: JobLimits | None) -> Iterator[None]:
    """Hold the statements in this block to some jobs; None: to no particular ones."""
    before = _limits.set(limits)
    try:
        yield
    finally:
        _limits.reset(before)


def current_limits() -> JobLimits | None:
    return _limits.get()


def job_limits() -> str | None:
    """For the parameter `limits` of a statement, which passes it to the function within_limits."""
    limits = _limits.get()
    return None if limits is None else msgspec.json.encode([limit._asdict() for limit in limits]).decode()
