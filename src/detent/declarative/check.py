"""Every mistake of one job, not only the first.

Reading a job stops at the first mistake and names its place with a JSON pointer. So the mistake is recorded, its place
is replaced with a harmless value, and the job is read again, until it is valid. When the same place is refused twice,
the replacement moves one level up, so the loop ends.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from detent.declarative.located import Path, resolve
from detent.domain.documents import check_text
from detent.domain.job import JobSpec
from detent.domain.refusal import nearest, refused
from detent.domain.registration import PreparedJob, Timings, prepare
from detent.errors import UsageError

NO_JOB = UUID(int=0)
MAX_FAULTS = 500

_HARMLESS: dict[Path, Any] = {
    ("schedule",): "0 0 * * *",
    ("target",): {"type": "http", "url": "https://example.org/"},
    ("target", "url"): "https://example.org/",
    ("target", "function"): "module:name",
    ("target", "command"): "true",
    ("name",): "job",
}


def check(document: dict[str, Any], now: datetime, timings: Timings | None = None) -> PreparedJob:
    """The job as it would be stored; raises UsageError with the place of the first mistake. `timings` caches parsed
    schedules, which many jobs share."""
    check_text(document)
    try:
        spec = msgspec.convert(document, JobSpec)
    except msgspec.ValidationError as error:
        raise refused(error, document, JobSpec) from error
    if spec.name is None:
        raise UsageError("The job has no name: give it one, which identifies it in later runs of apply.", "/name")
    return prepare(spec, NO_JOB, 0, now, timings=timings)


def all_faults(document: dict[str, Any], now: datetime) -> Iterator[tuple[Path, str]]:
    """Each mistake with the path of the part that is wrong."""
    corrected = copy.deepcopy(document)
    seen: set[Path] = set()
    written: dict[str | int, str | int] = {}  # from the corrected name of a field to its name in the document
    for _ in range(MAX_FAULTS):
        try:
            check(corrected, now)
        except UsageError as error:
            path = resolve(corrected, error.pointer)
            yield (written.get(path[0], path[0]), *path[1:]) if path else (), error.message
            if meant := _meant(corrected, path):
                written[meant] = path[0]
                corrected[meant] = corrected.pop(str(path[0]))
                continue
            path = _not_yet(path, seen)
            if not path:
                return
            seen.add(path)
            _replace(corrected, path)
        else:
            return


def _meant(document: dict[str, Any], path: Path) -> str | None:
    """The field that an unknown one probably means; using its name avoids a second error about the same field."""
    if len(path) != 1 or path[0] in JobSpec.__struct_fields__:
        return None
    near = nearest(str(path[0]), JobSpec.__struct_fields__)
    return near if near and near not in document else None


def _not_yet(path: Path, seen: set[Path]) -> Path:
    """The place to replace: the refused one, or its container when that did not help."""
    if path and (path[0] == "schedule" or path[:2] == ("target", "type")):
        path = path[:1]
    while path and path in seen:
        path = path[:-1]
    return path


def _replace(document: dict[str, Any], path: Path) -> None:
    holder: Any = document
    for part in path[:-1]:
        holder = holder[part]
    last = path[-1]
    if path in _HARMLESS:
        holder[last] = copy.deepcopy(_HARMLESS[path])
    elif isinstance(holder, dict):
        if isinstance(last, str):
            holder.pop(last, None)
    elif isinstance(holder, list) and isinstance(last, int) and last < len(holder):
        holder[last] = f"item-{last}"
