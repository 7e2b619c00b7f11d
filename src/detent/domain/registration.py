"""From a JobSpec to the rows of a job. Pure: the database's time is an argument.

Every fault of a job is found here, before anything is written: each is a UsageError with the JSON pointer of the wrong
part. `prepare` reads the document; `place` finds its next tick, which depends on the time and on what has already
fired, and is computed again when a job is changed.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from detent.domain.celery_rules import check_task_payload
from detent.domain.concurrency import check_concurrency
from detent.domain.delay_rules import check_delay
from detent.domain.documents import (
    MAX_PAYLOAD_BYTES,
    MAX_REST_BYTES,
    check_size,
    check_text,
    looks_sound,
    plain,
    utc_instant,
)
from detent.domain.http_rules import template_warnings
from detent.domain.identity import partition_of
from detent.domain.job import DEFAULT_TENANT, TASK_NEEDS, HttpTarget, JobSpec, TopicTarget, kind_of, needs_of
from detent.domain.job_schedule import may_hash, schedule_of, whole_milliseconds
from detent.domain.misfire import AUTOMATIC, MISSED, SHORTEST_GRACE
from detent.domain.names import check_names
from detent.domain.payload_schema import check_schema_of
from detent.domain.references import check_references
from detent.domain.refusal import pointer_to, refused, shown
from detent.domain.release_rules import check_expectations, check_spread
from detent.domain.schedule import Schedule, ScheduleError
from detent.domain.schedule.cautions import cautions
from detent.domain.schedule.keys import check_key_template
from detent.domain.schedule.schedule import COMBINED
from detent.domain.schedule.steps import QUESTION_STEPS, Steps
from detent.domain.sensitive import literal_secrets, literal_warnings
from detent.domain.target_rules import check_target
from detent.domain.target_url import TargetError
from detent.domain.task_rules import check_task
from detent.domain.topic_rules import check_message_size
from detent.errors import UsageError

WAITING_LANES = {"QUEUE": -1, "REPLACE": -2}
LONGEST_GRACE = 2**31 - 1

_DECODER = msgspec.json.Decoder(JobSpec)
_UNSIGNED = ',"signing":null}'
_NOT_FORWARDED = ',"dead_letter_topic":null}'
_RETRIED = ',"retry_on":[],"retry_delays":{}}'
_UNCHECKED = ',"payload_schema":null,"release":"exact","tzdata_policy":"recompute"}'
_UNLIMITED = ',"concurrency_key":null,"concurrency_limit":null,"concurrency_rate":null,"concurrency_scope":"job"}'


class PreparedJob(NamedTuple):
    """A valid job: the columns of its rows, without its next tick."""

    job_id: UUID
    number: int
    spec: JobSpec
    schedule: Schedule
    name: str
    partition: int
    target: str
    needs: str
    definition: str
    stored: str
    digest: bytes
    grace: int
    missed: int
    max_missed: int
    lanes: int
    once: bool
    warnings: list[str]
    secrets: tuple[str, ...]
    """The stored secrets that it refers to."""


class CursorPlace(NamedTuple):
    """The position of a cursor: its next tick, when that fires, and how late it may still run."""

    next_tick: datetime | None
    fire_at: datetime | None
    grace: int


def read_document(document: dict[str, Any]) -> JobSpec:
    """A job from plain values, as a program passes it."""
    try:
        return msgspec.convert(document, JobSpec)
    except msgspec.ValidationError as error:
        raise refused(error, document, JobSpec) from error


class Timing(NamedTuple):
    """A parsed schedule with its stored form: the same for every job that has it."""

    schedule: Schedule
    stored: str
    digest: bytes
    warnings: list[str]


class Timings:
    """Parsed schedules of jobs that are registered together: most jobs share a few. Each job may cost `each` steps, and
    all of them together `whole`."""

    def __init__(self, whole: Steps | None = None, each: float = QUESTION_STEPS) -> None:
        self._steps = Steps(each, "find its next tick", whole)
        self._timings: dict[object, Timing] = {}
        self._key_warnings: dict[object, list[str]] = {}
        self._places: dict[tuple[int, int, datetime], tuple[Schedule, CursorPlace]] = {}

    def of(self, spec: JobSpec, tenant: int, created_at: datetime) -> Timing:
        written = spec.schedule if isinstance(spec.schedule, str | None) else msgspec.json.encode(spec.schedule)
        key = (
            *(written, spec.timezone, created_at, spec.dst_gap, spec.dst_overlap, spec.day_match, spec.dialect),
            *(spec.starts_at, spec.ends_at, spec.jitter_seconds, spec.tzdata_policy),
            spec.priority if spec.release == "staggered" else None,
        )
        found = self._timings.get(key)
        self._steps.spent = 0
        if found is None:
            found = _timing(schedule_of(spec, tenant, created_at, self._steps, new=True), created_at)
            if found.schedule.kind not in ("cron", COMBINED) or spec.schedule is None or not may_hash(spec.schedule):
                self._timings[key] = found
        return found

    def key_warnings(self, spec: JobSpec, timing: Timing, since: datetime) -> list[str]:
        template = spec.idempotency_key_template
        if template is None:
            return []
        key = (template, spec.timezone, timing.digest, timing.schedule.anchor, since)
        if key not in self._key_warnings:
            self._key_warnings[key] = _key_warnings(template, spec.timezone, timing.schedule, since)
        return self._key_warnings[key]

    def place(self, job: PreparedJob, now: datetime) -> CursorPlace:
        """As `place`, for a new job."""
        key = (id(job.schedule), job.grace, now)
        found = self._places.get(key)
        if found is not None:
            return found[1]
        self._steps.spent = 0
        where = place(job, now)
        if job.schedule.at is None and where.fire_at == where.next_tick and not job.schedule.spreads:
            self._places[key] = job.schedule, where  # with the schedule, so that its id stays its own
        return where


def prepare(
    spec: JobSpec,
    job_id: UUID,
    number: int,
    created_at: datetime,
    *,
    tenant: int = DEFAULT_TENANT,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    timings: Timings | None = None,
) -> PreparedJob:
    """The rows of a job, or a UsageError; `timings` is shared by the jobs of one registration."""
    timings = timings or Timings()
    spec, definition = _read(spec, max_payload_bytes)
    _check_parts(spec)
    if spec.starts_at is not None or spec.ends_at is not None:
        spec = _changed(spec, starts_at=_utc(spec.starts_at, "starts_at"), ends_at=_utc(spec.ends_at, "ends_at"))
        definition = b""
    name = spec.name or f"job-{job_id.hex[-16:]}"
    if spec.name is None:
        spec = _changed(spec, name=name)
        definition = b""
    timing = timings.of(spec, tenant, created_at)
    # A zone inside the schedule, CRON_TZ or TZID, becomes the job's zone: both places then say the same.
    if spec.timezone != timing.schedule.timezone:
        spec = _changed(spec, timezone=timing.schedule.timezone)
        definition = b""
    check_concurrency(spec, name)
    definition = definition or msgspec.json.encode(spec)
    return PreparedJob(
        job_id=job_id,
        number=number,
        spec=spec,
        schedule=timing.schedule,
        name=name,
        partition=partition_of(job_id),
        target=kind_of(spec.target),
        needs=needs_of(spec.target) if spec.schedule is not None else f"{TASK_NEEDS}{needs_of(spec.target)}",
        definition=_stored(definition),
        stored=timing.stored,
        digest=timing.digest,
        grace=AUTOMATIC if spec.misfire_grace_seconds == "auto" else spec.misfire_grace_seconds,
        missed=MISSED[spec.missed_window],
        max_missed=spec.max_missed,
        lanes=lanes_of(spec),
        once=spec.delivery == "at_most_once",
        warnings=[
            *timing.warnings,
            *timings.key_warnings(spec, timing, created_at),
            *literal_warnings(spec.target),
            *template_warnings(spec),
        ],
        secrets=check_references(spec, definition),
    )


_changed = msgspec.structs.replace


def _stored(definition: bytes) -> str:
    """Without the last fields where they have their defaults: nodes of versions without them then read the job."""
    text = definition.decode()
    for tail in (_UNCHECKED, _NOT_FORWARDED, _RETRIED, _UNLIMITED, _UNSIGNED):
        if not text.endswith(tail):
            break
        text = f"{text[: -len(tail)]}}}"
    return text


def lanes_of(spec: JobSpec) -> int:
    """How many runs at once, as column `lanes` of cursors; below zero: the lane in which one waits."""
    if spec.concurrent_policy == "ALLOW":
        return spec.max_concurrent
    return WAITING_LANES.get(spec.concurrent_policy, 1)


def _timing(schedule: Schedule, since: datetime) -> Timing:
    check_spread(schedule, since)
    stored = msgspec.json.encode(schedule.to_stored(), order="deterministic")
    return Timing(schedule, stored.decode(), hashlib.sha256(stored).digest(), cautions(schedule))


def place(job: PreparedJob, now: datetime, last_tick: datetime | None = None) -> CursorPlace:
    """The next tick after `now` and after the last fired one; a UsageError when there is none. A task has none."""
    if job.schedule.never:
        return cursor_at(job, None)
    at = job.schedule.at
    if at is not None and at <= now:
        return _place_in_the_past(job, at, now, last_tick)
    tick = next_tick(job.schedule, now, last_tick)
    if tick is None:
        raise UsageError(_no_tick(job.spec, now), "/ends_at" if job.spec.ends_at else "/schedule")
    return cursor_at(job, tick)


def cursor_at(job: PreparedJob, tick: datetime | None) -> CursorPlace:
    if tick is None:
        return CursorPlace(None, None, job.grace)
    return CursorPlace(tick, tick + job.schedule.jitter(job.number, tick), job.grace)


def next_tick(schedule: Schedule, now: datetime, last_tick: datetime | None) -> datetime | None:
    return schedule.first_after(now if last_tick is None else max(now, last_tick))


def _place_in_the_past(job: PreparedJob, at: datetime, now: datetime, last_tick: datetime | None) -> CursorPlace:
    if not job.spec.allow_past:
        raise UsageError(
            f"The instant {at.isoformat().replace('+00:00', 'Z')} is in the past: give a later one, "
            "or set allow_past to true to run it now.",
            "/schedule/at" if isinstance(job.spec.schedule, dict) else "/schedule",
        )
    if last_tick is not None and at <= last_tick:
        at = max(whole_milliseconds(now), last_tick + timedelta(milliseconds=1))
    # The user allowed a past instant, so its grace counts from now.
    grace = SHORTEST_GRACE.total_seconds() if job.grace == AUTOMATIC else job.grace
    late = max((now - at).total_seconds(), 0)
    return CursorPlace(at, at, min(int(late + grace) + 1, LONGEST_GRACE))


def _read(spec: JobSpec, max_payload_bytes: int) -> tuple[JobSpec, bytes]:
    """The document decoded again from JSON, because a program may have built it with any value in any field; and that
    JSON.

    If the result is equal and its bytes pass looks_sound, no further check is needed."""
    try:
        encoded = msgspec.json.encode(spec)
        again = _DECODER.decode(encoded)
    except (msgspec.ValidationError, TypeError, ValueError, OverflowError, RecursionError):
        again, encoded = _read_closely(spec)
    else:
        if again != spec or not looks_sound(encoded):
            again, encoded = _read_closely(spec)
    if len(encoded) > min(max_payload_bytes, MAX_REST_BYTES):
        check_size(plain(again), max_payload_bytes)
    return again, encoded


def _read_closely(spec: JobSpec) -> tuple[JobSpec, bytes]:
    document = plain(spec)
    check_text(document)
    try:
        spec = _DECODER.decode(msgspec.json.encode(document))
    except msgspec.ValidationError as error:
        raise refused(error, document, JobSpec) from error
    return spec, msgspec.json.encode(spec)


def _check_parts(spec: JobSpec) -> None:
    check_names(spec)
    check_task(spec)
    check_delay(spec)
    check_schema_of(spec)
    check_expectations(spec)
    if spec.signing is not None and not isinstance(spec.target, HttpTarget):
        raise UsageError("signing is given, but only HTTP calls are signed: remove it.", "/signing")
    try:
        check_target(spec.target)
        if isinstance(spec.target, TopicTarget):
            check_message_size(spec.target, len(msgspec.json.encode(spec.payload)))
        check_task_payload(spec)
    except TargetError as error:
        raise UsageError(error.message, error.pointer) from error
    if spec.dead_letter_topic is not None:
        check_dead_letter_topic(spec.dead_letter_topic)


def check_dead_letter_topic(topic: TopicTarget) -> None:
    try:
        check_target(topic)
    except TargetError as error:
        pointer = f"/dead_letter_topic{error.pointer.removeprefix('/target')}"
        raise UsageError(error.message, pointer) from error
    for name in literal_secrets(topic):
        raise UsageError(
            f"The header {name} is given as plain text; store its value with `detent secret set NAME`, and write "
            '{"secret": "NAME"}.',
            pointer_to("dead_letter_topic", "headers", name),
        )


def _utc(moment: datetime | None, field: str) -> datetime | None:
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise UsageError(
            f"{field} is {moment.isoformat()}, without a zone: write it with an offset or Z, "
            f"such as {moment.isoformat()}Z.",
            f"/{field}",
        )
    return utc_instant(moment, field, f"/{field}")


def _no_tick(spec: JobSpec, now: datetime) -> str:
    if spec.ends_at is not None:
        end = f"{spec.ends_at:%Y-%m-%dT%H:%M:%SZ}"
        if spec.ends_at <= now:
            return f"ends_at is {end}, which is past: give a later one, or leave it out."
        return f"The schedule has no tick before ends_at, {end}: give a later one."
    return f"The schedule {shown(spec.schedule)} has no tick left: give one that ticks in the future."


def _key_warnings(template: str, timezone: str, schedule: Schedule, since: datetime) -> list[str]:
    try:
        return check_key_template(template, schedule, timezone, since)
    except ScheduleError as error:
        raise UsageError(error.message, error.pointer or "/idempotency_key_template") from error
