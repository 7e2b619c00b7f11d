"""A process that enqueues runs at a steady rate, apart from the node: `python -m detent.devtools.bench.enqueuer`.

It shares no interpreter with the worker whose lateness is measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass

from detent.devtools.bench.enqueue_tasks import TaskClient
from detent.errors import Unavailable
from detent.runtime.clock import monotonic
from detent.store.db import connected

CONNECTIONS = 8
STEADY_NUMBER = "steady"


@dataclass
class SteadyLoad:
    """Runs of one task whose payloads number them from 0. `keys`: each has a concurrency key of its own."""

    url: str
    task: str
    rate: int
    seconds: float
    keys: bool = False

    @property
    def runs(self) -> int:
        return max(1, int(self.rate * self.seconds))


@asynccontextmanager
async def steady_enqueuer(load: SteadyLoad) -> AsyncIterator[asyncio.subprocess.Process]:
    """The process, which enqueues from now on and ends by itself."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "detent.devtools.bench.enqueuer", json.dumps(asdict(load))),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def enqueued_by(process: asyncio.subprocess.Process) -> float:
    """Wait until it has enqueued all; returns how many runs per second it has reached."""
    said, _ = await process.communicate()
    if process.returncode:
        raise Unavailable(f"The enqueuing process ended with {process.returncode}.")
    per_second: float = json.loads(said)
    return per_second


async def enqueue_steadily(load: SteadyLoad) -> float:
    """One run after another at its time, on several connections; returns how many per second."""
    numbers = iter(range(load.runs))
    async with AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(connected(load.url, "detent")) for _ in range(min(CONNECTIONS, load.runs))
        ]
        began = monotonic()

        async def work(client: TaskClient) -> None:
            for number in numbers:
                await asyncio.sleep(max(0.0, began + number / load.rate - monotonic()))
                if load.keys:
                    await client.keyed({STEADY_NUMBER: number}, f"own-{number}")
                else:
                    await client.single({STEADY_NUMBER: number})

        await asyncio.gather(*(work(TaskClient(each, load.task)) for each in connections))
        return load.runs / (monotonic() - began)


def main() -> None:
    from detent.node.process import loop_factory

    load = SteadyLoad(**json.loads(sys.argv[1]))
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        print(runner.run(enqueue_steadily(load)))  # noqa: T201 - the answer to the process that started this one


if __name__ == "__main__":
    main()
