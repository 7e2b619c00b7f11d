"""The fields of a job as typed keywords, so that an editor completes them and a type checker refuses a typo.

`JobSpec` in `domain/job.py` has the bounds and the defaults, `domain/job_fields.py` says what each field means, and a
test compares the names. The choices are spelled out here, because this module is imported with every app and the
domain is not.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Literal, TypedDict, cast

from detent.domain.sequences import listed
from detent.errors import UsageError

ExceptionKind = type[BaseException] | str
"""An exception by its class, or by its name where the class cannot be imported."""


class JobFields(TypedDict, total=False):
    """What can be said about any job, except its name, its schedule, its function and its payload."""

    timezone: str
    queue: str
    priority: int
    tags: Sequence[str]
    timeout_seconds: float
    max_retries: int
    retry_backoff: Literal["exponential", "linear", "fixed"]
    retry_base_seconds: float
    retry_max_seconds: float
    retry_on: Sequence[ExceptionKind]
    no_retry_on: Sequence[ExceptionKind]
    retry_delays: Mapping[ExceptionKind, float | timedelta]
    dead_letter_topic: Mapping[str, Any] | None
    missed_window: Literal["RUN_ONCE", "SKIP", "RUN_ALL"]
    max_missed: int
    misfire_grace_seconds: int | Literal["auto"]
    concurrent_policy: Literal["SKIP", "ALLOW", "QUEUE", "REPLACE"]
    max_concurrent: int
    delivery: Literal["at_least_once", "at_most_once"]
    jitter_seconds: float
    dst_gap: Literal["run", "shift", "skip"]
    dst_overlap: Literal["first", "last", "both"]
    day_match: Literal["or", "and"] | None
    dialect: Literal["unix", "quartz", "aws"]
    starts_at: datetime | str | None
    ends_at: datetime | str | None
    max_runs: int | None
    allow_past: bool
    auto_pause_after: int | None
    expect_start_within: float | None
    expect_finish_within: float | None
    notify_after: int
    notify_url: str | None
    notify_format: Literal["webhook", "slack"]
    collect_after: float
    idempotency_key_template: str | None
    signing: Mapping[str, str] | None
    concurrency_key: str | None
    concurrency_limit: int | None
    concurrency_rate: float | None
    concurrency_scope: Literal["job", "tenant"]
    payload_schema: Mapping[str, Any] | None
    release: Literal["exact", "staggered"]
    tzdata_policy: Literal["recompute", "refuse"]


class ScheduledFields(JobFields, total=False):
    """As above, with the schedule: exactly one of the first four."""

    cron: str
    every: str | float | timedelta
    rrule: str
    at: str | datetime
    after: Literal["finish"]
    also: Sequence[str | Mapping[str, Any]]
    exclude: Sequence[str | date | Mapping[str, str]]


SCHEDULE_FORMS = ("cron", "every", "rrule", "at")
SCHEDULE_PARTS = (*SCHEDULE_FORMS, "after", "also", "exclude")


def documented(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as a document has them: exceptions by their names, times and durations as text and seconds."""
    for name in fields:
        if name not in JobFields.__annotations__:
            near = difflib.get_close_matches(name, JobFields.__annotations__, 1)
            hint = f"did you mean {near[0]!r}?" if near else "docs/reference/jobs.md lists the fields."
            raise UsageError(f"A job has no field {name!r}: {hint}")
    document = {name: _plain(name, value) for name, value in fields.items()}
    for name in ("retry_on", "no_retry_on"):
        if name in document:
            document[name] = _names(name, document[name])
    if "retry_delays" in document:
        document["retry_delays"] = _delays(document["retry_delays"])
    if "tags" in document:
        document["tags"] = listed("tags", document["tags"])
    return document


def schedule_of(forms: Mapping[str, Any]) -> dict[str, Any]:
    """The schedule that is given in one of its forms, with what belongs to it."""
    given = {form: forms[form] for form in SCHEDULE_FORMS if forms.get(form) is not None}
    if len(given) != 1:
        hint = "" if given else " For a job without a schedule, whose runs are enqueued, use @app.task()."
        raise UsageError(f"A job needs exactly one of cron=, every=, rrule= and at=; {len(given)} were given.{hint}")
    form, value = next(iter(given.items()))
    interval = form == "every" and isinstance(value, timedelta)
    return {form: _interval(value) if interval else _plain(form, value), **_beside(forms)}


def _beside(forms: Mapping[str, Any]) -> dict[str, Any]:
    found = {} if forms.get("after") is None else {"after": forms["after"]}
    for name in ("also", "exclude"):
        items = forms.get(name)
        if isinstance(items, str | Mapping | date):
            raise UsageError(f"{name} is {items!r}: give a list, such as {name}=[{items!r}].")
        if items:
            found[name] = [item.isoformat() if type(item) is date else _plain(name, item) for item in items]
    return found


def _interval(length: timedelta) -> str | float:
    """As people write it, `15m`: lists and pages show the schedule as it is registered."""
    from detent.domain.schedule.interval import format_every  # loads the schedules, which most apps do not need

    milliseconds, rest = divmod(length, timedelta(milliseconds=1))
    return length.total_seconds() if rest or milliseconds <= 0 else format_every(milliseconds)


def exception_name(kind: ExceptionKind) -> str:
    """The name under which failures report this exception (`targets.exceptions.kinds_of`): with its module, unless it
    is Python's own."""
    if isinstance(kind, str):
        return kind
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise UsageError(f"{kind!r} is not an exception: give its class, or its name as text.")
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def seconds_of(name: str, value: float | timedelta) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise UsageError(f"{name} is {value!r}: give a number of seconds or a timedelta.")
    return seconds


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        raise UsageError(f"{name}={value.isoformat()} has no time zone: write '{value.isoformat()}+00:00' or similar.")
    return value.isoformat()


def _names(field: str, kinds: object) -> list[str]:
    if isinstance(kinds, str | type) or not isinstance(kinds, Sequence | set | frozenset):
        raise UsageError(f"{field} is {kinds!r}: give a tuple of exception classes, such as {field}=(TimeoutError,).")
    return [exception_name(kind) for kind in kinds]


def _delays(delays: object) -> dict[str, float]:
    if not isinstance(delays, Mapping):
        raise UsageError(f"retry_delays is {delays!r}: give exceptions with seconds, such as {{TimeoutError: 60}}.")
    given = cast("Mapping[ExceptionKind, float | timedelta]", delays)
    return {exception_name(kind): seconds_of("A delay of retry_delays", wait) for kind, wait in given.items()}
