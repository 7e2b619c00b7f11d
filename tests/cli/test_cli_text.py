"""The small pure parts: durations, relative times, documents, cells."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import msgspec
import pytest

from detent.cli import times
from detent.cli.document import OPTIONS, build
from detent.cli.job_view import schedule_text
from detent.cli.target_view import target_fields, target_text
from detent.cli.text import clean, flat
from detent.domain.job import CeleryTarget, HttpTarget, PythonTarget, ShellTarget, Target, TopicTarget
from detent.errors import UsageError

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("90s", 90),
        ("15m", 900),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("250ms", 0.25),
        ("2D", 172800),
    ],
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert times.read_duration("--timeout", text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5", "-5s", "5 parsecs", "1h x", "nan", "inf", "m5"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--timeout is .*: give a time such as 90s, 15m or 1h30m"):
        times.read_duration("--timeout", text)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "now"),
        (12, "in 12 s"),
        (59.7, "in 1 min"),
        (-59, "59 s ago"),
        (-185, "3 min ago"),
        (3599, "in 1 h"),
        (47 * 3600, "in 47 h"),
        (-49 * 3600, "2 days ago"),
        (86400 * 400, "in 400 days"),
    ],
)
def test_times_are_reported_relative_to_now(seconds: float, words: str) -> None:
    instant = (NOW + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
    assert times.relative(instant, NOW) == words


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (None, ""),
        (0, "0 ms"),
        (999, "999 ms"),
        (1500, "1.5 s"),
        (300_000, "5 min"),
        (200_000, "3 min 20 s"),
        (7_500_000, "2 h 5 min"),
    ],
)
def test_spans_are_reported_in_the_units_of_people(milliseconds: float | None, words: str) -> None:
    assert times.span(milliseconds) == words


def test_a_zone_this_machine_does_not_know_falls_back_to_utc() -> None:
    assert times.absolute("2030-01-01T00:00:00Z", "Moon/Base") == "2030-01-01 00:00:00 UTC"


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        ("@daily", "@daily"),
        ({"cron": "0 9 * * *"}, "0 9 * * *"),
        ({"every": "15m", "anchor": "2030-01-01T00:00:00Z"}, "every 15m"),
        ({"rrule": "FREQ=DAILY"}, "RRULE:FREQ=DAILY"),
        ({"rrule": "RRULE:FREQ=DAILY"}, "RRULE:FREQ=DAILY"),
        ({"at": "2030-01-01T00:00:00Z"}, "2030-01-01T00:00:00Z"),
    ],
)
def test_schedules_are_written_as_one_text(schedule: object, text: str) -> None:
    assert schedule_text(schedule) == text


def test_targets_are_written_as_one_text() -> None:
    assert target_text({"type": "http", "url": "http://h/", "method": "GET"}) == "GET http://h/"
    assert target_text({"type": "python", "function": "shop:charge"}) == "python shop:charge"
    assert target_text({"type": "shell", "command": "echo a b"}) == "shell echo a b"


SECRET = {"secret": "s"}
# Of each kind of target what it must have, and a value that is not the default for each of its fields.
TARGETS: dict[type, tuple[dict[str, Any], dict[str, Any]]] = {
    HttpTarget: (
        {"type": "http", "url": "http://h/"},
        {"url": "http://i/", "method": "PUT", "headers": {"A": SECRET}, "tls": {"ca": SECRET}, "body": {"a": "{{ x }}"},
         "statuses": {"no_retry": [404]}, "host_concurrency": 3, "callback": {"lease_seconds": 90}},
    ),
    PythonTarget: ({"type": "python", "function": "f"}, {"function": "g", "isolate": "process"}),
    ShellTarget: ({"type": "shell", "command": "true"}, {"command": ["a", "b"], "env": {"A": SECRET}}),
    TopicTarget: (
        {"type": "topic", "url": "nats://h", "topic": "t"},
        {"url": "nats://i", "topic": "u", "key": "k", "headers": {"A": "b"}, "format": "cloudevents",
         "credentials": {"password": SECRET}, "tls": {"ca": SECRET}},
    ),
    CeleryTarget: (
        {"type": "celery", "task": "t"},
        {"task": "u", "app": "shop:app", "broker_url": "redis://h", "result_backend": "redis://i", "args": [1],
         "kwargs": {"a": 1}, "queue": "q", "priority": 0, "expires": 60, "ignore_result": True,
         "credentials": {"username": "u"}, "result_credentials": {"password": SECRET}},
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "field"), [(kind, field) for kind in get_args(Target) for field in kind.__struct_fields__]
)
def test_every_field_of_a_target_is_shown_where_it_is_not_the_default(kind: type, field: str) -> None:
    needed, others = TARGETS[kind]
    msgspec.convert({**needed, field: others[field]}, kind)
    before, after = list(target_fields(needed)), list(target_fields({**needed, field: others[field]}))
    changed = [line for line in after if line not in before]
    assert len(changed) == 1
    assert changed[0].plain is not None and changed[0].shown != ""


def test_a_priority_of_zero_is_shown() -> None:
    fields = {field.name: field.plain for field in target_fields({"type": "celery", "task": "t", "priority": 0})}
    assert fields["celery_priority"] == 0 and fields["celery_queue"] is None


def test_control_characters_are_spelled_out() -> None:
    assert clean("a\x1b[31m\nb\tc\x07\x9b") == "a\\x1b[31m\nb\tc\\x07\\x9b"
    assert flat("a\n  b\tc\r\n\x00") == "a b c \\x00"
    assert clean("grüße 東京") == "grüße 東京"


def flags(**given: object) -> dict[str, object]:
    import click

    command = click.Command("create")
    for add in OPTIONS:
        add(command)
    empty = {parameter.name or "": () if parameter.multiple else None for parameter in command.params}
    return {**empty, "allow_past": False, **given}


def test_a_document_holds_only_what_was_given() -> None:
    made = build("hello", flags(every="5m", python="shop:charge"))
    assert made == {
        "name": "hello",
        "schedule": {"every": "5m"},
        "target": {"type": "python", "function": "shop:charge"},
    }
    assert build(None, flags(schedule="@daily", python="f", isolate="process"))["target"] == {
        "type": "python",
        "function": "f",
        "isolate": "process",
    }
    assert build(None, flags(schedule="@daily", shell="true")) == {
        "schedule": "@daily",
        "target": {"type": "shell", "command": "true"},
    }


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"shell": "true", "method": "GET"}, "--method is given without --url"),
        ({"python": "f", "headers": ("A:b",)}, "--header is given without --url"),
        ({"python": "f", "body": ""}, "--body is given without --url"),
        ({"python": "f", "retry_status": ("409",)}, "--retry-status is given without --url"),
        ({"url": "u", "host_concurrency": "many"}, "--host-concurrency is 'many': give a whole number"),
        ({"url": "u", "body": "@no/such/file"}, "--body names no/such/file, which cannot be read"),
        ({"url": "u", "body": "-", "payload": "-"}, "--payload and --body both read stdin"),
        ({"shell": "true", "isolate": "process"}, "--isolate is given without --python"),
        ({"url": "u", "headers": ("no colon",)}, "--header is 'no colon': give it as NAME:VALUE"),
        ({"url": "u", "priority": "high"}, "--priority is 'high': give a whole number"),
        ({"url": "u", "payload": "{"}, "--payload is not JSON .*: quote plain text"),
        ({"url": "u", "payload": "NaN"}, "NaN is not a JSON number"),
        ({"url": "u", "payload": "[" * 100_000}, "--payload is nested too deeply"),
        ({"url": "u", "payload": "@no/such/file"}, r"--payload names no/such/file, which cannot be read"),
        ({"file": "no/such/file"}, r"--file names no/such/file, which cannot be read \(No such file"),
        ({"file": "-", "payload": "-"}, "both read stdin: give one of them as a file"),
    ],
)
def test_flags_that_make_no_document_are_refused(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        build("hello", flags(cron="* * * * *", **given))


def test_a_file_and_flags_do_not_both_give_the_schedule(tmp_path: object) -> None:
    path = f"{tmp_path}/job.json"
    with open(path, "w") as file:  # noqa: PTH123 - the path is text, as on a command line
        file.write('{"schedule": "@daily", "target": {}}')
    with pytest.raises(UsageError, match="--cron is given, and the file has a schedule too: keep one of the two"):
        build("hello", flags(cron="* * * * *", file=path))
    with open(path, "w") as file:  # noqa: PTH123 - as above
        file.write("[1]")
    with pytest.raises(UsageError, match="does not hold a JSON object"):
        build("hello", flags(file=path))
