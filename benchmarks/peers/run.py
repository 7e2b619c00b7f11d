"""detent's loop beside the loops and queues a Python user would take instead, on this machine, in one run.

`make bench-peers` runs this with detent's interpreter; the peers live in one of their own, `--peers-python`. Rounds are
interleaved and each begins with another system, so that a machine that gets slower or busier does so for all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from report import Cell, as_text, summary
from stores import Stores, stores
from systems import DETENT, PEERS, System

ADAPTERS = Path(__file__).parent / "adapters"
READY_SECONDS = 3.0
LONGEST_CELL = 600.0


async def measure(system: System, at: Stores, peers_python: str) -> Cell:
    if system is DETENT or not system.adapter:
        return await _detent(system)
    async with at.fresh(system.store) as url:
        adapter = [peers_python, str(ADAPTERS / system.adapter)]
        apart = system.phase == "work"
        put_in = str(system.jobs if apart else 0)
        (filled,) = await _answers([*adapter, "fill", url, put_in, "0"], 1, system.settings)
        await at.settle(system.store, url)
        start = str(time.time() + READY_SECONDS)
        before = at.cpu_seconds(system.store)
        asked = [*adapter, system.phase, url, str(system.jobs), start]
        works = await _answers(asked, system.workers, system.settings)
        after = at.cpu_seconds(system.store)
    done = sum(work["runs"] for work in works)
    recorded = max(work["recorded"] for work in works)
    if done != system.jobs or recorded != system.jobs:
        raise SystemExit(
            f"{system.name} had {system.jobs} jobs, did {done} and recorded {recorded}: that is no figure."
        )
    seconds = max(work["ended"] for work in works) - min(work["began"] for work in works)
    return Cell(
        system.jobs / seconds,
        system.jobs / filled["seconds"] if apart else None,
        _per_run([work["cpu_seconds"] for work in works], system.jobs),
        None if before is None or after is None else (after - before) / system.jobs * 1e6,
    )


def _per_run(seconds: Sequence[float | None], runs: int) -> float | None:
    known = [one for one in seconds if one is not None]
    return sum(known) / runs * 1e6 if len(known) == len(seconds) else None


async def _detent(system: System) -> Cell:
    command = [sys.executable, "-m", "detent", "bench", "loop", "--rounds", "1", "--jobs", str(system.jobs), "--json"]
    (answer,) = await _answers(command, 1, system.settings)
    median = answer["median"]
    cpu, server = median["our_microseconds_per_run"], median["server_microseconds_per_run"]
    return Cell(median["runs_per_second"], None, cpu, server)


async def _answers(command: Sequence[str], processes: int, settings: Mapping[str, str]) -> list[Mapping[str, Any]]:
    async with asyncio.timeout(LONGEST_CELL):
        return await asyncio.gather(*(_answer(command, settings) for _ in range(processes)))


async def _answer(command: Sequence[str], settings: Mapping[str, str]) -> Mapping[str, Any]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DETENT_")}
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={**environ, **settings}
    )
    try:
        said, errors = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        raise
    if process.returncode:
        tail = errors.decode(errors="replace")[-2000:]
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{tail}")
    answer: Mapping[str, Any] = json.loads(said)
    return answer


async def run(systems: Sequence[System], rounds: int, peers_python: str) -> dict[str, list[Cell]]:
    cells: dict[str, list[Cell]] = {system.name: [] for system in systems}
    async with stores(with_redis=any(system.store == "redis" for system in systems)) as at:
        for number in range(rounds):
            shift = number % len(systems)
            for system in [*systems[shift:], *systems[:shift]]:
                cell = await measure(system, at, peers_python)
                cells[system.name].append(cell)
                _tell(f"round {number + 1} of {rounds}: {system.name} {cell.runs_per_second:,.0f} runs/s")
    return cells


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _chosen(only: Sequence[str], scale: float, *, redis: bool) -> list[System]:
    words = [word.lower() for word in only]
    systems = [
        dataclasses.replace(system, jobs=max(int(system.jobs * scale), 10))
        for system in (DETENT, *PEERS)
        if (redis or system.store != "redis") and (not words or any(word in system.name.lower() for word in words))
    ]
    if not systems:
        raise SystemExit(f"No system is called {', '.join(only)}: there are {', '.join(s.name for s in PEERS)}.")
    return systems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--peers-python", required=True, help="the interpreter in which the peers are installed")
    parser.add_argument("--rounds", type=int, default=5, help="[5]")
    parser.add_argument("--scale", type=float, default=1.0, help="times the number of jobs of each [1]")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="parts of names, for example detent pgq")
    parser.add_argument("--no-redis", action="store_true", help="leave Celery out")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    given = parser.parse_args()
    systems = _chosen(given.only, given.scale, redis=not given.no_redis)
    result = summary(systems, asyncio.run(run(systems, given.rounds, given.peers_python)))
    print(json.dumps(result, indent=2) if given.json else as_text(result))


if __name__ == "__main__":
    main()
