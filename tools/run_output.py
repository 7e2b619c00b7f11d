"""What it costs to keep the output of runs.

    python -m tools.run_output [seconds]

1. The time of one call of a handler, with and without capture, for 0 and 10 lines: no database, one thread.
2. The time of one line, once only the last lines are kept, beside a logger whose handler does nothing.
3. How late the runs of a neighbour start and end on a node, beside a handler that logs 10,000 lines a second: to a
   handler that does nothing, and captured. Real node, embedded PostgreSQL.
"""

from __future__ import annotations

import asyncio
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from detent.client import JsonClient
from detent.domain.effects import NewStep, OnceKey
from detent.domain.job import PythonTarget
from detent.domain.run import Call
from detent.domain.states import OPEN
from detent.targets.output import AttemptOutput
from detent.targets.outputs import Outputs
from detent.targets.python import HandlerThread, PythonTargetRunner
from detent.targets.run import HandlerRun
from detent.telemetry.capture import Handling
from detent.telemetry.log import configure
from tests.support.ports import free_port

LIMIT = 131_072
CALLS = 4_000
LINES = 50_000
ROUNDS = 5
RUN = "01890000-0000-7000-8000-000000000001"
DETENT = (sys.executable, "-m", "detent")
APP = '''
import logging
import time

from detent import Detent, Run

app = Detent()
captured = logging.getLogger("shop.captured")
null = logging.getLogger("shop.null")
null.propagate = False
null.setLevel(logging.INFO)
null.addHandler(logging.NullHandler())


@app.task
def neighbour(run: Run) -> None:
    pass


def talk(log: logging.Logger, seconds: float) -> int:
    """10,000 lines a second, in steps of 10 ms."""
    began, lines = time.monotonic(), 0
    while (now := time.monotonic() - began) < seconds:
        while lines < now * 10_000:
            log.info("line %d of many, with a word or two", lines)
            lines += 1
        time.sleep(0.01)
    return lines


@app.task(timeout_seconds=600)
def to_nothing(run: Run, seconds: float) -> int:
    return talk(null, seconds)


@app.task(timeout_seconds=600)
def to_capture(run: Run, seconds: float) -> int:
    return talk(captured, seconds)
'''


class Backend:
    """Keeps lines as a node does, without a database."""

    def __init__(self, limit: int) -> None:
        self.outputs = Outputs(limit, lambda: None)

    def held(self, run_id: str, token: int) -> bool:
        return True

    def transaction(self, run_id: str, token: int) -> Any:
        raise NotImplementedError

    def once(self, run_id: str, token: int, once: OnceKey) -> Any:
        raise NotImplementedError

    async def steps(self, run_id: str, token: int) -> dict[str, str | None]:
        raise NotImplementedError

    async def add_step(self, run_id: str, token: int, step: NewStep) -> None:
        raise NotImplementedError

    def output(self, call: Call) -> AttemptOutput | None:
        return self.outputs.begin(call)

    def progress(self, run_id: str, token: int, fraction: float, message: str) -> None:
        self.outputs.progress(run_id, token, fraction, message)


def call() -> Call:
    return Call("1", "job", RUN, datetime(2026, 1, 1, tzinfo=UTC), 1, "key", 1, None, PythonTarget("f"), 60)


async def call_cost(lines: int, limit: int) -> float:
    """Microseconds of processor time of a call and of collecting its lines."""
    log = logging.getLogger("shop.orders")

    def handler(run: HandlerRun) -> None:
        for number in range(lines):
            log.info("line %d of a run", number)

    backend, thread = Backend(limit), HandlerThread(1)
    thread.start()
    runner = PythonTargetRunner({"f": handler}, thread, lambda call: HandlerRun(call, backend))
    began = time.process_time()
    for _ in range(CALLS):
        await runner(call())
        backend.outputs.collect()
    cost = (time.process_time() - began) / CALLS * 1e6
    await thread.stop()
    return cost


def line_cost(sink: HandlerRun | None, log: logging.Logger) -> float:
    """Microseconds of processor time of a line, after those that are all kept."""
    with Handling(None, sink):
        for number in range(1_000):
            log.info("line %d of many", number)
        began = time.process_time()
        for number in range(LINES):
            log.info("line %d of many", number)
        return (time.process_time() - began) / LINES * 1e6


def best(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(ROUNDS))


def costs() -> None:
    configure("json", "error")
    for lines in (0, 10):
        off = best(lambda count=lines: asyncio.run(call_cost(count, 0)))  # type: ignore[misc] # binds the count
        on = best(lambda count=lines: asyncio.run(call_cost(count, LIMIT)))  # type: ignore[misc] # as above
        print(f"call with {lines:2} lines: {off:6.1f} us without capture, {on:6.1f} us with it: {on - off:+.1f} us")
    null = logging.getLogger("shop.null")
    null.propagate, null.level = False, logging.INFO
    null.addHandler(logging.NullHandler())
    nothing = best(lambda: line_cost(None, null))
    kept = best(lambda: line_cost(HandlerRun(call(), Backend(LIMIT)), logging.getLogger("shop.orders")))
    print(f"line in a flood: {nothing:.2f} us to a NullHandler, {kept:.2f} us captured: {kept - nothing:+.2f} us")


@contextmanager
def node(folder: Path) -> Iterator[JsonClient]:
    (folder / "shop.py").write_text(APP)
    port = free_port()
    environ = {**os.environ, "DETENT_DATA_DIR": str(folder / "data"), "PYTHONPATH": str(folder)}
    command = [*DETENT, "serve", "--port", str(port), "--app", "shop:app"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, cwd=folder, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{address}/readyz", timeout=2).close()
                break
            except OSError:
                time.sleep(0.2)
        with JsonClient(address) as client:
            yield client
    finally:
        process.terminate()
        process.wait()


def neighbours(client: JsonClient, seconds: float) -> list[tuple[float, float]]:
    """Runs of the neighbour, 20 a second: milliseconds from due to start, and from due to end."""
    ids, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        ids.append(client.enqueue("neighbour")["items"][0]["id"])
        time.sleep(0.05)
    time.sleep(1)
    return [_latency(client.get_run(run)) for run in ids]


def _latency(run: dict[str, Any]) -> tuple[float, float]:
    due, started, finished = (
        datetime.fromisoformat(run[name]) for name in ("scheduled_at", "started_at", "finished_at")
    )
    return (started - due).total_seconds() * 1e3, (finished - due).total_seconds() * 1e3


def beside(client: JsonClient, seconds: float) -> None:
    neighbours(client, 2)
    for round_number in range(1, 4):
        for task in (None, "to-nothing", "to-capture"):
            if task is not None:
                talker = client.enqueue(task, payload={"seconds": seconds + 1})["items"][0]["id"]
            found = neighbours(client, seconds)
            text = ""
            if task is not None:
                while (done := client.get_run(talker))["status"] in OPEN:
                    time.sleep(0.2)
                text = f", {done['result'] / (seconds + 1):,.0f} lines/s"
            starts, ends = (sorted(column) for column in zip(*found, strict=True))
            print(
                f"round {round_number}, {task or 'alone':>10}: start {statistics.median(starts):6.2f} ms (p95 "
                f"{starts[int(len(starts) * 0.95)]:6.2f}), end {statistics.median(ends):6.2f} ms (p95 "
                f"{ends[int(len(ends) * 0.95)]:6.2f}), {len(found)} runs{text}"
            )


def main() -> None:
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, Python {sys.version.split()[0]}")
    costs()
    with tempfile.TemporaryDirectory(prefix="detent-output-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        with node(Path(folder)) as client:
            beside(client, float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
    print(f"load average {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
