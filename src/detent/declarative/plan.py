"""The plan of `detent apply`: which jobs to create, update or delete so that the server matches the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from detent.declarative.jobs_file import Declared
from detent.domain.documents import plain
from detent.domain.job import JobSpec

Action = Literal["create", "update", "unchanged", "delete"]
Document = Mapping[str, Any]

FIELDS = tuple(field for field in JobSpec.__struct_fields__ if field != "name")
HIDDEN = "(hidden)"
_ABSENT: Any = object()


class Difference(NamedTuple):
    """One part of a job that changes; `None` is null, and a value that does not exist is left out."""

    path: str
    before: Any = _ABSENT
    after: Any = _ABSENT

    @property
    def has_before(self) -> bool:
        return self.before is not _ABSENT

    @property
    def has_after(self) -> bool:
        return self.after is not _ABSENT


class PlanStep(NamedTuple):
    action: Action
    name: str
    declared: Declared | None = None
    current: Document | None = None
    differences: tuple[Difference, ...] = ()


class Plan(NamedTuple):
    steps: list[PlanStep]

    def of(self, *actions: Action) -> list[PlanStep]:
        return [step for step in self.steps if step.action in actions]

    @property
    def changes(self) -> int:
        return len(self.of("create", "update", "delete"))


def make_plan(declared: Sequence[Declared], current: Mapping[str, Document], prunable: Iterable[Document] = ()) -> Plan:
    """`current` are the server's jobs by name; `prunable` those that are deleted when no file has them."""
    steps = [_step(job, current.get(job.name)) for job in declared]
    kept = {job.name for job in declared}
    gone = sorted((job for job in prunable if job["name"] not in kept), key=lambda job: str(job["name"]))
    return Plan(steps + [PlanStep("delete", str(job["name"]), current=job) for job in gone])


def _step(job: Declared, current: Document | None) -> PlanStep:
    wanted = wanted_fields(job)
    if current is None:
        return PlanStep("create", job.name, job, None, tuple(_declared(job, wanted)))
    found = tuple(_differences(current, wanted))
    if job.owner is not None and job.owner != current.get("owner"):
        found += (Difference("owner", current.get("owner"), job.owner),)
    return PlanStep("update" if found else "unchanged", job.name, job, current, found)


def wanted_fields(job: Declared) -> dict[str, Any]:
    document: dict[str, Any] = plain(job.spec)
    return {field: document[field] for field in FIELDS}


def _declared(job: Declared, wanted: Mapping[str, Any]) -> Iterator[Difference]:
    """The fields of a new job that its file declares; the manual lists the defaults."""
    for field in FIELDS:
        if field in job.document:
            yield from _walk(field, _ABSENT, wanted[field])
    if job.owner is not None:
        yield Difference("owner", after=job.owner)


def differences_between(before: Document, after: Document) -> list[Difference]:
    """The differences between two versions of a job, including its name."""
    renamed = [] if before["name"] == after["name"] else [Difference("name", before["name"], after["name"])]
    return renamed + list(_differences(before, after))


def _differences(current: Document, wanted: Mapping[str, Any]) -> Iterator[Difference]:
    for field in FIELDS:
        yield from _walk(field, current.get(field), wanted[field])


def _walk(path: str, before: Any, after: Any) -> Iterator[Difference]:
    if _same(before, after):
        return
    if path == "target" and isinstance(after, dict) and isinstance(before, dict) and before["type"] != after["type"]:
        yield Difference(path, *masked(before, after))
    elif isinstance(after, dict) and (isinstance(before, dict) or (before is _ABSENT and path == "target")):
        former = before if isinstance(before, dict) else {}
        for key in [*former, *(key for key in after if key not in former)]:
            yield from _inside(f"{path}.{key}", former.get(key, _ABSENT), after.get(key, _ABSENT))
    else:
        yield Difference(path, before, after)


def _inside(path: str, before: Any, after: Any) -> Iterator[Difference]:
    if is_secret(path) and not _same(before, after):
        yield Difference(path, *(value if value is _ABSENT else HIDDEN for value in (before, after)))
    elif after is _ABSENT:
        yield Difference(path, before)
    elif isinstance(after, dict) and before is _ABSENT and path in ("target.headers", "target.env"):
        yield from _walk(path, {}, after)
    else:
        yield from _walk(path, before, after)


def is_secret(path: str) -> bool:
    """Headers and variables of a target often hold passwords: they are named, never shown."""
    return path.startswith(("target.headers.", "target.env."))


def masked(*targets: Any) -> list[Any]:
    return [
        {
            key: dict.fromkeys(value, HIDDEN) if key in ("headers", "env") and value else value
            for key, value in t.items()
        }
        for t in targets
    ]


def _same(before: Any, after: Any) -> bool:
    """Equality in JSON: 1 is 1.0, but true is not 1."""
    if before is _ABSENT or after is _ABSENT:
        return before is after
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(_same(before[key], after[key]) for key in before)
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(_same, before, after))
    if isinstance(before, bool) or isinstance(after, bool):
        return before is after
    return bool(before == after)
