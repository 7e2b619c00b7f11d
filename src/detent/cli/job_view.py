"""Jobs for people: the columns of their lists, and one job on a sheet."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from detent.cli import times
from detent.cli.document import SIMPLE_FIELDS, is_default
from detent.cli.output import Column, Field, Item
from detent.cli.run_view import indented
from detent.cli.target_view import target_fields, target_text
from detent.domain.job_fields import JobField

ON_DEMAND = "on demand"


def _with_parts(schedule: dict[str, Any]) -> str:
    text = schedule_text({key: value for key, value in schedule.items() if key not in ("after", "also", "exclude")})
    if schedule.get("after"):
        text += f" after {schedule['after']}"
    for name in ("also", "exclude"):
        items = [item if isinstance(item, str) else schedule_text(item) for item in schedule.get(name) or ()]
        text += f" {name} {', '.join(items)}" if items else ""
    return text


def schedule_text(schedule: object) -> str:
    """The schedule as one string, empty for a task."""
    if isinstance(schedule, dict) and any(map(schedule.get, ("after", "also", "exclude"))):
        return _with_parts(schedule)
    if isinstance(schedule, str):
        return schedule
    if not isinstance(schedule, dict):
        return ""
    if isinstance(schedule.get("every"), int | float):  # seconds
        from detent.domain.schedule.interval import format_every

        return f"every {format_every(round(schedule['every'] * 1000))}"
    for kind, prefix in (("cron", ""), ("rrule", "RRULE:"), ("every", "every "), ("at", "")):
        if kind in schedule:
            text = str(schedule[kind])
            return text if text.startswith(prefix) else prefix + text
    return str(schedule)


COLUMNS = (
    Column("NAME", lambda job: job["name"], least=12),
    Column("STATUS", lambda job: job["status"], status=True),
    Column("SCHEDULE", lambda job: schedule_text(job["schedule"]) or ON_DEMAND, least=11),
    Column("ZONE", lambda job: job["timezone"], extra=True),
    Column("NEXT RUN", lambda job: job["next_run_at"], lambda job, at: times.relative(job["next_run_at"], at)),
    Column("LAST RUN", lambda job: job["last_run_at"], lambda job, at: times.relative(job["last_run_at"], at)),
    Column("LAST STATUS", lambda job: job["last_status"], status=True),
    Column("TARGET", lambda job: target_text(job["target"]), extra=True, least=20),
    Column("ID", lambda job: job["id"], extra=True),
)


SHOWN_ABOVE = frozenset({"timezone", "queue", "priority", "tags", "timeout_seconds", "max_retries", "retry_backoff"})


def fields(job: Item, at: datetime) -> Iterator[Field]:
    """A job on one sheet. Headers are named only: their values are often secrets."""
    zone = str(job["timezone"])
    written, words = schedule_text(job["schedule"]), job.get("description")
    yield Field("name", "Name", job["name"])
    yield Field("id", "Id", job["id"])
    yield Field("status", "Status", job["status"])
    yield Field("paused_reason", "Paused because", job["paused_reason"])
    yield Field("paused_by", "Paused by", job["paused_by"])
    yield Field("paused_until", "Paused until", job["paused_until"], times.both(job["paused_until"], at, zone))
    yield Field("on_resume", "On resume", job["on_resume"])
    yield Field("schedule", "Schedule", written or ON_DEMAND, f"{written} ({words})" if words and written else words)
    yield Field("description", "", words, "")
    yield Field("timezone", "Time zone", zone)
    yield Field("next_run_at", "Next run", job["next_run_at"], times.both(job["next_run_at"], at, zone))
    skipped = job.get("skipped_ticks") or ()
    shown = ", ".join(str(times.both(tick, at, zone)) for tick in skipped)
    yield Field("skipped_ticks", "Skipped ticks", ", ".join(skipped) or None, shown)
    last = times.both(job["last_run_at"], at, zone)
    yield Field("last_run_at", "Last run", job["last_run_at"], f"{last}: {job['last_status']}" if last else "")
    yield Field("last_status", "", job["last_status"], "")
    yield from target_fields(job["target"])
    yield Field("payload", "Payload", job["payload"], indented(job["payload"]))
    yield Field("queue", "Queue", job["queue"], f"{job['queue']}, priority {job['priority']}")
    yield Field("priority", "", job["priority"], "")
    yield Field("tags", "Tags", ", ".join(job.get("tags") or ()) or None)
    yield Field("owner", "Owner", job.get("owner"))
    yield Field("timeout_seconds", "Timeout", job["timeout_seconds"], times.span(job["timeout_seconds"] * 1000))
    yield Field("max_retries", "Retries", job["max_retries"], f"{job['max_retries']}, {job['retry_backoff']} backoff")
    if job["retry_backoff"] != "exponential":
        yield Field("retry_backoff", "", job["retry_backoff"], "")
    yield from _chosen_fields(job, at)
    yield Field(
        "revision",
        "Revision",
        job["revision"],
        f"{job['revision']}, {times.both(job['updated_at'], at, zone)}",
    )


def _chosen_fields(job: Item, at: datetime) -> Iterator[Field]:
    """The rest of the job's fields, where they differ from their defaults."""
    for field in SIMPLE_FIELDS:
        value: Any = job.get(field.name)
        if field.name in SHOWN_ABOVE or is_default(field, value):
            continue
        plain = ", ".join(value) if field.kind == "names" else value
        yield Field(field.name, field.label, plain, _shown(field, value, str(job["timezone"]), at))


def _shown(field: JobField, value: Any, zone: str, at: datetime) -> str | None:
    match field.kind:
        case "duration":
            return times.span(value * 1000)
        case "grace" if value != "auto":
            return times.span(value * 1000)
        case "delays":
            return ", ".join(f"{name}={times.span(wait * 1000)}" for name, wait in value.items())
        case "instant":
            return times.both(value, at, zone)
        case "switch":
            return "yes"
        case "secret":
            return f"secret {value['secret']}"
        case "document":
            return target_text({"type": "topic", **value}) if "topic" in value else indented(value)
    return None
