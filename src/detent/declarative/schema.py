"""The JSON Schema of a file of jobs, made from the types the server reads jobs with; editors complete and check by it.

python -m detent.declarative.schema > docs/jobs.schema.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

from detent.domain.job import JobSpec

TITLE = "A file of jobs for detent apply"
ADVICE: dict[str, str] = {
    "schedule": 'Such as "0 9 * * MON", "@daily", "every 15m", "RRULE:FREQ=WEEKLY;BYDAY=MO" or a time; '
    "or an object with cron, rrule, every or at.",
    "target": "What a run does: call an address, a Python function of the workers' app, or a command.",
    "name": "By which the job is found again; unique.",
    "timezone": "The zone of the schedule, such as Europe/Berlin.",
    "payload": "What the target is given: any JSON.",
    "queue": "The queue its runs wait in.",
    "priority": "Higher goes first.",
    "tags": "For finding jobs again.",
    "timeout_seconds": "After this an attempt is ended.",
    "max_retries": "Tries after the first, before a run is dead.",
    "retry_backoff": "How the wait between tries grows.",
    "retry_base_seconds": "The wait it grows from.",
    "retry_max_seconds": "The longest wait.",
    "no_retry_on": "Exceptions of a function, by name, after which another try cannot help.",
    "missed_window": "Which ticks run after down-time.",
    "max_missed": "With RUN_ALL: how many missed ticks run at most, the oldest first.",
    "misfire_grace_seconds": "How late a tick may still run.",
    "concurrent_policy": "When the last run is not over at the next tick.",
    "max_concurrent": "With ALLOW: runs at the same time.",
    "delivery": "Whether a run that a crash cut off is tried again.",
    "jitter_seconds": "Each run is delayed by up to this.",
    "dst_gap": "When the clock jumps over a tick.",
    "dst_overlap": "When the clock shows a tick twice.",
    "day_match": "When cron restricts both day fields: either of them, or days that are both.",
    "dialect": "How cron numbers the days of the week.",
    "starts_at": "No tick before this time.",
    "ends_at": "No tick after this time.",
    "max_runs": "The job is completed after this many runs.",
    "allow_past": "A one-off in the past runs at once.",
    "auto_pause_after": "The job is paused after so many dead runs in a row; null: never.",
    "expect_start_within": "Seconds from a tick within which its run should begin; null: whenever.",
    "expect_finish_within": "Seconds from a tick within which its run should have succeeded; null: whenever.",
    "notify_after": "Somebody is told after so many ticks in a row that were not as expected.",
    "notify_url": "Who is told: the address of a webhook; null: the one in the settings.",
    "notify_format": "What the webhook is sent: detent's own JSON, signed, or what Slack reads.",
    "collect_after": "A one-off is deleted so many seconds after its end; its runs stay.",
    "idempotency_key_template": "The key by which targets recognise what they have done already.",
}


def jobs_schema() -> dict[str, Any]:
    _, parts = msgspec.json.schema_components([JobSpec], ref_template="#/$defs/{name}")
    job = parts["JobSpec"]
    job["title"] = "A job"
    job.pop("description", None)
    job["required"] = ["name", "schedule", "target"]
    for name, field in job["properties"].items():
        field["description"] = ADVICE[name]
    job["properties"]["name"] = {"type": "string", "minLength": 1, "maxLength": 200, "description": ADVICE["name"]}
    defaults = {name: field for name, field in job["properties"].items() if name != "name"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": TITLE,
        "type": "object",
        "properties": {
            "$schema": {"type": "string"},
            "owner": {
                "type": "string",
                "minLength": 1,
                "maxLength": 200,
                "description": "The label of who keeps these jobs; `detent apply --prune` deletes only jobs with it.",
            },
            "defaults": {
                "type": "object",
                "properties": defaults,
                "additionalProperties": False,
                "description": "Fields for every job of this file that does not have them itself.",
            },
            "jobs": {"type": "array", "items": {"$ref": "#/$defs/JobSpec"}},
        },
        "required": ["jobs"],
        "additionalProperties": False,
        "$defs": {"JobSpec": job} | {name: part for name, part in parts.items() if name != "JobSpec"},
    }


def written() -> str:
    return json.dumps(jobs_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(written())
