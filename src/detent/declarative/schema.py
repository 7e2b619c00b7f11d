"""The JSON Schema of a file of jobs, made from the types the server reads jobs with; editors complete and check by it.

python -m detent.declarative.schema > docs/jobs.schema.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

from detent.domain.job import JobSpec
from detent.domain.job_fields import FIELDS_BY_NAME

TITLE = "A file of jobs for detent apply"


_TEXT = {"type": "string", "minLength": 1}
_EVERY = {"anyOf": [_TEXT, {"type": "number", "exclusiveMinimum": 0}]}
_KINDS: dict[str, Any] = {"cron": _TEXT, "rrule": _TEXT, "every": _EVERY, "anchor": _TEXT, "at": _TEXT}
_MEMBER = {"type": "object", "properties": _KINDS, "additionalProperties": False}
_EXCLUSION = {
    "type": "object",
    "properties": {"cron": _TEXT, "rrule": _TEXT, "dates": _TEXT},
    "additionalProperties": False,
    "minProperties": 1,
    "maxProperties": 1,
}
SCHEDULE_OBJECT: dict[str, Any] = {
    "type": "object",
    "properties": {
        **_KINDS,
        "after": {"enum": ["finish"], "description": "With every: count it from the end of the previous run."},
        "also": {
            "type": "array",
            "items": {"anyOf": [_TEXT, _MEMBER]},
            "maxItems": 20,
            "description": "More schedules: the job ticks when any of them does.",
        },
        "exclude": {
            "type": "array",
            "items": {"anyOf": [_TEXT, _EXCLUSION]},
            "maxItems": 200,
            "description": "No tick then: a day, 2030-12-24, days, 2030-12-24/2031-01-01, a cron expression, a rule.",
        },
    },
    "additionalProperties": False,
}


def jobs_schema() -> dict[str, Any]:
    _, parts = msgspec.json.schema_components([JobSpec], ref_template="#/$defs/{name}")
    job = parts["JobSpec"]
    job["title"] = "A job"
    job.pop("description", None)
    job["required"] = ["name", "target"]
    for name, field in job["properties"].items():
        field["description"] = FIELDS_BY_NAME[name].meaning
    job["properties"]["name"] = {
        "type": "string",
        "minLength": 1,
        "maxLength": 200,
        "description": FIELDS_BY_NAME["name"].meaning,
    }
    job["properties"]["schedule"] |= {"anyOf": [{"type": "string"}, SCHEDULE_OBJECT, {"type": "null"}]}
    defaults = {name: field for name, field in job["properties"].items() if name != "name"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": TITLE,
        "type": "object",
        "properties": {
            "$schema": {"type": "string"},
            "owner": {
                "type": "string",
                "minLength": 1,
                "maxLength": 200,
                "description": "The owner's label; `detent apply --prune` deletes only jobs that carry it.",
            },
            "defaults": {
                "type": "object",
                "properties": defaults,
                "additionalProperties": False,
                "description": "Default fields for every job of this file.",
            },
            "jobs": {"type": "array", "items": {"$ref": "#/$defs/JobSpec"}},
        },
        "required": ["jobs"],
        "additionalProperties": False,
        "$defs": {"JobSpec": job} | {name: part for name, part in parts.items() if name != "JobSpec"},
    }


def written() -> str:
    return json.dumps(jobs_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(written())
