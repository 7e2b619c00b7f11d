"""Runs that no worker serves: what is missing, and what to start, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from detent.domain.functions import did_you_mean
from detent.domain.job import CALLBACK_NEEDS, TASK_NEEDS
from detent.domain.topics import extra_of

CELERY = "celery"


class WaitingPlace(NamedTuple):
    """Where runs wait: a queue, and what a worker needs to run them (`needs_of`)."""

    queue: str
    needs: str


class Unserved(NamedTuple):
    """A place that no worker serves. `workers`: there are workers; `able`: the queues of those that have the needs;
    `known`: the functions of all workers."""

    place: WaitingPlace
    workers: bool
    able: Sequence[str]
    known: Sequence[str]


def place_of(queue: str, needs: str) -> WaitingPlace:
    """On-demand runs wait in queues of their own, which the same workers serve."""
    return WaitingPlace(queue, needs.removeprefix(TASK_NEEDS))


def unserved_sentence(lack: Unserved, *, tenant: str = "TENANT", connect: str = "") -> str:
    """`connect`: options with which a worker reaches the same database."""
    command = f"detent worker{_options(lack.place, tenant)}{connect}"
    function = _function(lack.place.needs)
    if lack.able:
        return f"No worker serves the queue {lack.place.queue!r}{_others(lack)}: start one with `{command}`."
    if not lack.workers:
        what = f", and the function {function!r} needs one that has it" if function else ""
        return f"No worker is running{what}: start one with `{command}`."
    if function:
        near = did_you_mean(function, lack.known)
        return f"No worker has the function {function!r}{near}: start one with `{command}`."
    protocol = _protocol(lack.place.needs)
    if protocol:
        return (
            f"No worker has the client for {protocol}: run `pip install 'detent[{extra_of(protocol)}]'` where a worker "
            f"runs, and start it again with `{command}`."
        )
    if lack.place.needs == CALLBACK_NEEDS:
        return f"No worker is of a version that waits for callbacks: start one with `{command}`."
    if lack.place.needs == CELERY:
        return f"No worker has the Celery client: install `detent[celery]` and start one with `{command}`."
    if app := _celery_app(lack.place.needs):
        return f"No worker sends tasks of the Celery app {app!r} for this tenant: start one with `{command}`."
    return f"No worker runs the commands of this tenant: start one with `{command}`."


def _others(lack: Unserved) -> str:
    """Other queues matter only to those who thought that a worker with the function is enough."""
    if not lack.place.needs:
        return ""
    plural = "" if len(lack.able) == 1 else "s"
    return f" with what the job needs (those that have it serve the queue{plural} {', '.join(lack.able)})"


def _options(place: WaitingPlace, tenant: str) -> str:
    queue = "" if place.queue == "default" else f" --queue {place.queue}"
    function = _function(place.needs)
    if function:
        module, separator, _ = function.partition(":")
        return f" --app {module if separator else 'MODULE'}:app{queue}"
    if app := _celery_app(place.needs):
        return f" --celery-apps {app}@{tenant}{queue}"
    return f" --allow-shell {tenant}{queue}" if place.needs == "shell" else queue


def _protocol(needs: str) -> str | None:
    """Of a topic target."""
    kind, separator, name = needs.partition(":")
    return name if separator and kind == "topic" else None


def _celery_app(needs: str) -> str | None:
    return needs.removeprefix(f"{CELERY}:") if needs.startswith(f"{CELERY}:") else None


def _function(needs: str) -> str | None:
    kind, separator, name = needs.partition(":")
    return name if separator and kind in ("python", "process") else None
