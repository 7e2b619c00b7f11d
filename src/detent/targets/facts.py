"""The facts of a run that every target gets, as headers: the same names for HTTP calls, messages and Celery tasks."""

from __future__ import annotations

from detent.domain.run import Call
from detent.targets.text import instant_text, visible


def fact_headers(call: Call) -> dict[str, str]:
    """Without `traceparent`, which a job may set itself."""
    headers = {
        "Idempotency-Key": visible(call.idempotency_key),
        "Detent-Run-Id": call.run_id,
        "Detent-Job": visible(call.job),
        "Detent-Job-Id": call.job_id,
        "Detent-Scheduled-At": instant_text(call.scheduled_at),
        "Detent-Attempt": str(call.attempt),
        "Detent-Token": str(call.token),
    }
    window_start = call.window_start
    if window_start is not None:
        headers["Detent-Window-Start"] = instant_text(window_start)
        headers["Detent-Window-End"] = instant_text(call.scheduled_at)
    return headers
