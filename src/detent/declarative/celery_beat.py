"""Imports the schedule of Celery beat: a job for every entry that can be one, and a sentence for every entry.

An entry is the same whether an app, a table of django-celery-beat or a key of RedBeat has it. What differs between beat
and detent is reported with the entry, or once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from detent.declarative.beat_crontab import BeatCrontab
from detent.declarative.check import check
from detent.declarative.crontab import ImportVerdict, Translation
from detent.declarative.crontab_lines import CronLine
from detent.declarative.jobs_file import Declared
from detent.domain.registration import PreparedJob
from detent.domain.schedule.interval import format_every
from detent.errors import UsageError

TARGET_OPTIONS = ("queue", "priority", "expires")
SILENT_OPTIONS = frozenset({*TARGET_OPTIONS, "producer", "add_to_parent"})


class BeatInterval(NamedTuple):
    seconds: float
    relative: bool = False


class BeatEntry(NamedTuple):
    """`schedule`: an instant, or why there is none that can be imported."""

    name: str
    task: str
    schedule: BeatCrontab | BeatInterval | datetime | str
    timezone: str | None = None
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    options: Mapping[str, Any] = {}
    enabled: bool = True
    one_off: bool = False
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    remarks: Sequence[str] = ()


class BeatOptions(NamedTuple):
    """`target`: the part of every target that says where tasks are sent. `timezone`: of entries without one."""

    target: Mapping[str, Any]
    timezone: str
    prefix: str = ""
    owner: str | None = None
    queue: str | None = None


class BeatTranslation(NamedTuple):
    translation: Translation
    paused: frozenset[str]
    """The jobs that are disabled in beat."""


def translate_beat(entries: Sequence[BeatEntry], options: BeatOptions, now: datetime) -> BeatTranslation:
    verdicts: list[ImportVerdict] = []
    paused: set[str] = set()
    for number, entry in enumerate(entries, 1):
        verdict = _verdict(CronLine(number, _text(entry), "job"), entry, options, now)
        if verdict.job is not None and not entry.enabled:
            paused.add(verdict.job.name)
        verdicts.append(verdict)
    jobs = any(verdict.job is not None for verdict in verdicts)
    return BeatTranslation(Translation(verdicts, list(_notes(options)) if jobs else []), frozenset(paused))


def _notes(options: BeatOptions) -> Iterator[str]:
    yield "A message that the broker does not take is retried (max_retries); a task that fails is not."
    yield "While a run is not over, detent skips the next tick (concurrent_policy); beat sends it all the same."
    yield "What beat recorded (last_run_at, total_run_count) is not imported: the first tick is the next one from now."
    if app := options.target.get("app"):
        yield f"Runs need a worker that has the app: `detent worker --celery-apps {app}`."


def _text(entry: BeatEntry) -> str:
    return f"{entry.name}: {entry.task}"


def _verdict(line: CronLine, entry: BeatEntry, options: BeatOptions, now: datetime) -> ImportVerdict:
    if isinstance(entry.schedule, str):
        return ImportVerdict(line, "refused", [f"{entry.schedule} Not imported."])
    remarks = list(entry.remarks)
    try:
        document = _document(entry, options, remarks)
        prepared = check(document, now)
    except UsageError as error:
        return ImportVerdict(line, "refused", [f"{error.message} Not imported."])
    declared = Declared("celery-beat", line.number, options.owner, document, prepared.spec, prepared.warnings)
    first = f"{document['name']}: {_described(prepared, now)}"
    return ImportVerdict(line, "job", [first, *remarks, *prepared.warnings], declared)


def _document(entry: BeatEntry, options: BeatOptions, remarks: list[str]) -> dict[str, Any]:
    zone = entry.timezone or options.timezone
    document: dict[str, Any] = {"name": f"{options.prefix}{entry.name}", **_schedule(entry, remarks)}
    if zone != "UTC" and isinstance(entry.schedule, BeatCrontab):
        document["timezone"] = zone
    document["target"] = _target(entry, options, remarks)
    document["tags"] = ["celery-beat"]
    if options.queue:
        document["queue"] = options.queue
    for name, moment in (("starts_at", entry.starts_at), ("ends_at", entry.ends_at)):
        if moment is not None:
            document[name] = moment.isoformat()
    if entry.one_off:
        document["max_runs"] = 1
        remarks.append("It runs once (one_off becomes max_runs: 1).")
    if not entry.enabled:
        remarks.append("It is disabled in beat, so the job is paused.")
    return document


def _schedule(entry: BeatEntry, remarks: list[str]) -> dict[str, Any]:
    match entry.schedule:
        case BeatCrontab() as crontab:
            if not crontab.both_days:
                return {"schedule": crontab.cron}
            remarks.append("Both kinds of days are restricted: Celery requires days that fit both (day_match: and).")
            return {"schedule": crontab.cron, "day_match": "and"}
        case BeatInterval(seconds=seconds, relative=relative):
            milliseconds = round(seconds * 1000)
            if milliseconds <= 0:
                raise UsageError(f"The interval is {seconds:g} s, and a job needs at least a millisecond.")
            if relative:
                remarks.append("Beat rounds it to whole units of time (relative); detent counts from the import.")
            else:
                remarks.append("The interval is counted from the import, not from the last run or the start of beat.")
            return {"schedule": f"every {format_every(milliseconds)}"}
        case datetime() as moment:
            return {"schedule": {"at": moment.isoformat()}}
        case _:
            raise AssertionError(entry.schedule)


def _target(entry: BeatEntry, options: BeatOptions, remarks: list[str]) -> dict[str, Any]:
    target: dict[str, Any] = {"type": "celery", **options.target, "task": entry.task}
    if entry.args:
        target["args"] = list(entry.args)
    if entry.kwargs:
        target["kwargs"] = dict(entry.kwargs)
    for name in TARGET_OPTIONS:
        value = entry.options.get(name)
        if value is not None and isinstance(value, int | float | str):
            target[name] = value
        elif value is not None:
            remarks.append(f"The option {name} is {type(value).__name__}, which a job cannot have: left out.")
    left = sorted(set(entry.options) - SILENT_OPTIONS)
    if left:
        remarks.append(f"The options {', '.join(left)} are left out: give them to the task or its route in the app.")
    return target


def _described(prepared: PreparedJob, now: datetime) -> str:
    schedule = prepared.schedule
    words = f"{schedule.describe()} ({schedule.timezone})"
    tick = schedule.first_after(now)
    return words if tick is None else f"{words}, next {tick.astimezone(schedule.zone.info):%a %Y-%m-%d %H:%M:%S}"
