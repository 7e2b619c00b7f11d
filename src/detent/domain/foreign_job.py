"""Jobs in the words of other schedulers, and of what is written about them: the same job in the words of detent.

Nothing is registered from such a document. Its sender gets the document that detent reads, complete and checked, and
decides. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from detent.domain.job import JobSpec
from detent.domain.refusal import pointer_to
from detent.domain.registration import Timings, prepare, read_document
from detent.domain.schedule import ScheduleError
from detent.domain.schedule.interval import parse_every
from detent.errors import UsageError

NO_JOB = UUID(int=0)
PLACEHOLDER = "https://example.com/your-handler"
MAX_FIELDS = 100
MAX_STEPS = 2_000
"""Of computing the ticks: who sends such a document may be nobody's user."""

RENAMED = {
    **dict.fromkeys(("cron_expression", "cron_expr", "schedule_expr", "schedule_expression", "cron"), "schedule"),
    **dict.fromkeys(("schedule_time", "scheduled_time", "scheduled_at", "run_at", "execute_at"), "schedule"),
    **dict.fromkeys(("job_name", "title"), "name"),
    **dict.fromkeys(("tz", "time_zone"), "timezone"),
    **dict.fromkeys(("retries",), "max_retries"),
    **dict.fromkeys(("concurrency_policy",), "concurrent_policy"),
    **dict.fromkeys(("misfire_policy", "catch_up_policy", "missed_run_policy"), "missed_window"),
}
DURATIONS = {
    **dict.fromkeys(("timeout", "timeout_secs"), "timeout_seconds"),
    **dict.fromkeys(("misfire_grace", "misfire_threshold", "catch_up_window"), "misfire_grace_seconds"),
    **dict.fromkeys(("jitter", "jitter_window", "jitter_window_seconds"), "jitter_seconds"),
}
ADDRESSES = ("handler_endpoint", "handler_url", "target_url", "callback_url", "webhook_url", "endpoint", "url")
PARTS_OF_TARGET = {"method": "method", "http_method": "method", "headers": "headers"}
HANDLERS = ("handler_type", "handler")
CALLED_BY_ADDRESS = ("http", "https", "webhook", "url", "rest")
RETRIES = "retry_policy"
POLICIES = {
    **dict.fromkeys(("FORBID", "IGNORE"), "SKIP"),
    **dict.fromkeys(("FIRE_ALL", "CATCH_UP", "CATCHUP"), "RUN_ALL"),
    "FIRE_ONCE": "RUN_ONCE",
}
WHY_LEFT_OUT = {
    "tenant_id": "the key decides the tenant",
    "status": "a new job is active",
    **dict.fromkeys(("job_id", "id", "next_run_at", "last_run_at", "created_at", "updated_at"), "the server sets it"),
}
_FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[.:][A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)


class TranslatedJob(NamedTuple):
    """`document` is the job as detent reads it; `words` says what was renamed, what was left out and why, and when it
    runs; `pointer` is the first field that has another name, empty if none has."""

    document: dict[str, Any]
    words: str
    pointer: str


class UntranslatedJob(NamedTuple):
    """A job in other words of which no translation would be accepted. `renamed` says what its fields are here, empty
    if none has another name; `fault` is why detent refuses it, at a field of its own."""

    renamed: str
    fault: UsageError


def is_foreign(document: object) -> bool:
    """Whether a document that detent refuses looks like a job of another program: in other words, or with no target.
    Who knows `payload_schema` needs no translation, and its check would hold up the event loop."""
    if not isinstance(document, dict) or len(document) > MAX_FIELDS or "payload_schema" in document:
        return False
    if document.keys() & {*RENAMED, *DURATIONS, *ADDRESSES, *HANDLERS, RETRIES}:
        return True
    return "schedule" in document and "target" not in document and document.keys() <= {*JobSpec.__struct_fields__}


def translate_job(document: Mapping[str, Any], now: datetime) -> TranslatedJob | UntranslatedJob:
    """Untranslated: the schedule or the target cannot be read, so no document would be accepted."""
    translation = _Translation(document)
    first: UsageError | None = None
    for variant in _readings(translation.job):
        checked = _checked(variant, now)
        if isinstance(checked, _Checked):
            return TranslatedJob(checked.job, translation.words(checked), translation.pointer)
        first = first or checked  # of the schedule as it is written
        if _field_of(checked) == "target":
            break  # no reading of the schedule changes that
    assert first is not None, "there is one reading at least"
    return UntranslatedJob(translation.renames(translation.job), translation.located(first))


def native_fault(document: object, now: datetime) -> UsageError | None:
    """Why detent refuses a document that is in its own words, or in none that it knows; None: it does not."""
    if not isinstance(document, dict):
        return UsageError("The body is not an object: send a JSON object.")
    if "payload_schema" in document:
        return None  # its check may be long
    try:
        prepare(read_document(document), NO_JOB, 0, now, timings=Timings(each=MAX_STEPS))
    except UsageError as error:
        return error
    return None


class _Checked(NamedTuple):
    """A job that can be registered, the fields that were taken out of it, and its schedule in words."""

    job: dict[str, Any]
    refused: list[str]
    description: str


