"""`--set FIELD=VALUE` as the fields to change, and the report of the changes."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

from detent.cli import output
from detent.cli.document import SIMPLE_FIELDS, read_field, read_payload
from detent.cli.invocation import invocation
from detent.cli.output import Item
from detent.domain.job_fields import FIELDS_BY_NAME, JOB_FIELDS
from detent.errors import UsageError

LISTS = frozenset(field.name for field in JOB_FIELDS if field.kind == "names")
PLAIN = frozenset(field.name for field in SIMPLE_FIELDS if field.kind not in ("names", "switch"))
NESTED = ("target", "payload")  # fields whose parts can be set


def edited_fields(job: Item, assignments: Sequence[str], unset: Sequence[str]) -> dict[str, Any]:
    """The fields to send: whole fields, with the named parts changed inside them; None resets a field."""
    fields: dict[str, Any] = {}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path:
            raise UsageError(f"--set is {assignment!r}: give it as FIELD=VALUE, such as priority=8.")
        _put(fields, job, path.split("."), text)
    for path in unset:
        _drop(fields, job, path.split("."))
    return fields


def _put(fields: dict[str, Any], job: Item, path: list[str], text: str) -> None:
    field = path[0]
    if len(path) == 1:
        fields[field] = _read(field, text, str(fields.get("timezone") or job["timezone"]))
        return
    holder = _holder(fields, job, path)
    value = _json_or_text(text)
    if field == "target":
        from detent.cli.target_parts import reads_json

        value = value if reads_json(fields[field], path[1:], value) else text
    holder[path[-1]] = value


def _drop(fields: dict[str, Any], job: Item, path: list[str]) -> None:
    if len(path) == 1:
        fields[path[0]] = None
        return
    holder = _holder(fields, job, path)
    if path[-1] not in holder:
        raise UsageError(f"--unset is {'.'.join(path)!r}: the job has no such part.")
    del holder[path[-1]]


def _holder(fields: dict[str, Any], job: Item, path: list[str]) -> dict[str, Any]:
    """The object that contains the part that a path names, in a copy of its field."""
    field = path[0]
    if field not in NESTED:
        raise UsageError(f"{'.'.join(path)!r} names a part of {field}: only target and payload have parts.")
    if not isinstance(fields.get(field), dict):
        fields[field] = copy.deepcopy(job[field]) if isinstance(job[field], dict) else {}
    holder: dict[str, Any] = fields[field]
    for part in path[1:-1]:
        holder = holder.setdefault(part, {})
        if not isinstance(holder, dict):
            raise UsageError(f"{'.'.join(path)!r} goes through {part}, which is not an object: set it as a whole.")
    return holder


def _read(field: str, text: str, zone: str) -> Any:
    flag = f"--set {field}"
    if field in PLAIN:
        return read_field(FIELDS_BY_NAME[field], text, flag, zone)
    if field == "payload":
        return read_payload(text)
    if field in LISTS and not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text if field == "name" else _json_or_text(text)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise UsageError("The value of --set is nested too deeply: make it flatter.") from None
    except ValueError:
        return text


def report_changes(before: Item, after: Mapping[str, Any], done: str) -> None:
    from detent.cli.apply_plan import value_text
    from detent.declarative.plan import differences_between

    found = differences_between(before, after)
    if not found:
        output.say(f"No change in {before['name']}.")
        return
    output.say(f"{done} {before['name']}:")
    if invocation().format == "text":
        for one in found:
            was = value_text(one.before) if one.has_before else "nothing"
            now = value_text(one.after) if one.has_after else "nothing"
            output.say(f"  {one.path}: {was} → {now}")
