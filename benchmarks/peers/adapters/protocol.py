"""How the runner and an adapter talk: `python ADAPTER.py fill|work|flow URL JOBS START`, answered by one line of JSON.

`fill` makes the schema and the jobs; it is timed apart. `work` does them all and tells when it began and ended, on the
machine's clock, because several workers may share the work. `flow` puts the jobs in while they are being done, into a
store that was filled with none: what a queue does in place of a scheduler's whole loop. START is when they all begin:
whoever is ready waits, so that nobody's imports or connections are measured. An adapter runs in the interpreter of the
peers, so it knows only the standard library, its peer, and this file.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass


@dataclass
class Work:
    """`runs` is how often the job was called here, `recorded` how many the store says are done, by all workers."""

    began: float
    ended: float
    runs: int
    recorded: int


@dataclass
class Asked:
    url: str
    jobs: int
    start: float
    cpu_began: float | None = None

    async def started(self) -> float:
        await asyncio.sleep(max(self.start - time.time(), 0))
        self.cpu_began = time.process_time()
        return time.time()


class Counter:
    """What the no-op job does: it counts, and remembers when it was first called. At `last` it tells."""

    def __init__(self, last: int = 0, reached: Callable[[], None] = lambda: None) -> None:
        self.runs = 0
        self.first = 0.0
        self._last = last
        self.reached = reached

    def hit(self) -> None:
        if not self.runs:
            self.first = time.time()
        self.runs += 1
        if self.runs == self._last:
            self.reached()


def main(fill: Callable[[Asked], Awaitable[None]], **phases: Callable[[Asked], Awaitable[Work]]) -> None:
    phase, url, jobs, start = sys.argv[1:5]
    asked = Asked(url, int(jobs), float(start))
    answer = _run(_timed(fill, asked)) if phase == "fill" else asdict(_run(phases[phase](asked)))
    # Of this process, since it was told to start: not of others that it may have started itself.
    cpu = None if asked.cpu_began is None else time.process_time() - asked.cpu_began
    print(json.dumps({**answer, "cpu_seconds": cpu}))


async def _timed(fill: Callable[[Asked], Awaitable[None]], asked: Asked) -> dict[str, float]:
    began = time.monotonic()
    await fill(asked)
    return {"seconds": time.monotonic() - began}


def _run(work):
    """On the faster loop where the peer can: detent is measured on it too."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)