class _Translation:
    """Goes through the fields of a foreign document once."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.renamed: dict[str, str] = {}
        self.left_out: list[str] = []
        self.job: dict[str, Any] = {}
        for field, value in document.items():
            self._take(field, value)
        if "target" not in self.job:
            self.job["target"] = self._target(document)
        self.pointer = _pointer(next(iter(self.renamed))) if self.renamed else ""

    def _take(self, field: str, value: Any) -> None:
        if field in JobSpec.__struct_fields__:
            self.job[field] = _policy(value) if field in ("concurrent_policy", "missed_window") else value
        elif (ours := RENAMED.get(field)) is not None and ours not in self.job:
            self._rename(field, ours, _policy(value) if ours in ("concurrent_policy", "missed_window") else value)
        elif (ours := DURATIONS.get(field)) is not None and (seconds := _seconds(value)) is not None:
            self._rename(field, ours, seconds)
        elif field == RETRIES and isinstance(value, dict):
            self._take_retries(value)
        elif field not in (*ADDRESSES, *HANDLERS, *PARTS_OF_TARGET):
            self.left_out.append(field)

    def _take_retries(self, policy: Mapping[str, Any]) -> None:
        for part, value in policy.items():
            field = f"{RETRIES}.{part}"
            if part == "max_retries" and "max_retries" not in self.job:
                self._rename(field, "max_retries", value)
            elif part == "max_attempts" and type(value) is int and value > 0 and "max_retries" not in self.job:
                self._rename(field, "max_retries", value - 1)
                self.renamed[field] = "max_retries + 1"
            elif part in ("backoff", "retry_backoff") and isinstance(value, str) and "retry_backoff" not in self.job:
                self._rename(field, "retry_backoff", value.lower())
            else:
                self.left_out.append(field)

    def _rename(self, field: str, ours: str, value: Any) -> None:
        self.job[ours] = value
        self.renamed[field] = ours

    def _target(self, document: Mapping[str, Any]) -> dict[str, Any]:
        for field in ADDRESSES:
            if isinstance(address := document.get(field), str) and address.strip():
                self.renamed[field] = "target.url"
                target = {"type": "http", "url": _url(address.strip())}
                return target | {ours: document[name] for name, ours in PARTS_OF_TARGET.items() if document.get(name)}
        for field in HANDLERS:
            handler = document.get(field)
            if isinstance(handler, str) and handler.lower() not in CALLED_BY_ADDRESS and _FUNCTION.fullmatch(handler):
                self.renamed[field] = "target.function"
                return {"type": "python", "function": handler if ":" in handler else f"handlers:{handler}"}
        self.left_out += [field for field in (*ADDRESSES, *HANDLERS) if field in document]
        return {"type": "http", "url": PLACEHOLDER}

    def renames(self, job: Mapping[str, Any]) -> str:
        """What the fields are here that are in the job."""
        ours = [f"{field} is {name}" for field, name in self.renamed.items() if _first_word(name) in job]
        return f"here {', '.join(ours)}" if ours else ""

    def located(self, fault: UsageError) -> UsageError:
        """The fault at the field as its sender calls it."""
        field = _field_of(fault)
        theirs = [name for name, ours in self.renamed.items() if _first_word(ours) == field]
        return UsageError(fault.message, _pointer(theirs[0])) if theirs else fault

    def words(self, checked: _Checked) -> str:
        job = checked.job
        renames = self.renames(job)
        said = [renames] if renames else []
        if job["target"].get("url") == PLACEHOLDER:
            said.append("a target is missing, for which the translation has a placeholder")
        if left_out := [*self.left_out, *checked.refused]:
            listed = ", ".join(_with_reason(field) for field in left_out[:10])
            said.append(f"left out: {listed}")
        said.append(f"it runs {checked.description[0].lower()}{checked.description[1:]}")
        return "; ".join(said)


def _readings(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """As written, then in the dialects of others, then with the day rule of Unix cron."""
    yield job
    if isinstance(job.get("schedule"), str) and job.keys().isdisjoint({"dialect", "day_match"}):
        yield job | {"dialect": "quartz"}
        yield job | {"dialect": "aws"}
        yield job | {"day_match": "or"}


def _checked(job: dict[str, Any], now: datetime) -> _Checked | UsageError:
    """The job without the fields whose values are refused; or the fault in one that it cannot do without."""
    job, refused = dict(job), list[str]()
    while True:
        try:
            made = prepare(read_document(job), NO_JOB, 0, now, timings=Timings(each=MAX_STEPS))
        except UsageError as error:
            field = _field_of(error)
            if field in ("schedule", "target", "day_match", "dialect", "") or job.pop(field, None) is None:
                return error
            refused.append(field)
        else:
            return _Checked(job, refused, made.schedule.describe())


def _field_of(fault: UsageError) -> str:
    return fault.pointer.split("/")[1] if fault.pointer else ""


def _first_word(name: str) -> str:
    """The field of a job in `target.url` or `max_retries + 1`."""
    return re.split(r"[. ]", name, maxsplit=1)[0]


def _pointer(name: str) -> str:
    """To a foreign field; `retry_policy.backoff` is a part."""
    return pointer_to(*name.split("."))


def _policy(value: Any) -> Any:
    upper = value.upper() if isinstance(value, str) else value
    return POLICIES.get(upper, upper) if isinstance(upper, str) else value


def _seconds(value: Any) -> float | None:
    try:
        seconds = parse_every(value) / 1000
    except ScheduleError:
        return None
    return int(seconds) if seconds == int(seconds) else seconds


def _url(address: str) -> str:
    if re.match(r"https?://", address, re.IGNORECASE):
        return address
    return f"https://example.com{address}" if address.startswith("/") else f"https://{address}"


def _with_reason(field: str) -> str:
    why = WHY_LEFT_OUT.get(field)
    shown = field if len(field) <= 40 else f"{field[:39]}…"
    return shown if why is None else f"{shown} ({why})"
