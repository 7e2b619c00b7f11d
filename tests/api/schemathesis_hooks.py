"""Loaded by schemathesis: usable values for some fields, an additional check, and no waiting for runs."""

from __future__ import annotations

import json
from typing import Any

import schemathesis

SCHEDULES = ("0 9 * * MON", "every 1h", "@daily", "RRULE:FREQ=WEEKLY;BYDAY=MO", "2031-01-01T00:00:00Z")


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Random text is almost never a valid schedule, URL or zone: half of the time it is replaced by a valid one, so
    that the code after these checks is reached, too."""
    if isinstance(body, dict):
        return _made_usable(body)
    return [_made_usable(item) if isinstance(item, dict) else item for item in body] if isinstance(body, list) else body


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Claims do not wait: no run ever becomes ready here."""
    if isinstance(case.body, dict) and isinstance(case.body.get("wait_seconds"), int | float):
        case.body = {**case.body, "wait_seconds": min(case.body["wait_seconds"], 0)}


def _made_usable(body: dict[str, Any]) -> dict[str, Any]:
    usable = {"schedule": SCHEDULES[len(body) % len(SCHEDULES)], "timezone": "Europe/Berlin"}
    wanted = {field for field in usable if isinstance(body.get(field), str) and _even(body[field])}
    changed = {field: usable[field] if field in wanted else value for field, value in body.items()}
    target = body.get("target")
    if isinstance(target, dict) and isinstance(target.get("url"), str) and _even(target["url"]):
        changed["target"] = {**target, "url": "http://127.0.0.1:9/"}
    return changed


def _even(text: str) -> bool:
    return sum(map(ord, text)) % 2 == 0


@schemathesis.check
def nothing_that_cannot_be_stored_is_accepted(context: Any, response: Any, case: Any) -> None:
    """A request with a NUL character or half of a surrogate pair must be refused."""
    sent = json.dumps([_plain(case.body), _plain(case.query), _plain(case.path_parameters)])
    bad = "\\u0000" in sent.replace("\\\\", "") or any(f"\\ud{digit}" in _halves(sent) for digit in "89abcdef")
    assert not (bad and response.status_code < 400), f"accepted with {response.status_code}: {sent[:500]}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _halves(sent: str) -> str:
    """The text with complete surrogate pairs joined into one character: only unpaired halves remain."""
    text = json.loads(sent)
    return json.dumps(str(text).encode("utf-16", "surrogatepass").decode("utf-16", "replace"), ensure_ascii=False)
