"""A file of jobs: `jobs`, a list; above it, if wanted, `owner` and `defaults`.

    owner: team-a
    defaults:
      timezone: Europe/Berlin
    jobs:
      - name: report
        schedule: "0 9 * * MON"
        target: {type: http, url: "https://example.org/report"}

A job's own field wins over the default of the same name. Everything is checked before anything is changed, and every
error names its file and line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from detent.declarative.check import all_faults, check
from detent.declarative.json_text import read_json
from detent.declarative.located import FileFault, LocatedValue, Path, Unreadable
from detent.declarative.toml_text import read_toml
from detent.domain.job import JobSpec
from detent.domain.refusal import nearest, shown
from detent.domain.registration import Timings
from detent.errors import UsageError

SUFFIXES = (".yaml", ".yml", ".json", ".toml")
TOP = ("jobs", "owner", "defaults", "$schema")
NOT_DEFAULTS = ("name",)
EXAMPLE = "write `jobs:` and below it a list of jobs, each with name, schedule and target"


class Declared(NamedTuple):
    """A job as a file declares it, and as it would be stored: with every default filled in."""

    source: str
    line: int
    owner: str | None
    document: dict[str, Any]
    spec: JobSpec
    warnings: list[str]

    @property
    def name(self) -> str:
        return str(self.spec.name)


class Named(NamedTuple):
    """The place of a job's name, even if the job is wrong."""

    source: str
    line: int
    name: str


class Read(NamedTuple):
    jobs: list[Declared]
    faults: list[FileFault]


def read_files(files: Iterable[tuple[str, str]], now: datetime) -> Read:
    """All jobs of all files (name, text), or every mistake in them."""
    jobs: list[Declared] = []
    names: list[Named] = []
    faults: list[FileFault] = []
    timings = Timings()
    for source, text in files:
        for marked in _documents(source, text, faults):
            reader = _File(source, marked, now, timings)
            jobs += reader.jobs()
            faults += reader.faults
            names += reader.names
    faults += _twice(names)
    return Read(jobs, sorted(dict.fromkeys(faults)))


def _documents(source: str, text: str, faults: list[FileFault]) -> list[LocatedValue]:
    try:
        if source.endswith(".json"):
            return [read_json(text)]
        if source.endswith(".toml"):
            return [read_toml(text)]
        from detent.declarative.yaml_text import read_yaml

        return read_yaml(text) or [LocatedValue(None, {})]
    except Unreadable as error:
        faults.append(FileFault(source, error.line, error.message))
        return []


def _twice(names: Iterable[Named]) -> Iterator[FileFault]:
    first: dict[str, Named] = {}
    for one in names:
        other = first.setdefault(one.name, one)
        if other is not one:
            where = f"on line {other.line}" if other.source == one.source else f"at {other.source}:{other.line}"
            sentence = f"The name {shown(one.name)} is also used by the job {where}: names must be unique."
            yield FileFault(one.source, one.line, sentence)


class _File:
    def __init__(self, source: str, marked: LocatedValue, now: datetime, timings: Timings) -> None:
        self._source = source
        self._marked = marked
        self._now = now
        self._timings = timings
        self.names: list[Named] = []
        self.faults = [FileFault(source, line, message) for line, message in marked.faults]

    def jobs(self) -> list[Declared]:
        top = self._marked.value
        if not isinstance(top, dict):
            self._fault((), f"The file holds {shown(top)}: {EXAMPLE}.")
            return []
        for key in top:
            if key not in TOP:
                near = nearest(key, TOP)
                self._fault(
                    (key,), f"The file has no field {shown(key)}: {f'did you mean {near}?' if near else EXAMPLE}"
                )
        entries = top.get("jobs")
        if not isinstance(entries, list):
            what = f"jobs is {shown(entries)}" if "jobs" in top else "The file has no jobs"
            self._fault(("jobs",), f"{what}: {EXAMPLE}.")
            return []
        owner, defaults = self._owner(top.get("owner")), self._defaults(top.get("defaults"))
        found = [self._job(index, entry, owner, defaults) for index, entry in enumerate(entries)]
        return [job for job in found if job is not None]

    def _owner(self, owner: Any) -> str | None:
        if owner is None:
            return None
        try:
            return check_owner(owner)
        except UsageError as error:
            self._fault(("owner",), error.message)
            return None

    def _defaults(self, defaults: Any) -> dict[str, Any]:
        if defaults is None:
            return {}
        if not isinstance(defaults, dict):
            self._fault(("defaults",), f"defaults is {shown(defaults)}: write fields of a job below it.")
            return {}
        for key in NOT_DEFAULTS:
            if key in defaults:
                self._fault(("defaults", key), f"{key} cannot be a default: every job has its own.")
        return {key: value for key, value in defaults.items() if key not in NOT_DEFAULTS}

    def _job(self, index: int, entry: Any, owner: str | None, defaults: dict[str, Any]) -> Declared | None:
        where: Path = ("jobs", index)
        if not isinstance(entry, dict):
            self._fault(where, f"The job is {shown(entry)}: write name, schedule and target below the dash.")
            return None
        document = {**defaults, **entry}
        line = self._marked.line((*where, "name"))
        if isinstance(entry.get("name"), str):
            self.names.append(Named(self._source, line, entry["name"]))
        try:
            made = check(document, self._now, self._timings)
        except UsageError:
            for path, message in all_faults(document, self._now):
                if path == ("day_match",) and "day_match" not in document:
                    path = ("schedule",)  # what asks for it
                in_defaults = bool(path) and path[0] in defaults and path[0] not in entry
                self._fault(("defaults", *path) if in_defaults else (*where, *path), message)
            return None
        return Declared(self._source, line, owner, document, made.spec, made.warnings)

    def _fault(self, path: Path, message: str) -> None:
        self.faults.append(FileFault(self._source, self._marked.line(path), message))


def check_owner(owner: Any) -> str:
    """The label, or a UsageError."""
    if not isinstance(owner, str) or not 1 <= len(owner) <= 200 or not owner.isprintable() or owner != owner.strip():
        raise UsageError(f"owner is {shown(owner)}: give a label of 1 to 200 characters, such as team-a.")
    return owner
