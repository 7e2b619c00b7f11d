"""From the flags of `detent job create` to the document the API takes.

The server judges the document; here is checked only what no server could say well: which flags contradict
each other, and what cannot be read as JSON at all.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from detent.cli.base import F, option
from detent.cli.times import read_duration
from detent.errors import UsageError

SCHEDULES = {"cron": "--cron", "every": "--every", "at": "--at", "rrule": "--rrule", "schedule": "--schedule"}
TARGETS = {"url": "--url", "shell": "--shell", "python": "--python"}


def _text(flag: str, text: str) -> str:
    return text


def _number(flag: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{flag} is {text!r}: give a whole number.") from None


def _grace(flag: str, text: str) -> object:
    return text if text == "auto" else read_duration(flag, text)


class Policy(NamedTuple):
    """A flag that becomes a field of the document; `read` turns its text into the field's value."""

    flag: str
    field: str
    metavar: str
    help: str
    read: Callable[[str, str], object] = _text
    panel: str = "Policies"


def _option(policy: Policy) -> Callable[[F], F]:
    names = [policy.flag, policy.field]
    if policy.flag == "--timezone":
        names.insert(1, "--tz")
    return option(*names, metavar=policy.metavar, help=policy.help, panel=policy.panel)


def _schedule(flag: str, field: str, metavar: str, text: str, read: Callable[[str, str], object] = _text) -> Policy:
    return Policy(flag, field, metavar, text, read, "Schedule")


def _expectation(flag: str, field: str, metavar: str, text: str, read: Callable[[str, str], object] = _text) -> Policy:
    return Policy(flag, field, metavar, text, read, "Expectations")


def _within(flag: str, field: str, text: str) -> Policy:
    return _expectation(flag, field, "TIME", text, read_duration)


# The server checks words such as first|last|both; a test compares what is listed here with the model.
POLICIES: tuple[Policy, ...] = (
    _schedule("--timezone", "timezone", "ZONE", "Time zone of the schedule, such as Europe/Berlin. [UTC]"),
    _schedule("--starts-at", "starts_at", "TIME", "No tick before this time."),
    _schedule("--ends-at", "ends_at", "TIME", "No tick after this time."),
    _schedule("--max-runs", "max_runs", "N", "Complete the job after this many runs.", _number),
    _schedule("--jitter", "jitter_seconds", "TIME", "Delay each run by up to this time. [0]", read_duration),
    _schedule("--dst-gap", "dst_gap", "run|shift|skip", "When the clock jumps over a tick. [run]"),
    _schedule("--dst-overlap", "dst_overlap", "first|last|both", "When the clock shows a tick twice. [first]"),
    _schedule("--day-match", "day_match", "or|and", "When cron restricts both day fields: one, or both?"),
    _schedule("--dialect", "dialect", "unix|quartz", "How cron numbers the days of the week. [unix]"),
    Policy("--queue", "queue", "NAME", "The queue its runs wait in. [default]"),
    Policy("--priority", "priority", "0-9", "Higher goes first. [5]", _number),
    Policy("--timeout", "timeout_seconds", "TIME", "End an attempt after this time. [5m]", read_duration),
    Policy("--max-retries", "max_retries", "N", "Tries after the first, before a run is dead. [3]", _number),
    Policy(
        "--retry-backoff",
        "retry_backoff",
        "exponential|linear|fixed",
        "How the wait between tries grows. [exponential]",
    ),
    Policy("--retry-base", "retry_base_seconds", "TIME", "The wait it grows from. [2s]", read_duration),
    Policy("--retry-max", "retry_max_seconds", "TIME", "The longest wait. [1h]", read_duration),
    Policy(
        "--concurrent-policy",
        "concurrent_policy",
        "SKIP|ALLOW|QUEUE|REPLACE",
        "When the last run is not over at the next tick. [SKIP]",
    ),
    Policy("--max-concurrent", "max_concurrent", "N", "With ALLOW: runs at the same time. [10]", _number),
    Policy("--missed-window", "missed_window", "RUN_ONCE|SKIP|RUN_ALL", "Which ticks run after down-time. [RUN_ONCE]"),
    Policy("--max-missed", "max_missed", "N", "With RUN_ALL: how many ticks at most. [100]", _number),
    Policy("--misfire-grace", "misfire_grace_seconds", "TIME", "How late a tick may still run. [auto]", _grace),
    Policy(
        "--delivery",
        "delivery",
        "at_least_once|at_most_once",
        "Whether a run that a crash cut off is tried again. [at_least_once]",
    ),
    Policy("--auto-pause-after", "auto_pause_after", "N", "Pause it after so many dead runs running. [never]", _number),
    _within("--expect-start-within", "expect_start_within", "Tell if a run has not begun so long after its tick."),
    _within("--expect-finish-within", "expect_finish_within", "Tell if it has not succeeded so long after its tick."),
    _expectation("--notify-after", "notify_after", "N", "After so many ticks in a row. [1]", _number),
    _expectation("--notify-url", "notify_url", "URL", "Whom to tell. [the server's own]"),
    _expectation("--notify-format", "notify_format", "webhook|slack", "What it is sent. [webhook]"),
    Policy("--collect-after", "collect_after", "TIME", "Delete a one-off so long after its end. [7d]", read_duration),
    Policy(
        "--idempotency-key",
        "idempotency_key_template",
        "TEMPLATE",
        "The key targets deduplicate by. [{{job_id}}:{{scheduled_at_unix}}]",
    ),
)

