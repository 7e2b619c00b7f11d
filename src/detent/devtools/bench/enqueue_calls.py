"""How the benchmarks call detent's SQL functions. Like `enqueue_columns`, it imports only the standard library."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from detent.devtools.bench.enqueue_columns import Payload, encode

TASK = "bench-enqueue"
STATEMENTS = Path(__file__).parents[1] / "sql" / "bench"


def read_statement(name: str) -> str:
    """For an interpreter that cannot import the store."""
    return (STATEMENTS / f"{name}.sql").read_text()


def as_runs(payloads: Iterable[Payload], **others: object) -> str:
    """The argument of `enqueue_many`; `others` are the same for all runs: `delay_seconds`, `priority`, …"""
    return encode([{"payload": payload, **others} for payload in payloads])
