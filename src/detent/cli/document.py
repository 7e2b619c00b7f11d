"""From the flags of `detent job create` to the document the API takes.

The server validates the document. This module checks only what the server cannot explain well: flags that contradict
each other, and text that is not JSON. What each field means is read from `domain/job_fields.py`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from detent.cli import times
from detent.cli.base import F, option
from detent.cli.celery_options import CELERY_OPTIONS, celery_target, check_celery_flags
from detent.cli.http_options import HTTP_OPTIONS, check_http_flags, http_parts
from detent.cli.schedule_options import SCHEDULE_OPTIONS, SCHEDULES, with_parts
from detent.cli.times import read_duration
from detent.cli.topic_options import TOPIC_OPTIONS, check_topic_flags, topic_target
from detent.domain import moments
from detent.domain.job_fields import JOB_FIELDS, FieldGroup, FieldKind, JobField
from detent.errors import UsageError

TARGETS = {
    "url": "--url",
    "shell": "--shell",
    "python": "--python",
    "topic_url": "--topic-url",
    "celery": "--celery",
}


def _number(flag: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{flag} is {text!r}: give a whole number.") from None


def _decimal(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{flag} is {text!r}: give a number, such as 5 or 0.5.") from None


def _grace(flag: str, text: str) -> object:
    return text if text == "auto" else read_duration(flag, text)


def _secret(flag: str, text: str) -> object:
    return {"secret": text}


def _delays(flag: str, text: str) -> dict[str, float]:
    delays: dict[str, float] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, wait = part.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{flag} is {text!r}: give it as ERROR=TIME, such as TimeoutError=30s,RateLimited=2m.")
        delays[name.strip()] = read_duration(flag, wait.strip())
    return delays


def _document(flag: str, text: str) -> object:
    """JSON, or @FILE."""
    if text.startswith("@"):
        return _json(read_text(flag, text[1:]), text[1:], "write it as a JSON object")
    return _json(text, flag, "give an object, such as '{…}', or @FILE")


READERS: dict[FieldKind, Callable[[str, str], object]] = {
    "secret": _secret,
    "integer": _number,
    "number": _decimal,
    "duration": read_duration,
    "grace": _grace,
    "delays": _delays,
    "document": _document,
}
METAVARS: dict[FieldKind, str] = {
    "secret": "SECRET",
    "integer": "N",
    "number": "N",
    "duration": "TIME",
    "grace": "TIME",
    "instant": "TIME",
    "delays": "ERROR=TIME",
    "document": "JSON",
}
# Where the kind of a field says less than its option should.
OWN_METAVARS = {
    "timezone": "ZONE",
    "queue": "NAME",
    "concurrency_key": "TEMPLATE",
    "notify_url": "URL",
    "idempotency_key_template": "TEMPLATE",
    "no_retry_on": "ERROR",
    "retry_on": "ERROR",
    "tags": "TAG",
}
PANELS: dict[FieldGroup, str] = {"schedule": "Schedule", "deadlines": "Deadlines and alerts"}
ALIASES = {"timezone": ("--tz",)}
# What `detent job create` builds from several options: the parts of the schedule and of the target.
COMPOSED = frozenset({"schedule", "target", "name", "payload"})


def _metavar(field: JobField) -> str:
    return "|".join(field.choices) or OWN_METAVARS.get(field.name) or METAVARS[field.kind]


def _help(field: JobField) -> str:
    if field.kind == "names":
        return f"{field.meaning} May be repeated."
    return f"{field.meaning} [{field.default}]" if field.default else field.meaning


def _option(field: JobField) -> Callable[[F], F]:
    names = [field.option, *ALIASES.get(field.name, ()), field.name]
    panel = PANELS.get(field.group, "Policies")
    if field.kind == "switch":
        return option(*names, is_flag=True, help=field.meaning, panel="Schedule")
    return option(*names, metavar=_metavar(field), multiple=field.kind == "names", help=_help(field), panel=panel)


# What HTTP targets and topics have.
SENT_FLAGS = {
    "headers": "--header",
    "client_certificate": "--tls-client-certificate",
    "target_ca": "--tls-ca",
    "callback": "--callback",
}
SIMPLE_FIELDS = tuple(field for field in JOB_FIELDS if field.name not in COMPOSED)

OPTIONS: tuple[Callable[[Any], Any], ...] = (
    *SCHEDULE_OPTIONS,
    *(_option(field) for field in SIMPLE_FIELDS if field.group == "schedule" or field.kind == "switch"),
    option("--url", metavar="URL", help="Call this address.", panel="Target"),
    option("--method", metavar="METHOD", help="With --url. [POST]", panel="Target"),
    option(
        "--header",
        "headers",
        metavar="NAME:VALUE",
        multiple=True,
        help='With --url or --topic-url; may be repeated. The value may be a secret: {"secret": "NAME"}.',
        panel="Target",
    ),
    option(
        "--tls-client-certificate",
        "client_certificate",
        metavar="SECRET",
        help="With --url or --topic-url: the secret with the certificate and private key to show, in PEM form.",
        panel="Target",
    ),
    option(
        "--tls-ca",
        "target_ca",
        metavar="FILE",
        help="With --url or --topic-url: trust only servers with a certificate of these authorities.",
        panel="Target",
    ),
    *HTTP_OPTIONS,
    option(
        "--callback",
        metavar="TIME",
        help="With --url: an answer 202 does not end the run, a callback does; the longest time without a heartbeat.",
        panel="Target",
    ),
    option(
        "--shell", metavar="COMMAND", help="Run this on a worker with --allow-shell for the tenant.", panel="Target"
    ),
    option(
        "--python",
        metavar="FUNCTION",
        help="Call this function of the app that workers load with --app.",
        panel="Target",
    ),
    option("--isolate", metavar="thread|process", help="With --python: where it runs. [thread]", panel="Target"),
    *TOPIC_OPTIONS,
    *CELERY_OPTIONS,
    option("--payload", metavar="JSON", help="Input of every run: JSON, @FILE or - for stdin.", panel="Target"),
    *(_option(field) for field in SIMPLE_FIELDS if field.group not in PANELS and field.kind != "switch"),
    *(_option(field) for field in SIMPLE_FIELDS if field.group == "deadlines"),
    option("--file", "-f", "file", metavar="FILE", help="The job as JSON; - for stdin. Flags override it."),
)


def document_options(function: F) -> F:
    """All options of a job, in the order of the help."""
    for add in reversed(OPTIONS):
        function = add(function)
    return function


def build(name: str | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """The document that these flags describe."""
    stdin = [flag for flag in ("file", "payload", "body") if flags[flag] == "-"]
    if len(stdin) > 1:
        raise UsageError(f"--{stdin[0]} and --{stdin[1]} both read stdin: give one of them as a file.")
    document = _from_file(flags["file"]) if flags["file"] else {}
    schedule = _one_of(SCHEDULES, flags, "schedule", document.get("schedule") is not None, required=False)
    zone = flags["timezone"] or document.get("timezone")
    if schedule == "at":
        document["schedule"] = {"at": _once(flags["at"], zone)}
        if flags["at"].strip().lower() == "now":  # which is over when the server reads it
            document["allow_past"] = True
    elif schedule not in (None, "task"):
        document["schedule"] = flags["schedule"] if schedule == "schedule" else {schedule: flags[schedule]}
    dialect = flags["dialect"] or document.get("dialect")
    if (combined := with_parts(document.get("schedule"), flags, dialect)) is not None:
        document["schedule"] = combined
    target = _one_of(TARGETS, flags, "target", "target" in document)
    _require_target(target, flags)
    if target is not None:
        document["target"] = _target(target, flags)
    if name is not None:
        document["name"] = name
    if flags["payload"] is not None:
        document["payload"] = read_payload(flags["payload"])
    document.update(_simple_fields(flags, zone))
    return document


def _once(text: str, zone: str | None) -> str:
    """An instant as written; a time of the wall clock of the job's zone, or with an offset of this machine's."""
    if not times.needs_zone(text):
        return text if moments.iso(text.strip()) else times.written(times.read_moment("--at", text, ahead=True))
    if zone is not None:
        return times.wall_time("--at", text, zone, ahead=True)
    return times.written(times.read_moment("--at", text, ahead=True))


def _one_of(
    choices: Mapping[str, str], flags: Mapping[str, Any], what: str, in_file: bool, *, required: bool = True
) -> str | None:
    given = [key for key in choices if flags[key] not in (None, False)]
    names = list(choices.values())
    advice = f"give exactly one of {', '.join(names[:-1])} or {names[-1]}."
    if len(given) > 1:
        raise UsageError(f"{choices[given[0]]} and {choices[given[1]]} are both given: {advice}")
    if given and in_file:
        raise UsageError(f"{choices[given[0]]} is given, and the file has a {what} too: keep one of the two.")
    if required and not given and not in_file:
        raise UsageError(f"The job has no {what}: {advice}")
    return given[0] if given else None


def _require_target(target: str | None, flags: Mapping[str, Any]) -> None:
    if flags["isolate"] and target != "python":
        raise UsageError("--isolate is given without --python: it applies to Python functions only.")
    if target != "celery":
        check_celery_flags(flags)
    if target != "topic_url":
        check_topic_flags(flags)
    if target != "url" and flags["method"]:
        raise UsageError("--method is given without --url: it applies to HTTP targets only.")
    if target != "url":
        check_http_flags(flags)
    if target in ("url", "topic_url"):
        return
    for key, flag in SENT_FLAGS.items():
        if flags[key]:
            raise UsageError(f"{flag} is given without --url or --topic-url: it applies to these targets only.")


def _target(kind: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "shell":
        return {"type": "shell", "command": flags["shell"]}
    if kind == "python":
        chosen = {"isolate": flags["isolate"]} if flags["isolate"] else {}
        return {"type": "python", "function": flags["python"], **chosen}
    if kind == "celery":
        return celery_target(flags)
    headers, tls = _headers(flags["headers"] or ()), _tls(flags)
    if kind == "topic_url":
        return topic_target(flags, headers, tls)
    target: dict[str, Any] = {"type": "http", "url": flags["url"], **http_parts(flags, read_text)}
    if flags["method"]:
        target["method"] = flags["method"].upper()
    if headers:
        target["headers"] = headers
    if flags["callback"]:
        target["callback"] = {"lease_seconds": read_duration("--callback", flags["callback"])}
    return {**target, "tls": tls} if tls else target


def _tls(flags: Mapping[str, Any]) -> dict[str, Any]:
    tls: dict[str, Any] = {}
    if flags["client_certificate"]:
        tls["client_certificate"] = {"secret": flags["client_certificate"]}
    if flags["target_ca"]:
        tls["ca"] = read_text("--tls-ca", flags["target_ca"])
    return tls


def _headers(lines: Sequence[str]) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise UsageError(f"--header is {line!r}: give it as NAME:VALUE, such as 'Accept: text/plain'.")
        headers[name.strip()] = _header_value(value.strip())
    return headers


def _header_value(text: str) -> object:
    """Text, or a reference to a secret as JSON."""
    if text.startswith("{"):
        with suppress(ValueError):
            found = json.loads(text)
            if isinstance(found, dict) and found.keys() == {"secret"}:
                return found
    return text


def _simple_fields(flags: Mapping[str, Any], zone: str | None) -> dict[str, Any]:
    return {
        field.name: read_field(field, flags[field.name], zone=zone)
        for field in SIMPLE_FIELDS
        if flags[field.name] not in (None, (), False)
    }


def read_field(field: JobField, given: Any, flag: str | None = None, zone: str | None = None) -> Any:
    """The value of a field, from what its option (or `flag`) was given; `zone` is that of the job."""
    if field.kind == "names":
        return list(given)
    if field.kind == "instant":
        return times.written(times.read_moment(flag or field.option, given, ahead=True, zone=zone))
    reader = READERS.get(field.kind)
    return reader(flag or field.option, given) if reader else given


def is_default(field: JobField, value: object) -> bool:
    return value in (None, [], {}, False) if not field.default else value == read_field(field, field.default)


def _from_file(path: str) -> dict[str, Any]:
    source = "stdin" if path == "-" else path
    document = _json(read_text("--file", path), source, "write the job as a JSON object")
    if not isinstance(document, dict):
        raise UsageError(f'{source} does not hold a JSON object: write the job as {{"schedule": …, "target": …}}.')
    return document


def read_payload(text: str) -> object:
    if text == "-":
        return _json(read_text("--payload", text), "stdin", "send the payload as JSON")
    if text.startswith("@"):
        return _json(read_text("--payload", text[1:]), text[1:], "write the payload as JSON")
    return _json(text, "--payload", "quote plain text as '\"text\"', or read a file with @FILE")


def read_text(flag: str, path: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).expanduser().read_bytes()
        return raw.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{flag} names {path}, which is not UTF-8 text.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{flag} names {path}, which cannot be read ({reason}).") from None


def _json(text: str, source: str, advice: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise UsageError(f"{source} is nested too deeply: {advice}.") from None
    except ValueError as error:
        raise UsageError(f"{source} is not JSON ({error}): {advice}.") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")
