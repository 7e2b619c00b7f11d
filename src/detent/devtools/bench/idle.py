"""The cost of an idle node, in CPU and in statements.

A real `detent serve` on its own database, with jobs that are not due for a long time. The server logs every statement,
and the log is read afterwards: so statements of all connections are counted by name. CPU is what the kernel counts for
the node and for all processes of PostgreSQL.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from detent.client import AsyncClient
from detent.devtools.bench.nodes import ServeProcess, throw_away_database
from detent.devtools.bench.processes import PROC, children_seconds, process_seconds
from detent.errors import Unavailable
from detent.runtime.clock import monotonic
from detent.store.embedded import EmbeddedServer
from detent.store.statement import STATEMENTS

SETTLE_SECONDS = 15.0  # in which a node takes its partitions, loads its window and makes its connections
LOGGED = {"log_statement": "all", "log_duration": "off", "log_min_duration_statement": "-1"}

_ENTRY = re.compile(r"^\d{4}-\d\d-\d\d \S+ \S+ \[\d+\] ", re.MULTILINE)
_STATEMENT = re.compile(r"LOG:  (?:execute [^:]*|statement): (.*)", re.DOTALL)
_COMMENT = re.compile(r"--[^\n]*")


@dataclass
class IdleResult:
    seconds: float
    jobs: int
    node_cpu_percent: float
    database_cpu_percent: float
    queries_per_second: float
    statements: dict[str, float]
    """Statements per second, by name."""


async def bench_idle(jobs: int, seconds: int, progress: Callable[[int], None]) -> IdleResult:
    if not PROC.is_dir():
        raise Unavailable("This measurement reads /proc, which does not exist here: run it on Linux.")
    async with throw_away_database(LOGGED) as server:
        node = await ServeProcess.start(server.url)
        try:
            await _register(node, jobs)
            await asyncio.sleep(SETTLE_SECONDS)
            return await _measure(server, node.pid, jobs, seconds, progress)
        finally:
            await node.kill()


async def _register(node: ServeProcess, jobs: int) -> None:
    target = {"type": "http", "url": "http://127.0.0.1:9/"}
    documents = [{"name": f"bench-{number}", "schedule": "0 0 1 1 *", "target": target} for number in range(jobs)]
    if documents:
        async with AsyncClient(node.url) as client:
            await client.create_jobs(documents)


async def _measure(
    server: EmbeddedServer, pid: int, jobs: int, seconds: int, progress: Callable[[int], None]
) -> IdleResult:
    position = server.log.stat().st_size
    node, database, began = process_seconds(pid), children_seconds(server.postmaster), monotonic()
    for second in range(seconds):
        await asyncio.sleep(max(began + second + 1 - monotonic(), 0))
        progress(second + 1)
    took = monotonic() - began
    node_cpu, database_cpu = process_seconds(pid) - node, children_seconds(server.postmaster) - database
    with server.log.open("rb") as log:
        log.seek(position)
        counted = count_statements(log.read().decode(errors="replace"))
    return IdleResult(
        took,
        jobs,
        node_cpu / took * 100,
        database_cpu / took * 100,
        counted.total() / took,
        {name: times / took for name, times in counted.most_common()},
    )


def count_statements(log: str) -> Counter[str]:
    """How often each statement occurs in a log, by the name of its file, or by its first words."""
    names = _names()
    counted: Counter[str] = Counter()
    for entry in _ENTRY.split(log):
        found = _STATEMENT.match(entry)
        if found is not None:
            text = _plain(found[1])
            counted[names.get(text, text[:60])] += 1
    return counted


def _names() -> dict[str, str]:
    return {_plain(statement.text): statement.name for statement in STATEMENTS.values()}


def _plain(text: str) -> str:
    return " ".join(_COMMENT.sub(" ", text).split()).rstrip(";").strip()


def as_table(result: IdleResult) -> list[tuple[str, str]]:
    return [
        ("idle for", f"{result.seconds:.0f} s, with {result.jobs:,} jobs that are not due"),
        ("CPU of the node", f"{result.node_cpu_percent:.2f} % of a core"),
        ("CPU of PostgreSQL", f"{result.database_cpu_percent:.2f} % of a core, the writing of its log included"),
        ("statements per second", f"{result.queries_per_second:.2f}"),
        *((f"  {name}", f"{rate:.2f}") for name, rate in result.statements.items()),
    ]
