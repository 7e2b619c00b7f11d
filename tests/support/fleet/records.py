"""Everything that was seen of a run, as plain values that can be written to one file and judged again later."""

from __future__ import annotations

import gzip
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from tests.support.fleet.plans import Fault, Plan


class Call(msgspec.Struct, frozen=True, array_like=True):
    """One call as it arrived. `at` is this machine's clock, `effect` what a target that deduplicates answered."""

    key: str
    run_id: str
    job: str
    scheduled_at: float
    attempt: int
    token: int
    body: str
    at: float
    effect: str
    answered: float | None = None

    @property
    def lateness(self) -> float:
        return self.at - self.scheduled_at


class Done(msgspec.Struct, frozen=True):
    """A fault as it happened, on this machine's clock. `note` tells what was found out by it."""

    fault: Fault
    begun: float
    ended: float
    note: str = ""


class Job(msgspec.Struct, frozen=True, array_like=True):
    """A job that ticks at every full second, or at those that `every` divides. Between asking and being answered a
    change may or may not hold yet. `takes` is how long its runs last, retries and all; in `gaps` it was paused."""

    number: int
    id: str
    name: str
    registering: float
    registered: float
    pausing: float
    paused: float
    every: int = 1
    takes: float = 0.0
    gaps: tuple[tuple[float, float], ...] = ()

    def due(self) -> set[int]:
        """The ticks, in seconds since 1970, that must be accounted for."""
        ticks = self._between(self.registered, self.pausing)
        return {tick for tick in ticks if not any(begun <= tick <= ended for begun, ended in self.gaps)}

    def possible(self) -> set[int]:
        return self._between(self.registering, self.paused)

    def _between(self, begun: float, ended: float) -> set[int]:
        return {tick for tick in range(int(begun) + 1, int(ended) + 1) if tick % self.every == 0}


class Run(msgspec.Struct, frozen=True, array_like=True):
    """A row of `run_history`."""

    job: int
    scheduled_at: float
    serial: int
    run_id: str
    token: int | None
    node: int | None
    started_at: float | None
    finished_at: float
    attempt: int | None
    status: int
    ticks: int | None
    until: float | None
    reason: str | None
    result: str | None


class Attempt(msgspec.Struct, frozen=True, array_like=True):
    job: int
    scheduled_at: float
    serial: int
    token: int
    node: int | None
    started_at: float | None
    finished_at: float
    attempt: int
    outcome: str


class Election(msgspec.Struct, frozen=True, array_like=True):
    partition: int
    term: int
    node: int
    nomination: int
    at: float


class Partition(msgspec.Struct, frozen=True, array_like=True):
    partition: int
    holder: int | None
    term: int


class OpenRun(msgspec.Struct, frozen=True, array_like=True):
    job: int
    scheduled_at: float
    serial: int
    token: int
    owner: int | None


class Tables(msgspec.Struct, frozen=True):
    runs: list[Run] = []
    open_runs: list[OpenRun] = []
    attempts: list[Attempt] = []
    elections: list[Election] = []
    partitions: list[Partition] = []


class Audit(msgspec.Struct, frozen=True):
    """What `detent audit` said when all was over."""

    code: int
    text: str


class Record(msgspec.Struct, frozen=True):
    plan: Plan
    ttl: float
    began: float
    ended: float
    jobs: list[Job]
    calls: list[Call]
    tables: Tables
    done: list[Done]
    # What each process said, by place and number (`s1.2`), and the servers under theirs.
    logs: dict[str, str]
    # Processes that ended although the test did not end them.
    gone: list[str] = []
    # What a primary that lost its place had in its tables.
    former: Tables | None = None
    audit: Audit | None = None

    def write(self, path: Path) -> None:
        path.write_bytes(gzip.compress(msgspec.json.encode(self), 1))

    @staticmethod
    def read(path: Path) -> Record:
        return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=Record)


QUERIES: dict[str, tuple[str, type]] = {
    "runs": (
        "SELECT job, scheduled_at, serial, run_id(job, scheduled_at, serial)::text, token, node, started_at,"
        " finished_at, attempt, status, ticks, until, reason, result FROM run_history",
        Run,
    ),
    "open_runs": ("SELECT job, scheduled_at, serial, token, owner FROM live_runs", OpenRun),
    "attempts": (
        "SELECT job, scheduled_at, serial, token, node, started_at, finished_at, attempt, outcome FROM attempts",
        Attempt,
    ),
    "elections": ("SELECT partition, term, node, nomination, at FROM elections ORDER BY partition, term", Election),
    "partitions": ("SELECT partition, holder, term FROM partitions", Partition),
}


async def read_tables(look: Any) -> Tables:
    """All as of one moment."""
    found: dict[str, list[Any]] = {}
    async with look.transaction(isolation="repeatable_read", readonly=True):
        for name, (query, kind) in QUERIES.items():
            found[name] = [kind(*map(_plain, row)) for row in await look.fetch(query)]
    return Tables(**found)


def _plain(value: Any) -> Any:
    return value.timestamp() if isinstance(value, datetime) else value
