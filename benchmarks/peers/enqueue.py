"""How many runs per second can be enqueued: detent's SQL functions beside other queues on PostgreSQL, in one run.

`make bench-enqueue-peers` runs this with detent's interpreter; all adapters, detent's too, live in another one,
`--peers-python`. Every system has a process and a database of its own on one server. For each column they take turns,
and each round begins with another one, so that a machine that gets slower does so for all of them. No worker runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from enqueue_report import DETENT, EnqueueCell, EnqueueSystem, as_text, faults, summary
from stores import Stores, stores

from detent.devtools.bench.enqueue_calls import TASK
from detent.devtools.bench.enqueue_columns import COLUMNS, EnqueueColumn
from detent.devtools.bench.enqueue_tasks import BenchTasks
from detent.node.database import opened_store, prepare_database
from detent.settings.settings import Settings

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
LONGEST_ANSWER = 120.0
SYSTEMS = (
    EnqueueSystem(DETENT, "enqueue_detent.py"),
    EnqueueSystem("Procrastinate", "enqueue_procrastinate.py"),
    EnqueueSystem("PgQueuer", "enqueue_pgqueuer.py"),
    EnqueueSystem("Oban (Python)", "enqueue_oban.py"),
)


class AdapterProcess:
    """An adapter that has said that it is ready."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self._name = name
        self._process = process

    async def ask(self, question: dict[str, Any] | None = None) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if question is not None:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
        async with asyncio.timeout(LONGEST_ANSWER):
            line = await self._process.stdout.readline()
        if not line:
            raise SystemExit(f"The adapter of {self._name} ended, with {await self._process.wait()}.")
        answer: dict[str, Any] = json.loads(line)
        return answer


@asynccontextmanager
async def adapter(system: EnqueueSystem, at: Stores, peers_python: str) -> AsyncIterator[AdapterProcess]:
    async with at.fresh("postgres") as url:
        if system.name == DETENT:
            await _prepare_detent(url)
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("DETENT_", "OBAN_"))}
        process = await asyncio.create_subprocess_exec(
            *(peers_python, str(HERE / "adapters" / system.adapter), url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**environ, "PYTHONPATH": str(SOURCE)},
        )
        try:
            yield AdapterProcess(system.name, process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _prepare_detent(url: str) -> None:
    await prepare_database(url, "detent", migrate=True)
    async with opened_store(url, Settings()) as store:
        await BenchTasks(store).make([TASK])


async def measure(column: EnqueueColumn, name: str, process: AdapterProcess, at: Stores, seconds: float) -> EnqueueCell:
    await at.checkpoint()
    before = at.cpu_seconds("postgres") or 0.0
    answer = await process.ask({"column": column.name, "seconds": seconds})
    server = (at.cpu_seconds("postgres") or 0.0) - before
    calls = answer["calls"] * column.runs_per_call
    expected = (calls if column.enqueues else 0, answer["calls"] if column.inserts else 0)
    if (answer["runs"], answer["orders"]) != expected:
        raise SystemExit(f"{name}, {column.title}: {expected} runs and rows are expected, and it answers {answer}.")
    return EnqueueCell(answer["per_second"], answer["cpu_seconds"] / calls * 1e6, server / calls * 1e6)


async def run(
    systems: Sequence[EnqueueSystem], columns: Sequence[EnqueueColumn], rounds: int, seconds: float, peers_python: str
) -> dict[str, Any]:
    cells: dict[str, dict[str, list[EnqueueCell]]] = {
        system.name: {column.name: [] for column in columns} for system in systems
    }
    async with stores(with_redis=False) as at, AsyncExitStack() as stack:
        processes = {
            system.name: await stack.enter_async_context(adapter(system, at, peers_python)) for system in systems
        }
        versions = {name: await process.ask() for name, process in processes.items()}
        for number in range(rounds):
            shift = number % len(systems)
            for column in columns:
                for system in [*systems[shift:], *systems[:shift]]:
                    cell = await measure(column, system.name, processes[system.name], at, seconds)
                    cells[system.name][column.name].append(cell)
                    _tell(f"round {number + 1} of {rounds}: {column.title}: {system.name} {cell.per_second:,.0f}/s")
    return summary(systems, columns, cells, versions)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _chosen(only: Sequence[str]) -> list[EnqueueSystem]:
    words = [word.lower() for word in only]
    systems = [each for each in SYSTEMS if not words or any(word in each.name.lower() for word in words)]
    if not systems:
        raise SystemExit(f"No system is called {', '.join(only)}: there are {', '.join(s.name for s in SYSTEMS)}.")
    return systems


def _columns(only: Sequence[str]) -> list[EnqueueColumn]:
    columns = [column for column in COLUMNS if not only or column.name in only]
    if not columns:
        raise SystemExit(f"No column is called {', '.join(only)}: there are {', '.join(c.name for c in COLUMNS)}.")
    return columns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--peers-python", required=True, help="the interpreter in which the peers are installed")
    parser.add_argument("--rounds", type=int, default=5, help="[5]")
    parser.add_argument("--seconds", type=float, default=1.5, help="of each column in each round [1.5]")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="parts of names, for example detent oban")
    parser.add_argument("--columns", nargs="*", default=[], metavar="COLUMN", help="for example single-8 batch-1")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    given = parser.parse_args()
    systems, columns = _chosen(given.only), _columns(given.columns)
    result = asyncio.run(run(systems, columns, given.rounds, given.seconds, given.peers_python))
    print(json.dumps(result, indent=2) if given.json else as_text(result))
    if behind := faults(result):
        raise SystemExit("\n".join(behind))


if __name__ == "__main__":
    main()
