"""What was seen of enqueuers and their runs, as plain values that can be written to one file and judged again."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec

from tests.support.fleet.records import Attempt, Audit, Call


class Order(msgspec.Struct, frozen=True, array_like=True):
    """A committed row of the callers' own table. `asked`: before its transaction began. `committed`: the database's
    time of its commit. `created` False: the run was there already, under the same unique key."""

    reference: str
    task: str
    customer: str
    run_id: str
    created: bool
    unique_key: str | None
    isolation: str
    asked: float
    committed: float


class EndedRun(msgspec.Struct, frozen=True, array_like=True):
    """A row of `run_history` of an on-demand run."""

    run_id: str
    job: int
    scheduled_at: float
    serial: int
    token: int | None
    status: int
    reason: str | None
    attempt: int | None
    finished_at: float
    committed: float


class Kill(msgspec.Struct, frozen=True, array_like=True):
    """`step`: the failpoint at which the process ended; empty: killed from outside, at any moment."""

    place: str
    at: float
    step: str = ""


class OrderBook(msgspec.Struct, frozen=True):
    seed: int
    began: float
    ended: float
    orders: list[Order]
    runs: list[EndedRun]
    attempts: list[Attempt]
    calls: list[Call]
    kills: list[Kill]
    # What the enqueuers noted: runs that they got and then rolled back, and transactions that failed with 40001.
    rolled_back: list[str]
    repeated: list[str]
    # How many runs were left in each table when all should have ended.
    left: dict[str, int] = {}
    logs: dict[str, str] = {}
    gone: list[str] = []
    audit: Audit | None = None

    def write(self, path: Path) -> None:
        path.write_bytes(gzip.compress(msgspec.json.encode(self), 1))

    @staticmethod
    def read(path: Path) -> OrderBook:
        return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=OrderBook)


CREATE_ORDERS = """
CREATE TABLE public.orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    reference text NOT NULL,
    task text NOT NULL,
    customer text NOT NULL,
    run uuid,
    created boolean NOT NULL,
    unique_key text,
    isolation text NOT NULL,
    asked double precision NOT NULL
);
CREATE INDEX ON public.orders (customer, id);
"""
# Times of commit (track_commit_timestamp), because a transaction may last long after its last statement.
READ_ORDERS = """
SELECT reference, task, customer, coalesce(run::text, ''), created, unique_key, isolation, asked,
       extract(epoch FROM pg_xact_commit_timestamp(xmin))::double precision
  FROM public.orders
"""
READ_RUNS = """
SELECT run_id(job, scheduled_at, serial)::text, job, extract(epoch FROM scheduled_at)::double precision, serial, token,
       status, reason, attempt, extract(epoch FROM finished_at)::double precision,
       extract(epoch FROM pg_xact_commit_timestamp(xmin))::double precision
  FROM run_history WHERE serial >= $1
"""
READ_ATTEMPTS = """
SELECT job, extract(epoch FROM scheduled_at)::double precision, serial, token, node,
       extract(epoch FROM started_at)::double precision, extract(epoch FROM finished_at)::double precision, attempt,
       outcome
  FROM attempts WHERE serial >= $1
"""


async def read(look: Any, query: str, kind: type, *arguments: Any) -> list[Any]:
    return [kind(*row) for row in await look.fetch(query, *arguments)]