OPTIONS: tuple[Callable[[Any], Any], ...] = (
    option("--cron", metavar="EXPRESSION", help='Such as "0 9 * * MON-FRI".', panel="Schedule"),
    option("--every", metavar="TIME", help="Such as 30s, 15m or 6h.", panel="Schedule"),
    option("--at", metavar="TIME", help="Once, such as 2030-12-24T18:00:00+01:00.", panel="Schedule"),
    option("--rrule", metavar="RULE", help='Such as "FREQ=WEEKLY;BYDAY=MO".', panel="Schedule"),
    option("--schedule", metavar="TEXT", help="Any of these as text, such as @daily.", panel="Schedule"),
    *(_option(policy) for policy in POLICIES if policy.panel == "Schedule"),
    option("--allow-past", is_flag=True, help="Run at once when --at is in the past.", panel="Schedule"),
    option("--url", metavar="URL", help="Call this address.", panel="Target"),
    option("--method", metavar="METHOD", help="With --url. [POST]", panel="Target"),
    option(
        "--header",
        "headers",
        metavar="NAME:VALUE",
        multiple=True,
        help="With --url; may be repeated.",
        panel="Target",
    ),
    option("--shell", metavar="COMMAND", help="Run this on a worker with --allow-shell.", panel="Target"),
    option("--python", metavar="FUNCTION", help="Call this function of the workers' app.", panel="Target"),
    option("--isolate", metavar="thread|process", help="With --python: where it runs. [thread]", panel="Target"),
    option("--payload", metavar="JSON", help="What it is given: JSON, @FILE or - for stdin.", panel="Target"),
    *(_option(policy) for policy in POLICIES if policy.panel == "Policies"),
    *(_option(policy) for policy in POLICIES if policy.panel == "Expectations"),
    option(
        "--no-retry-on",
        "no_retry_on",
        metavar="ERROR",
        multiple=True,
        help="Do not try again after this error; may be repeated.",
        panel="Policies",
    ),
    option("--tag", "tags", metavar="TAG", multiple=True, help="May be repeated.", panel="Policies"),
    option("--file", "-f", "file", metavar="FILE", help="The job as JSON; - for stdin. Flags win over it."),
)


def document_options(function: F) -> F:
    """All flags of a job, in the order in which help lists them."""
    for add in reversed(OPTIONS):
        function = add(function)
    return function


def build(name: str | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """The document that these flags describe."""
    if flags["file"] == "-" and flags["payload"] == "-":
        raise UsageError("Both --file and --payload are to be read from stdin: give one of them as a file.")
    document = _from_file(flags["file"]) if flags["file"] else {}
    schedule = _one_of(SCHEDULES, flags, "schedule", "schedule" in document)
    if schedule is not None:
        document["schedule"] = flags["schedule"] if schedule == "schedule" else {schedule: flags[schedule]}
    target = _one_of(TARGETS, flags, "target", "target" in document)
    _require_target(target, flags)
    if target is not None:
        document["target"] = _target(target, flags)
    if name is not None:
        document["name"] = name
    if flags["payload"] is not None:
        document["payload"] = read_payload(flags["payload"])
    document.update(_policies(flags))
    return document


def _one_of(choices: Mapping[str, str], flags: Mapping[str, Any], what: str, in_file: bool) -> str | None:
    given = [key for key in choices if flags[key] is not None]
    names = list(choices.values())
    advice = f"give exactly one of {', '.join(names[:-1])} or {names[-1]}."
    if len(given) > 1:
        raise UsageError(f"{choices[given[0]]} and {choices[given[1]]} are both given: {advice}")
    if given and in_file:
        raise UsageError(f"{choices[given[0]]} is given, and the file has a {what} too: keep one of the two.")
    if not given and not in_file:
        raise UsageError(f"The job has no {what}: {advice}")
    return given[0] if given else None


def _require_target(target: str | None, flags: Mapping[str, Any]) -> None:
    if flags["isolate"] and target != "python":
        raise UsageError("--isolate is given without --python: it belongs to a call of a function.")
    if target == "url":
        return
    for key, flag in (("method", "--method"), ("headers", "--header")):
        if flags[key]:
            raise UsageError(f"{flag} is given without --url: it belongs to a call over HTTP.")


def _target(kind: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "shell":
        return {"type": "shell", "command": flags["shell"]}
    if kind == "python":
        chosen = {"isolate": flags["isolate"]} if flags["isolate"] else {}
        return {"type": "python", "function": flags["python"], **chosen}
    target: dict[str, Any] = {"type": "http", "url": flags["url"]}
    if flags["method"]:
        target["method"] = flags["method"].upper()
    if flags["headers"]:
        target["headers"] = _headers(flags["headers"])
    return target


def _headers(lines: Sequence[str]) -> dict[str, str]:
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise UsageError(f"--header is {line!r}: give it as NAME:VALUE, such as 'Accept: text/plain'.")
        headers[name.strip()] = value.strip()
    return headers


def _policies(flags: Mapping[str, Any]) -> dict[str, Any]:
    fields = {
        policy.field: policy.read(policy.flag, flags[policy.field])
        for policy in POLICIES
        if flags[policy.field] is not None
    }
    for several in ("tags", "no_retry_on"):
        if flags[several]:
            fields[several] = list(flags[several])
    if flags["allow_past"]:
        fields["allow_past"] = True
    return fields


def _from_file(path: str) -> dict[str, Any]:
    source = "stdin" if path == "-" else path
    document = _json(_read("--file", path), source, "write the job as a JSON object")
    if not isinstance(document, dict):
        raise UsageError(f'{source} does not hold a JSON object: write the job as {{"schedule": …, "target": …}}.')
    return document


def read_payload(text: str) -> object:
    if text == "-":
        return _json(_read("--payload", text), "stdin", "send the payload as JSON")
    if text.startswith("@"):
        return _json(_read("--payload", text[1:]), text[1:], "write the payload as JSON")
    return _json(text, "--payload", "quote plain text as '\"text\"', or read a file with @FILE")


def _read(flag: str, path: str) -> str:
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
