"""Exports jobs of the server as a file: defaults are left out, and the file reads back as the same jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from detent.declarative.plan import FIELDS
from detent.domain.job import JobSpec
from detent.domain.text import visible_json

Format = Literal["yaml", "json"]

# A field with an empty list or object as default has a factory of it.
_DEFAULTS = {
    field.name: field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    for field in msgspec.structs.fields(JobSpec)
}
_TARGET_DEFAULTS = {"method": "POST", "headers": {}, "env": {}}


def document_of(job: Mapping[str, Any]) -> dict[str, Any]:
    """One job as its file would declare it."""
    document = {"name": job["name"]}
    for field in FIELDS:
        if field in job and job[field] != _DEFAULTS[field]:
            document[field] = _target(job[field]) if field == "target" else _tidy(field, job[field])
    return document


def _tidy(field: str, value: Any) -> Any:
    """Whole numbers as people write them; a payload is left as it is."""
    return int(value) if field != "payload" and isinstance(value, float) and value.is_integer() else value


def _target(target: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in target.items() if key not in _TARGET_DEFAULTS or value != _TARGET_DEFAULTS[key]
    }


def export(jobs: Iterable[Mapping[str, Any]], owner: str | None, form: Format) -> str:
    """The file; jobs in the order of their names, so that two exports can be compared."""
    declared = [document_of(job) for job in sorted(jobs, key=lambda job: str(job["name"]))]
    whole: dict[str, Any] = {"owner": owner} if owner is not None else {}
    whole["jobs"] = declared
    if form == "json":
        return visible_json(json.dumps(whole, indent=2, ensure_ascii=False)) + "\n"
    from detent.declarative.yaml_text import write

    if not declared:
        return write(whole)
    head = write({"owner": owner}) + "\n" if owner is not None else ""
    entries = "\n".join(_indented(write([document])) for document in declared)
    return f"{head}jobs:\n{entries}"


def _indented(text: str) -> str:
    return "".join(f"  {line}" if line.strip() else line for line in text.splitlines(keepends=True))
