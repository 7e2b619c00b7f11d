"""Rows with on-demand runs that a scenario begins with."""

from __future__ import annotations

from detent.domain.identity import ON_DEMAND, RunKey
from detent.domain.run import Claim
from tests.interleavings.world import FIRST_TOKEN, PARTITION, tick

KEY = "k"
UNIQUE = "u"


def task(limit: int | None = None) -> str:
    return (
        "INSERT INTO cursors (job, queue, schedule, partition, task, key_limit)"
        f" VALUES (1, 1, 1, {PARTITION}, true, {limit or 'NULL'});"
    )


def key(number: int = 0) -> RunKey:
    return RunKey(1, tick(0), ON_DEMAND + number)


def waiting(number: int = 0, *, concurrency: str | None = None, unique: str | None = None) -> str:
    """A run that waits in the backlog."""
    payload = "NULL" if unique is None else f"""'{{"unique": "{unique}"}}'"""
    return (
        "INSERT INTO backlog (job, scheduled_at, not_before, token, priority, serial, queue, revision, keyed, key,"
        f" payload) VALUES (1, '{tick(0)}', '{tick(number)}', {FIRST_TOKEN}, 5, {ON_DEMAND + number}, 1, 1,"
        f" {concurrency is not None}, {_quoted(concurrency)}, {payload});"
        + ("" if unique is None else holds(number, unique))
    )


def live(owner: int, number: int = 0, *, concurrency: str | None = None, unique: str | None = None) -> str:
    """A run that was claimed from the backlog."""
    taken = waiting(number, concurrency=concurrency, unique=unique) + (
        "INSERT INTO live_runs (job, scheduled_at, token, owner, not_before, serial, queue, revision, lane, priority,"
        f" key, payload) SELECT job, scheduled_at, token, {owner}, not_before, serial, queue, revision, serial,"
        f" priority, key, payload FROM backlog WHERE serial = {ON_DEMAND + number};"
        f"DELETE FROM backlog WHERE serial = {ON_DEMAND + number};"
    )
    return taken if concurrency is None else taken + has_place(number, concurrency)


def dead(number: int = 0) -> str:
    return (
        "INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status, reason)"
        f" VALUES (1, '{tick(0)}', {FIRST_TOKEN}, '{tick(0)}', {ON_DEMAND + number}, 1, 1, 2, 'failed');"
    )


def held(number: int = 0, *, lane: int | None = None, concurrency: str | None = None) -> Claim:
    """The claim on a run made by `live`, or by `in_lane`."""
    serial = ON_DEMAND + number
    return Claim(1, serial if lane is None else lane, tick(0), serial, FIRST_TOKEN, 1, concurrency_key=concurrency)


def in_lane(number: int, owner: int | None = None, *, job: int = 1) -> str:
    """An on-demand run of a job with a schedule, in the lane of its number: of a node, or waiting for its key."""
    return (
        "INSERT INTO live_runs (job, scheduled_at, token, owner, not_before, serial, queue, revision, lane, priority,"
        f" key) VALUES ({job}, '{tick(0)}', {FIRST_TOKEN}, {owner or 'NULL'},"
        f" '{tick(0) if owner else 'infinity'}', {ON_DEMAND + number}, 1, 1, {number}, 5, '{KEY}');"
    )


def holds(number: int, unique: str) -> str:
    """A run that has a unique key, whether or not it has ended."""
    return (
        "INSERT INTO unique_keys (job, key, scheduled_at, serial)"
        f" VALUES (1, '{unique}', '{tick(0)}', {ON_DEMAND + number});"
    )


def has_place(number: int, concurrency: str, *, lane: int | None = None) -> str:
    return (
        "INSERT INTO key_places (scope, key, place, job, lane, scheduled_at)"
        f" VALUES (1, '{concurrency}', 0, 1, {ON_DEMAND + number if lane is None else lane}, '{tick(0)}');"
    )


def _quoted(text: str | None) -> str:
    return "NULL" if text is None else f"'{text}'"
