"""What a task, a job without a schedule, cannot have. No I/O.

A field that is about ticks would have no effect, so it is refused instead of being ignored.
"""

from __future__ import annotations

import msgspec

from detent.domain.job import JobSpec
from detent.domain.refusal import shown
from detent.errors import Conflict, UsageError

NO_TICKS = "a task has no ticks"
OVERLAP = "runs of a task may overlap, and concurrency_limit limits how many do"
OWN_KEY = "each run of a task has its own key"

_ABOUT_TICKS = {
    **dict.fromkeys(("missed_window", "max_missed", "misfire_grace_seconds"), NO_TICKS),
    **dict.fromkeys(("concurrent_policy", "max_concurrent"), OVERLAP),
    **dict.fromkeys(("jitter_seconds", "dst_gap", "dst_overlap", "day_match", "dialect"), NO_TICKS),
    **dict.fromkeys(("release", "tzdata_policy"), NO_TICKS),
    **dict.fromkeys(("starts_at", "ends_at", "max_runs", "allow_past"), NO_TICKS),
    **dict.fromkeys(("expect_start_within", "expect_finish_within"), f"deadlines count from a tick, and {NO_TICKS}"),
    "idempotency_key_template": OWN_KEY,
}
_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(JobSpec)}


def check_task(spec: JobSpec) -> None:
    """Refuse fields that only a schedule gives a meaning."""
    if spec.schedule is not None:
        return
    for name, why in _ABOUT_TICKS.items():
        value = getattr(spec, name)
        if value != _DEFAULTS[name]:
            raise UsageError(
                f"{name} is {shown(value)}, but the job has no schedule, so it is a task, and {why}: "
                f"remove {name}, or give the job a schedule.",
                f"/{name}",
            )


def without_ticks(name: str) -> Conflict:
    """The answer to a question or a command about the ticks of a task."""
    return Conflict(f"The job {name!r} has no schedule: its runs are enqueued, so it has no ticks.")
