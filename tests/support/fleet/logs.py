"""The logs of the processes: events by name, and lines that they must not contain."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

# Lines that are not events: what a process prints for the user who started it.
PLAIN = re.compile(
    r"listening on http://\S+|(?:scheduler|worker|api)(?: and (?:scheduler|worker|api))* ready"
    r"|error: The (?:database|server).*|\s*"
)
# Warnings are fine when something was broken. A hundred of one kind in ten seconds is a loop that does not wait.
FLOOD, FLOOD_SECONDS = 100, 10.0
# Errors that are expected: an operator has to act, and the line says why.
ALERTS = ("all ticks are held",)
SERVER_FAULTS = re.compile(r"deadlock detected|PANIC:|TRAP:|could not serialize", re.IGNORECASE)


class Event(NamedTuple):
    process: str
    at: float
    level: str
    name: str
    fields: dict[str, Any]


class Eviction(NamedTuple):
    """Somebody was declared dead; `process` is who that had been."""

    node: int
    process: str
    at: float


def events(logs: Mapping[str, str]) -> Iterator[Event]:
    for process, text in logs.items():
        for line in text.splitlines():
            if line.startswith("{"):
                fields = json.loads(line)
                at = datetime.fromisoformat(fields["timestamp"]).timestamp()
                yield Event(process, at, fields["level"], fields["event"], fields)


def evictions(said: Iterable[Event]) -> list[Eviction]:
    """Each once, by the first who tells of it."""
    said = list(said)
    names = identities(said)
    found: dict[int, Eviction] = {}
    for event in sorted((event for event in said if event.name == "node evicted"), key=lambda event: event.at):
        node = int(event.fields["node"], 16)
        found.setdefault(node, Eviction(node, names.get(node, "?"), event.at))
    return list(found.values())


def identities(said: Iterable[Event]) -> dict[int, str]:
    """Which process a node number was; a process that was paused has several numbers in its life."""
    return {int(event.fields["node"], 16): event.process for event in said if event.name == "joined"}


def faults(logs: Mapping[str, str]) -> list[str]:
    """What no injected fault excuses: unexpected errors, lines that are not events, and loops that do not wait."""
    said = list(events(logs))
    found = [
        f"{event.process}: {_short(event.name)}: {_short(str(event.fields.get('error', '')))}"
        for event in said
        if (event.level in ("error", "critical") and not event.name.startswith(ALERTS)) or _has_traceback(event)
    ]
    for process, text in logs.items():
        odd = (line for line in text.splitlines() if not line.startswith("{") and not PLAIN.fullmatch(line))
        found += [f"{process} said: {_short(line)}" for line in odd]
    return found + floods(said)


def _unforeseen(event: Event) -> bool:
    error = event.level in ("error", "critical") and not event.name.startswith(ALERTS)
    return error or _has_traceback(event)


def _has_traceback(event: Event) -> bool:
    """Those of failed handlers are in the log on purpose."""
    return "Traceback" in str(event.fields.get("exception")) and event.fields.get("part") != "run"


def _short(text: str) -> str:
    return " ".join(text.split())[:200]


def floods(said: Iterable[Event]) -> list[str]:
    """One process that says the same again and again."""
    times: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    for event in said:
        subject = event.fields.get("loop") or event.fields.get("run") or ""
        times[event.process, event.name, subject].append(event.at)
    return [
        f"{process} said {name!r} ({subject}) {FLOOD} times within {FLOOD_SECONDS:g} s"
        for (process, name, subject), at in times.items()
        if any(later - earlier < FLOOD_SECONDS for earlier, later in zip(at, at[FLOOD:], strict=False))
    ]


def server_faults(name: str, text: str) -> list[str]:
    return [f"{name}: {line}" for line in text.splitlines() if SERVER_FAULTS.search(line)]
