"""The idempotency key of a run: the same for every attempt, rescue, redrive and node, different for every tick and
for every deliberate re-run of a tick.

Pure: the worker hands the key to the target, the API shows it, and both compute it here from the run's own key.
"""

from __future__ import annotations

from uuid import UUID

from detent.domain.identity import RunKey, milliseconds, run_id
from detent.domain.job import JobSpec
from detent.domain.schedule.keys import render_key


def idempotency_key(job_id: UUID, name: str, spec: JobSpec, key: RunKey) -> str:
    return templated_key(job_id, name, spec.idempotency_key_template, spec.timezone, key)


def templated_key(job_id: UUID, name: str, template: str | None, timezone: str, key: RunKey) -> str:
    """As idempotency_key, for callers that do not have the whole definition."""
    if key.manual:
        # Never the key of a tick, whatever the template says: the run was enqueued in addition to the ticks.
        base = f"{job_id}:{run_id(key.first)}"
    elif template is not None:
        base = render_key(template, job_id=job_id, job=name, scheduled_at=key.scheduled_at, timezone=timezone)
    else:
        base = plain_key(job_id, milliseconds(key.scheduled_at))
    return f"{base}:{key.repeat}" if key.repeat else base


def plain_key(job_id: UUID | str, time: int) -> str:
    """The key of a tick at `time` milliseconds whose job has no template: seconds since 1970, with milliseconds only
    if the tick has them."""
    seconds, thousandths = divmod(time, 1000)
    return f"{job_id}:{seconds}.{thousandths:03d}" if thousandths else f"{job_id}:{seconds}"
