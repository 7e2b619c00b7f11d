"""A node in a process of its own, with a target that does nothing but record how late it is called:
`python -m detent.devtools.bench.node_apart`.

It reads commands from its standard input, and ends with it:

    load                  look for new jobs
    ended                 answer with the number of runs that ended here
    since SINCE UNTIL     answer with the figures of the ticks between these times
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

from detent.devtools.bench.bare_clients import AWS
from detent.devtools.bench.latency import LatencyRecorder
from detent.errors import Unavailable
from detent.node.database import opened_store
from detent.node.process import collect_garbage_seldom, loop_factory
from detent.node.session import Session
from detent.settings.settings import Settings
from detent.telemetry.log import configure
from detent.telemetry.metrics import Metrics

# An answer has a number for each run.
MAX_LINE = 1 << 28


@dataclass
class ApartPlan:
    url: str
    roles: tuple[str, ...]
    queue: str
    concurrency: int


@dataclass
class ApartFigures:
    """How late the ticks within a time were called, in milliseconds, the earliest first. `offers_taken` and `fallbacks`
    are those of the whole process."""

    late: list[float]
    offers_taken: int
    fallbacks: int


class NodeApart:
    """The process, as the measurement sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def load(self) -> None:
        await self._say("load")

    async def ended(self) -> int:
        await self._say("ended")
        return int(await self.answer())

    async def figures(self, since: float, until: float) -> ApartFigures:
        await self._say(f"since {since} {until}")
        return ApartFigures(**json.loads(await self.answer()))

    async def answer(self) -> bytes:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise Unavailable("A node of the measurement has ended.")
        return line

    async def _say(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        await self._process.stdin.drain()


@asynccontextmanager
async def node_apart(plan: ApartPlan) -> AsyncIterator[NodeApart]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DETENT_")}
    if plan.queue.startswith("sqs:"):
        environ |= {name.upper(): value for name, value in AWS.items() if name != "region_name"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "detent.devtools.bench.node_apart", json.dumps(asdict(plan))),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environ,
        limit=MAX_LINE,
    )
    node = NodeApart(process)
    try:
        await node.answer()  # it has joined
        yield node
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(20):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


# --- in the process ---


async def _serve(plan: ApartPlan) -> None:
    settings = Settings(concurrency=plan.concurrency, queue=plan.queue)
    recorder, metrics = LatencyRecorder(), Metrics()
    async with opened_store(plan.url, settings) as store:
        session = Session(store, settings, tuple(plan.roles), {"http": recorder}, [], metrics=metrics)
        await session.open()
        _write("joined")
        try:
            async for command in _commands():
                _obey(command, session, recorder, metrics)
        finally:
            await session.close(1)


def _obey(command: Sequence[str], session: Session, recorder: LatencyRecorder, metrics: Metrics) -> None:
    match command:
        case ["load"]:
            session.scheduler.jobs_changed(None)
        case ["ended"]:
            _write(str(sum(metrics.ends.values())))
        case ["since", since, until]:
            late = [round(each, 3) for each in recorder.between(float(since), float(until))]
            _write(json.dumps(asdict(ApartFigures(late, metrics.offers_taken, metrics.transport_fallbacks))))


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _commands() -> AsyncIterator[list[str]]:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line.decode().split()


def main() -> None:
    configure("auto", "error")
    collect_garbage_seldom()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(ApartPlan(**json.loads(sys.argv[1]))))


if __name__ == "__main__":
    main()
