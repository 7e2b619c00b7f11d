"""What each field of a job means, described once.

Command line help, the JSON schema of job files, the OpenAPI document, the dashboard's form, the manual's table and
`detent job get` read this table; `JobSpec` in `job.py` has the types, the bounds and the defaults, and a test compares
the two. Help is printed before anything heavy is loaded, so this module imports nothing but the standard library.

To add a field: add it to `JobSpec`, describe it here, add it to `contract.job.Job`, and write the code that obeys it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

# How people write the value. `grace` is a duration or `auto`, `names` is a list of words, `document` is JSON.
# `secret` is the name of a secret, `delays` are words with durations: TimeoutError=30s, RateLimited=2m.
FieldKind = Literal[
    "text",
    "integer",
    "number",
    "duration",
    "grace",
    "choice",
    "instant",
    "names",
    "switch",
    "document",
    "secret",
    "delays",
]
FieldGroup = Literal["definition", "schedule", "retries", "overlap", "deadlines", "queue", "concurrency"]


class JobField(NamedTuple):
    """`meaning` is one or two sentences. `default` is how people would write it; empty: there is none, or it is empty.
    `flag` is the option of `detent job create` where it is not made from the name."""

    name: str
    label: str
    kind: FieldKind
    group: FieldGroup
    meaning: str
    default: str = ""
    choices: tuple[str, ...] = ()
    flag: str | None = None

    @property
    def option(self) -> str:
        return self.flag or f"--{self.name.removesuffix('_seconds').replace('_', '-')}"


JOB_FIELDS: tuple[JobField, ...] = (
    JobField(
        "schedule",
        "Schedule",
        "document",
        "definition",
        'When the job ticks: "0 9 * * MON", "@daily", "every 15m", "RRULE:FREQ=WEEKLY;BYDAY=MO" or a time; '
        "or an object with cron, rrule, every or at, and with also (more schedules), exclude (days and times without a "
        "tick) or, for every, after: finish (count from the end of the previous run). Without it the job is a task: "
        "its runs are enqueued.",
    ),
    JobField(
        "target",
        "Target",
        "document",
        "definition",
        "What a run calls: a URL, a Python function of the app that workers load, or a shell command.",
    ),
    JobField("name", "Name", "text", "definition", "A unique name for the job."),
    JobField(
        "timezone", "Time zone", "text", "schedule", "Time zone of the schedule, such as Europe/Berlin.", default="UTC"
    ),
    JobField("payload", "Payload", "document", "definition", "The input of every run: any JSON."),
    JobField("queue", "Queue", "text", "queue", "The queue that runs wait in.", default="default"),
    JobField(
        "priority",
        "Priority",
        "integer",
        "queue",
        "From -100 to 100; workers claim runs of higher priority first.",
        default="5",
    ),
    JobField("tags", "Tags", "names", "definition", "Labels for searching and grouping jobs.", flag="--tag"),
    JobField(
        "timeout_seconds", "Timeout", "duration", "retries", "The longest time one attempt may take.", default="5m"
    ),
    JobField(
        "max_retries",
        "Retries",
        "integer",
        "retries",
        "Retries after the first attempt, before the run is dead.",
        default="3",
    ),
    JobField(
        "retry_backoff",
        "Backoff",
        "choice",
        "retries",
        "How the delay between attempts grows.",
        default="exponential",
        choices=("exponential", "linear", "fixed"),
    ),
    JobField(
        "retry_base_seconds", "First delay", "duration", "retries", "The delay before the first retry.", default="2s"
    ),
    JobField(
        "retry_max_seconds",
        "Longest delay",
        "duration",
        "retries",
        "The longest delay between two attempts.",
        default="1h",
    ),
    JobField(
        "no_retry_on",
        "Do not retry on",
        "names",
        "retries",
        "For Python jobs: names of exception classes after which a run is not retried.",
    ),
    JobField(
        "missed_window",
        "Missed ticks",
        "choice",
        "overlap",
        "Which ticks missed during downtime run afterwards: the latest, none, or all.",
        default="RUN_ONCE",
        choices=("RUN_ONCE", "SKIP", "RUN_ALL"),
    ),
    JobField(
        "max_missed",
        "Maximum missed ticks",
        "integer",
        "overlap",
        "With RUN_ALL: the largest number of missed ticks to run, oldest first.",
        default="100",
    ),
    JobField(
        "misfire_grace_seconds",
        "Grace period",
        "grace",
        "overlap",
        "How late a missed tick may still run. auto: as the server is set, by default one hour or half the interval "
        "to the next tick, whichever is longer.",
        default="auto",
    ),
    JobField(
        "concurrent_policy",
        "Overlapping runs",
        "choice",
        "overlap",
        "What happens when the previous run is unfinished at the next tick.",
        default="SKIP",
        choices=("SKIP", "ALLOW", "QUEUE", "REPLACE"),
    ),
    JobField(
        "max_concurrent",
        "Concurrent runs",
        "integer",
        "overlap",
        "With ALLOW: the largest number of unfinished runs.",
        default="10",
    ),
    JobField(
        "delivery",
        "Delivery",
        "choice",
        "overlap",
        "Whether a run is retried after a crash interrupts it.",
        default="at_least_once",
        choices=("at_least_once", "at_most_once"),
    ),
    JobField(
        "jitter_seconds", "Jitter", "duration", "schedule", "Delay each run by a random time up to this.", default="0"
    ),
    JobField(
        "dst_gap",
        "Ticks in a DST gap",
        "choice",
        "schedule",
        "When clocks jump over a tick: run it right after the gap, shift it by the gap, or skip it.",
        default="run",
        choices=("run", "shift", "skip"),
    ),
    JobField(
        "dst_overlap",
        "Ticks in a DST overlap",
        "choice",
        "schedule",
        "When clocks show a tick's time twice: run the first, the last, or both.",
        default="first",
        choices=("first", "last", "both"),
    ),
    JobField(
        "day_match",
        "Day matching",
        "choice",
        "schedule",
        "Required if cron restricts both day fields: run on days that match either field, or both.",
        choices=("or", "and"),
    ),
    JobField(
        "dialect",
        "Cron dialect",
        "choice",
        "schedule",
        "How a cron expression is read: unix (Sunday is 0), quartz (Sunday is 1) or aws (EventBridge).",
        default="unix",
        choices=("unix", "quartz", "aws"),
    ),
    JobField(
        "starts_at", "Not before", "instant", "schedule", "No tick before this time, such as 2026-12-24T18:00:00Z."
    ),
    JobField("ends_at", "Not after", "instant", "schedule", "No tick after this time, such as 2027-01-06T00:00:00Z."),
    JobField("max_runs", "Maximum runs", "integer", "schedule", "Complete the job after this many runs."),
    JobField(
        "allow_past",
        "Allow a past time",
        "switch",
        "definition",
        "If the time of a one-off job is in the past, run it now.",
    ),
    JobField(
        "auto_pause_after",
        "Pause after N dead runs",
        "integer",
        "retries",
        "Pause the job after this many consecutive dead runs.",
    ),
    JobField(
        "expect_start_within",
        "Start within",
        "duration",
        "deadlines",
        "Deadline for a run's start, counted from its tick.",
    ),
    JobField(
        "expect_finish_within",
        "Succeed within",
        "duration",
        "deadlines",
        "Deadline for a run to finish with success, counted from its tick, retries included.",
    ),
    JobField(
        "notify_after",
        "Notify after",
        "integer",
        "deadlines",
        "Notify after this many consecutive missed deadlines.",
        default="1",
    ),
    JobField(
        "notify_url",
        "Notify URL",
        "text",
        "deadlines",
        "The webhook to notify. Empty: the server's notify_url.",
    ),
    JobField(
        "notify_format",
        "Message format",
        "choice",
        "deadlines",
        "What the webhook receives: detent's own signed JSON, or a Slack message.",
        default="webhook",
        choices=("webhook", "slack"),
    ),
    JobField(
        "collect_after",
        "Delete after",
        "duration",
        "definition",
        "Delete a one-off job this long after its end; its runs are kept.",
        default="7d",
    ),
    JobField(
        "idempotency_key_template",
        "Idempotency key",
        "text",
        "definition",
        "Template of the key by which a target recognises a repeated run.",
        default="{{job_id}}:{{scheduled_at_unix}}",
        flag="--idempotency-key",
    ),
    JobField(
        "signing",
        "Signing secret",
        "secret",
        "definition",
        'The secret that signs HTTP calls by Standard Webhooks, {"secret": "NAME"}. Without it, that of the tenant '
        "signs them, if it has one.",
    ),
    JobField(
        "concurrency_key",
        "Concurrency key",
        "text",
        "concurrency",
        "Template of a key, such as customer-{{payload.customer}}: runs with the same key share the limits below. "
        "Without it, all runs of the job share them.",
    ),
    JobField(
        "concurrency_limit",
        "Concurrency limit",
        "integer",
        "concurrency",
        "The largest number of runs with the same key that run at the same time.",
    ),
    JobField(
        "concurrency_rate",
        "Concurrency rate",
        "number",
        "concurrency",
        "The largest number of runs with the same key that start per second.",
    ),
    JobField(
        "concurrency_scope",
        "Concurrency scope",
        "choice",
        "concurrency",
        "Which runs with the same key are counted together: those of the job, or of all jobs of the tenant.",
        default="job",
        choices=("job", "tenant"),
    ),
    JobField(
        "retry_on",
        "Retry only on",
        "names",
        "retries",
        "For Python jobs: names of the exception classes after which a run is retried; none: after all.",
    ),
    JobField(
        "retry_delays",
        "Delays by exception",
        "delays",
        "retries",
        "For Python jobs: seconds before the next attempt by the name of an exception class, instead of the backoff.",
    ),
    JobField(
        "dead_letter_topic",
        "Dead-letter topic",
        "document",
        "retries",
        "Where a run is sent that ends dead: an object with the members of a topic target, such as url and topic; "
        "without it, the topic of the tenant.",
    ),
    JobField(
        "payload_schema",
        "Payload schema",
        "document",
        "definition",
        "A JSON Schema (2020-12) that the payload of every run has to match: checked when the job is registered, "
        "triggered, enqueued or run again.",
    ),
    JobField(
        "release",
        "Release of runs",
        "choice",
        "schedule",
        "When the run of a tick is released: at its tick, or staggered over the six seconds after it, those of higher "
        "priority first. The tick stays the same.",
        default="exact",
        choices=("exact", "staggered"),
    ),
    JobField(
        "tzdata_policy",
        "New time zone rules",
        "choice",
        "schedule",
        "When the zone data of a node has other rules for the job's zone: compute the next tick by them, or refuse to "
        "fire until an operator accepts them.",
        default="recompute",
        choices=("recompute", "refuse"),
    ),
)

FIELDS_BY_NAME: dict[str, JobField] = {field.name: field for field in JOB_FIELDS}


def fields_of(group: FieldGroup) -> tuple[JobField, ...]:
    return tuple(field for field in JOB_FIELDS if field.group == group)
