"""The definition of a job. No I/O.

`JobSpec` is the document that clients send; its field names are part of the public contract.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from detent.domain.retry import Backoff
from detent.domain.secret_ref import SecretRef
from detent.domain.topics import protocol_of

DEFAULT_TENANT = 1
"""The tenant of the cluster's operator."""

MissedWindow = Literal["RUN_ONCE", "SKIP", "RUN_ALL"]


ConcurrentPolicy = Literal["SKIP", "ALLOW", "QUEUE", "REPLACE"]


ConcurrencyScope = Literal["job", "tenant"]


Isolation = Literal["thread", "process"]


NoticeFormat = Literal["webhook", "slack"]


ReleasePolicy = Literal["exact", "staggered"]


ZoneDataPolicy = Literal["recompute", "refuse"]


Name = Annotated[str, Meta(min_length=1, max_length=200)]


Seconds = Annotated[float, Meta(ge=0, le=31_536_000)]


PositiveSeconds = Annotated[float, Meta(gt=0, le=31_536_000)]


class TargetTls(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Certificates in PEM form, for an `https://` address."""

    # A secret with a certificate and its private key. Text is what a worker fills in; a job that has it is refused.
    client_certificate: str | SecretRef | None = None
    # The authorities of the server; None: those that the system of the worker trusts.
    ca: Annotated[str, Meta(max_length=65_536)] | SecretRef | None = None


# A status, or a class of them such as "5xx".
StatusPattern = Annotated[int, Meta(ge=200, le=599)] | Annotated[str, Meta(pattern="^[2-5][xX]{2}$")]


StatusList = Annotated[list[StatusPattern], Meta(max_length=100)]


class TargetStatuses(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the statuses of answers mean, where that is not the default (`domain/http_statuses.py`)."""

    success: StatusList | None = None
    retry: StatusList = []
    no_retry: StatusList = []


class TargetCallback(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An answer 202 does not end the run: the target reports its end later."""

    # How long the target may be silent: each heartbeat begins this time anew.
    lease_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 60


class HttpTarget(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="http"):
    # A template, as the values of headers and the body (`domain/template.py`).
    url: Annotated[str, Meta(min_length=1, max_length=8192)]
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"] = "POST"
    headers: dict[str, str | SecretRef] = {}
    # Not stored while they are not set: versions before them can read all other jobs.
    tls: TargetTls | UnsetType = UNSET
    # Text, or a document whose texts are templates; without it, the payload is the body.
    body: Annotated[str, Meta(max_length=65_536)] | dict[str, Any] | list[Any] | UnsetType = UNSET
    statuses: TargetStatuses | UnsetType = UNSET
    # How many calls to the host one worker makes at the same time, of all jobs of the tenant that have a limit.
    host_concurrency: Annotated[int, Meta(ge=1, le=10_000)] | UnsetType = UNSET
    callback: TargetCallback | UnsetType = UNSET


class PythonTarget(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type", tag="python"):
    # Defaults are not stored, so versions without `isolate` can still read jobs that do not set it.
    function: Annotated[str, Meta(min_length=1, max_length=500)]
    isolate: Isolation = "thread"


class ShellTarget(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="shell"):
    command: (
        Annotated[str, Meta(min_length=1, max_length=65536)] | Annotated[list[str], Meta(min_length=1, max_length=1000)]
    )
    env: dict[str, str | SecretRef] = {}


class TargetCredentials(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a broker asks a client for. What each of the two means is in `domain/topics.py`, by protocol."""

    username: Annotated[str, Meta(max_length=8192)] | SecretRef | None = None
    # Text is what a worker fills in; a job that has it is refused.
    password: Annotated[str, Meta(max_length=65_536)] | SecretRef | None = None


class TopicTarget(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type", tag="topic"):
    """A message to a topic, queue, stream or subject of a broker."""

    url: Annotated[str, Meta(min_length=1, max_length=8192)]
    topic: Annotated[str, Meta(min_length=1, max_length=1000)]
    # Messages with the same key keep their order where the broker has an order; None: the id of the job.
    key: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    headers: dict[str, str | SecretRef] = {}
    format: Literal["plain", "cloudevents"] = "plain"
    credentials: TargetCredentials | UnsetType = UNSET
    tls: TargetTls | UnsetType = UNSET


class CeleryTarget(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type", tag="celery"):
    """A task of a Celery app, executed by its own workers. Exactly one of `app` and `broker_url` is given."""

    task: Annotated[str, Meta(min_length=1, max_length=500)]
    app: Annotated[str, Meta(min_length=1, max_length=500)] | None = None
    broker_url: Annotated[str, Meta(min_length=1, max_length=8192)] | None = None
    # With `broker_url`. An app has its own, if it has one.
    result_backend: Annotated[str, Meta(min_length=1, max_length=8192)] | None = None
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    queue: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    priority: Annotated[int, Meta(ge=0, le=255)] | None = None
    # Counted from when the message is sent; workers discard it afterwards.
    expires: PositiveSeconds | None = None
    # With `app`: the run ends as sent, although the app has a result backend.
    ignore_result: bool = False
    credentials: TargetCredentials | UnsetType = UNSET
    result_credentials: TargetCredentials | UnsetType = UNSET


Target = HttpTarget | PythonTarget | ShellTarget | TopicTarget | CeleryTarget


TargetKind = Literal["http", "python", "shell", "topic", "celery"]


class JobSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job as people write it."""

    # None: the job is a task. It has no ticks; its runs are enqueued.
    schedule: str | dict[str, Any] | None = None
    target: Target
    name: Name | None = None
    timezone: str = "UTC"
    payload: Any = None
    queue: Name = "default"
    priority: Annotated[int, Meta(ge=-100, le=100)] = 5
    tags: Annotated[list[Name], Meta(max_length=50)] = []
    timeout_seconds: PositiveSeconds = 300
    max_retries: Annotated[int, Meta(ge=0, le=1000)] = 3
    retry_backoff: Backoff = "exponential"
    retry_base_seconds: Seconds = 2
    retry_max_seconds: Seconds = 3600
    no_retry_on: Annotated[list[Name], Meta(max_length=50)] = []
    missed_window: MissedWindow = "RUN_ONCE"
    max_missed: Annotated[int, Meta(ge=1, le=100_000)] = 100
    misfire_grace_seconds: Annotated[int, Meta(ge=0, le=31_536_000)] | Literal["auto"] = "auto"
    concurrent_policy: ConcurrentPolicy = "SKIP"
    max_concurrent: Annotated[int, Meta(ge=1, le=1000)] = 10
    delivery: Literal["at_least_once", "at_most_once"] = "at_least_once"
    jitter_seconds: Annotated[float, Meta(ge=0, le=86400)] = 0
    dst_gap: Literal["run", "shift", "skip"] = "run"
    dst_overlap: Literal["first", "last", "both"] = "first"
    day_match: Literal["or", "and"] | None = None
    dialect: Literal["unix", "quartz", "aws"] = "unix"
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    max_runs: Annotated[int, Meta(ge=1, le=2_147_483_647)] | None = None
    allow_past: bool = False
    auto_pause_after: Annotated[int, Meta(ge=1, le=1000)] | None = None
    expect_start_within: PositiveSeconds | None = None
    expect_finish_within: PositiveSeconds | None = None
    notify_after: Annotated[int, Meta(ge=1, le=1000)] = 1
    notify_url: Annotated[str, Meta(min_length=1, max_length=8192)] | None = None
    notify_format: NoticeFormat = "webhook"
    collect_after: Seconds = 604_800
    idempotency_key_template: Annotated[str, Meta(min_length=1, max_length=500)] | None = None
    # The last fields, and not stored while they have their defaults: versions before them can read all other jobs.
    signing: SecretRef | None = None
    concurrency_key: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    concurrency_limit: Annotated[int, Meta(ge=1, le=1000)] | None = None
    concurrency_rate: Annotated[float, Meta(ge=0.00001, le=10_000)] | None = None
    concurrency_scope: ConcurrencyScope = "job"
    retry_on: Annotated[list[Name], Meta(max_length=50)] = []
    retry_delays: Annotated[dict[Name, Seconds], Meta(max_length=50)] = {}
    dead_letter_topic: TopicTarget | None = None
    # JSON Schema (`domain/payload_schema.py`).
    payload_schema: dict[str, Any] | None = None
    release: ReleasePolicy = "exact"
    tzdata_policy: ZoneDataPolicy = "recompute"


_KINDS: dict[type, TargetKind] = {
    HttpTarget: "http",
    PythonTarget: "python",
    ShellTarget: "shell",
    TopicTarget: "topic",
    CeleryTarget: "celery",
}


def kind_of(target: Target) -> TargetKind:
    """A lookup, because it is called for every run."""
    return _KINDS[type(target)]


TASK_NEEDS = "task:"
"""Begins the needs of a queue in which on-demand runs wait: workers of versions before them do not claim these."""


CALLBACK_NEEDS = "callback"
"""What a worker has that hands a run over to its target's callback."""


def needs_of(target: Target) -> str:
    """What a worker must have to run this target; the second half of a queue row."""
    match target:
        case HttpTarget(callback=callback):
            # Workers that pull, and those of versions without callbacks, would take a 202 for the end of the run.
            return "" if callback is UNSET else CALLBACK_NEEDS
        case PythonTarget(function=function, isolate=isolate):
            # Another prefix, so that workers of versions without handler processes do not claim these runs.
            return f"process:{function}" if isolate == "process" else f"python:{function}"
        case ShellTarget():
            return "shell"
        case TopicTarget(url=url):
            # Workers of versions without topics, or without the client of this protocol, do not claim these runs.
            return f"topic:{protocol_of(url)}"
        case CeleryTarget(app=app):
            # The code of an app is in the workers that were started with it, and open to the tenants that they name.
            return "celery" if app is None else f"celery:{app}"


class Definition(NamedTuple):
    """One revision of a job, as a worker needs it."""

    job_id: UUID
    name: str
    spec: JobSpec
    created_at: datetime | None = None
    size: int = 0
    """About how many bytes of memory it takes."""
    tenant: int = 1
    """Whose job it is: decides which addresses and commands its runs may use."""
    refers: bool = False
    """Whether it refers to secrets: the others need no look at their payload."""
