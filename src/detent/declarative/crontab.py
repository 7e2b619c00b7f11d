"""Imports a crontab: a job for every line that can be one, and a sentence for every line.

cron and detent differ, and the import states each difference once: cron never retries and never ends a command, so
imported jobs have no retries and a timeout of a day; cron reads schedules in the zone of its machine, so imported jobs
have that zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal, NamedTuple

from detent.declarative.check import check
from detent.declarative.crontab_lines import CronJob, CronLine, read_crontab
from detent.declarative.crontab_names import name_for
from detent.declarative.crontab_target import hints, target_for
from detent.declarative.jobs_file import Declared
from detent.domain.registration import PreparedJob
from detent.domain.schedule import ScheduleError
from detent.domain.schedule.cron_fields import HASHED
from detent.domain.schedule.zones import load_zone
from detent.errors import UsageError

TIMEOUT_SECONDS = 86_400
LONGEST_TAG = 200
ABOUT_MAIL = frozenset({"MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING"})
MACROS = {"@every_minute": "* * * * *", "@every_second": "every 1s"}

_RANDOM = re.compile(r"(\d*)~(\d*)(/\d+)?")
_SECONDS = re.compile(r"@(\d+)")
_HEADING = re.compile(r"\bdom\b.*\bdow\b|^[-=*~.:|\s]*$")  # of the columns, or a line drawn
_BACKWARDS = re.compile(r"\b(\d+)-(\d+)\b")

What = Literal["job", "setting", "comment", "off", "refused", "blank"]


class ImportOptions(NamedTuple):
    """`timezone` is that of the machine the crontab is from; `url` makes http jobs, with {name} filled in."""

    timezone: str
    user_column: bool = False
    url: str | None = None
    prefix: str = ""
    owner: str | None = None
    queue: str | None = None


class ImportVerdict(NamedTuple):
    """One line of the crontab and its result: the first sentence states it, the others are remarks."""

    line: CronLine
    what: What
    sentences: list[str]
    job: Declared | None = None


class Translation(NamedTuple):
    verdicts: list[ImportVerdict]
    notes: list[str]

    @property
    def jobs(self) -> list[Declared]:
        return [verdict.job for verdict in self.verdicts if verdict.job is not None]

    @property
    def refused(self) -> list[ImportVerdict]:
        return [verdict for verdict in self.verdicts if verdict.what == "refused"]


def translate(source: str, text: str, options: ImportOptions, now: datetime) -> Translation:
    translator = _Translator(source, options, now)
    verdicts = [translator.verdict(line) for line in read_crontab(text, user_column=options.user_column)]
    if text and not text.endswith("\n") and verdicts[-1].what == "job":
        verdicts[-1].sentences.append(
            "The file does not end with a newline, so cron itself may have ignored this line."
        )
    return Translation(verdicts, list(_notes(options, verdicts)))


def _notes(options: ImportOptions, verdicts: list[ImportVerdict]) -> Iterator[str]:
    jobs = [verdict for verdict in verdicts if verdict.job is not None]
    if not jobs:
        return
    yield "Jobs have no retries and a timeout of a day, as cron has neither: change max_retries and timeout_seconds."
    yield "While a run is not over, detent skips the next tick; cron would start a second one (concurrent_policy)."
    if options.url is None:
        yield "They are shell jobs: they run only on workers started with --allow-shell, as the user of that worker."
        yield "A command starts in its own empty folder, not in the home folder: use absolute paths."


class _Translator:
    def __init__(self, source: str, options: ImportOptions, now: datetime) -> None:
        self._source = source
        self._options = options
        self._now = now
        self._zone: str | None = options.timezone
        self._shell = "/bin/sh"
        self._env: dict[str, str] = {}
        self._jitter = 0
        self._comments: list[ImportVerdict] = []  # that stand right above
        self._names: set[str] = set()

    def verdict(self, line: CronLine) -> ImportVerdict:
        comments, self._comments = self._comments, []
        match line.kind:
            case "comment":
                said = ImportVerdict(line, "comment", ["A comment."])
                heading = not line.value or _HEADING.search(line.value)
                self._comments = comments if heading else [*comments, said]
                return said
            case "blank":
                return ImportVerdict(line, "blank", [])
            case "off":
                return ImportVerdict(line, "off", ["A job that is commented out: not imported."])
            case "setting":
                self._comments = comments
                return self._setting(line)
            case "refused":
                return ImportVerdict(line, "refused", [f"{line.value}: not imported."])
        assert line.job is not None
        return self._job(line, line.job, comments)

    # -- settings

    def _setting(self, line: CronLine) -> ImportVerdict:
        name, value = line.name, line.value
        if name == "CRON_TZ":
            return self._cron_tz(line, value)
        if name in ABOUT_MAIL:
            sentence = "Mail is not sent: the output of each run is kept with it (`detent run get`)."
            return ImportVerdict(line, "setting", [sentence])
        if name == "RANDOM_DELAY":
            self._jitter = int(value) * 60 if value.isdecimal() else 0
            return ImportVerdict(
                line, "setting", [f"Jobs below are delayed by up to {self._jitter} s (jitter_seconds)."]
            )
        if name == "SHELL":
            self._shell = value or "/bin/sh"
            return ImportVerdict(line, "setting", [f"Commands below are run by {self._shell}."])
        self._env[name] = value
        sentences = [f"A variable of the commands below: {name}."]
        if name == "TZ":
            sentences.append("It is for the commands; cron does not read schedules by it (CRON_TZ does that).")
        if name == "HOME":
            sentences.append("cron also starts commands in that folder; detent does not: use whole paths, or cd.")
        if "$" in value:
            sentences.append("cron does not replace $ in a setting, and neither does detent: it is passed unchanged.")
        return ImportVerdict(line, "setting", sentences)

    def _cron_tz(self, line: CronLine, value: str) -> ImportVerdict:
        try:
            self._zone = load_zone(value).name if value else self._options.timezone
        except ScheduleError as error:
            self._zone = None
            return ImportVerdict(line, "refused", [error.message, "Jobs below cannot be read without their zone."])
        return ImportVerdict(line, "setting", [f"Schedules below are read in {self._zone}."])

    # -- jobs

    def _job(self, line: CronLine, job: CronJob, comments: list[ImportVerdict]) -> ImportVerdict:
        if job.schedule.lower() == "@reboot":
            advice = "start it with the machine, for instance as a systemd unit."
            return ImportVerdict(line, "refused", [f"It runs when a machine starts, which is not a schedule: {advice}"])
        if self._zone is None:
            return ImportVerdict(line, "refused", ["Its zone, set by CRON_TZ above, is not known: not imported."])
        remarks: list[str] = []
        document = self._document(line, job, comments, remarks)
        try:
            prepared = self._checked(document, job, remarks)
        except UsageError as error:
            return ImportVerdict(line, "refused", [error.message])
        self._names.add(document["name"])
        for comment in comments:
            comment.sentences[:] = [f"A comment, kept as a tag of {document['name']}."]
        declared = Declared(self._source, line.number, self._options.owner, document, prepared.spec, prepared.warnings)
        first = f"{document['name']}: {self._described(prepared, document)}"
        return ImportVerdict(line, "job", [first, *remarks, *hints(job), *prepared.warnings], declared)

    def _document(
        self, line: CronLine, job: CronJob, comments: list[ImportVerdict], remarks: list[str]
    ) -> dict[str, Any]:
        name = self._unique(self._options.prefix + name_for(job.command, f"line-{line.number}"))
        document: dict[str, Any] = {"name": name, "schedule": self._schedule(job.schedule, remarks)}
        if self._zone != "UTC":
            document["timezone"] = self._zone
        document |= target_for(job, self._shell, self._env, name, self._options.url, remarks)
        document |= {"tags": _tags(job, comments), "timeout_seconds": TIMEOUT_SECONDS, "max_retries": 0}
        if self._options.queue:
            document["queue"] = self._options.queue
        if self._jitter:
            document["jitter_seconds"] = self._jitter
        if job.user is not None and self._options.url is None:
            remarks.append(f"cron runs it as {job.user}; detent runs it as the user of the worker.")
        return document

    def _unique(self, name: str) -> str:
        found, number = name, 1
        while found in self._names:
            number += 1
            found = f"{name}-{number}"
        return found

    def _schedule(self, text: str, remarks: list[str]) -> str:
        seconds = _SECONDS.fullmatch(text)
        if seconds:
            return f"every {seconds[1]}s"
        if text.lower() in MACROS:
            return MACROS[text.lower()]
        if "~" in text:
            text = _RANDOM.sub(lambda found: _hashed(found[1], found[2], found[3]), text)
            remarks.append("The random time (~) becomes H: chosen once from the job, the same after every restart.")
        if any(int(low) > int(high) for low, high in _BACKWARDS.findall(text)):
            remarks.append("cron programs refuse a range that runs backwards, so this line may never have run there.")
        return text

    def _checked(self, document: dict[str, Any], job: CronJob, remarks: list[str]) -> PreparedJob:
        """Check the job, and add the options that cron implies."""
        try:
            return check(document, self._now)
        except UsageError as error:
            if error.pointer == "/day_match":
                document["day_match"] = _day_match(job.schedule, remarks)
            elif error.pointer == "/jitter_seconds":
                del document["jitter_seconds"]
                remarks.append("RANDOM_DELAY is longer than the time between two ticks: left out here.")
            else:
                raise
        return self._checked(document, job, remarks)

    def _described(self, prepared: PreparedJob, document: dict[str, Any]) -> str:
        schedule = prepared.schedule
        words = f"{schedule.describe()} ({schedule.timezone})"
        if HASHED.search(str(document["schedule"])):  # its time is chosen when the job is registered
            return f"{document['schedule']} ({schedule.timezone})"
        tick = schedule.first_after(self._now)
        if tick is None:
            return words
        return f"{words}, next {tick.astimezone(schedule.zone.info):%a %Y-%m-%d %H:%M}"


def _tags(job: CronJob, comments: list[ImportVerdict]) -> list[str]:
    tags = ["crontab"]
    if job.user is not None:
        tags.append(f"user:{job.user}")
    said = " ".join(" ".join(comment.line.value for comment in comments).split())
    said = "".join(character for character in said if character.isprintable())[:LONGEST_TAG].strip()
    return [*tags, said] if said and said not in tags else tags


def _hashed(low: str, high: str, step: str | None) -> str:
    if not low and not high and not step:
        return "H"
    return f"H({low or 0}-{high or 59}){step or ''}"


def _day_match(schedule: str, remarks: list[str]) -> str:
    """As cron does: either day, unless one of the two fields begins with a star."""
    month_day, week_day = schedule.split()[2], schedule.split()[4]
    if month_day.startswith("*") or week_day.startswith("*"):
        remarks.append(
            f"Both day fields are restricted ({month_day} and {week_day}) and one begins with *: "
            "cron then wants days that are both (day_match: and)."
        )
        return "and"
    remarks.append(
        f"Both day fields are restricted ({month_day} and {week_day}): cron runs it on days that are either "
        "(day_match: or), which is more often than it seems. For days that are both, change it to and."
    )
    return "or"
