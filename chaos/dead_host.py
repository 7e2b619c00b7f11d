"""A host that does not answer, with 10,000 due runs, beside jobs every second that call another host: are those late,
how many attempts does the dead host use up, and what happens when it comes back?

    refused   the host refuses connections, then it answers
    hangs     the host accepts connections and never answers, then it answers
    dns       the name of the host does not resolve; it does not come back

All jobs belong to one tenant, so that only the circuit of the host stands between them. Lateness is from the tick to
the call's arrival: before, in the first seconds of 10,000 due runs of a host that answers, in the first seconds of
those of the dead host, and while it is dead. The answering host shows what 10,000 due runs cost in any case.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import socket
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from chaos.harness import Scene, looking_at, milliseconds, percentile, perform
from detent.client import JsonClient
from tests.support.factories import LONG_AGO
from tests.support.sink import Received, http_target
from tests.support.tenants import add_ready
from tests.support.waiting import until

LATEST = 1.0
# All 10,000 runs are due before the ticks of the other jobs, in the same queue: the worker claims each of them once,
# and puts it off. Ticks wait for that, but not longer than for 10,000 runs of a host that answers.
FIRST_SECONDS = 5.0
SLOTS = 100
BREAKER_FAILURES, MAX_PAUSE = 10, 8.0
QUIET_JOBS = 20
JOBS_OF_A_HOST, RUNS_OF_EACH = 1_000, 10
TIMEOUT = 2.0
BEFORE_SECONDS, DEAD_SECONDS = 15.0, 25.0
# Pauses of 1, 2, 4 and 8 s, each at least 0.8 of that: so many probes are possible while the host is dead.
MOST_PROBES = 3 + math.ceil((FIRST_SECONDS + DEAD_SECONDS) / (0.8 * MAX_PAUSE))
# After the host is back: the pause of the circuit, the spread of the runs that wait, and the calls themselves.
RECOVERED_WITHIN = MAX_PAUSE + 2 * MAX_PAUSE + 60.0


class Figures(NamedTuple):
    attempts: int
    runs_with_attempts: int


class CalledHost:
    """A port that refuses connections until it listens; then it hangs, or answers."""

    def __init__(self, *, answers: bool = False) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port: int = taken.getsockname()[1]
        self._server: asyncio.Server | None = None
        self.answers = answers
        self.hanging = 0
        self.first_answer: datetime | None = None

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", self.port, backlog=1000)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                if not self.answers:
                    self.hanging += 1
                    await reader.read()
                    break
                self.first_answer = self.first_answer or datetime.now(UTC)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


async def script(scene: Scene, *, variant: str, source: Path | None) -> None:
    if source is not None:
        scene.nodes.variables["PYTHONPATH"] = str(source)
    scene.nodes.variables |= {
        "DETENT_BREAKER_FAILURES": str(BREAKER_FAILURES),
        "DETENT_BREAKER_MAX_PAUSE_SECONDS": str(MAX_PAUSE),
    }
    live, host = CalledHost(answers=True), CalledHost()
    await live.listen()
    if variant == "hangs":
        await host.listen()
    node = await scene.nodes.start("serve", "--concurrency", str(SLOTS))
    await node.says("partitions taken")
    async with looking_at(scene.data) as look:
        dead_name = "no-such-host.invalid" if variant == "dns" else "127.0.0.1"
        await add_jobs(scene, node.client, {"live": ("127.0.0.1", live.port), "dead": (dead_name, host.port)})
        before = await watched(scene, BEFORE_SECONDS)
        answered = await first_seconds(scene, look, "live")
        await until(partial(none_left, look, "SELECT count(*) FROM live_runs WHERE not_before = $1"), 60, "live runs")
        first = await first_seconds(scene, look, "dead")
        dead = await watched(scene, DEAD_SECONDS)
        scene.note("runs due for each host", f"{JOBS_OF_A_HOST * RUNS_OF_EACH:,}")
        judge_lateness(scene, {"before": before, "with an answering host": answered, "with the dead host": first})
        # Calls that hang hold slots, all of them if their host has no limit, until as many have timed out as open the
        # circuit: ticks of other jobs are late by one timeout, and the next ones skipped.
        most = max(p99(answered), LATEST) + (TIMEOUT if variant == "hangs" else 0.0)
        scene.limit("... start lateness, p99 of those called, against the answering host", p99(first), most)
        judge_lateness(scene, {"while the host is dead": dead})
        scene.limit("... start lateness, p99 with those skipped", percentile(dead, 0.99), LATEST)
        await judge_attempts(scene, look, variant)
        if variant != "dns":
            await judge_recovery(scene, look, host, variant)
    await host.close()
    await live.close()


async def first_seconds(scene: Scene, look: Any, group: str) -> Sequence[float]:
    """The lateness of the other jobs from when the runs of these jobs are due."""
    await queue_runs(look, group)
    passing = asyncio.create_task(first_pass(scene.data))
    lateness = await watched(scene, FIRST_SECONDS)
    scene.note(f"all runs of the {group} host claimed once after", f"{await passing:.1f} s")
    return lateness


async def add_jobs(scene: Scene, client: JsonClient, hosts: Mapping[str, tuple[str, int]]) -> None:
    for group, (host, port) in hosts.items():
        target = {"type": "http", "url": f"http://{host}:{port}/hook", "method": "GET"}
        shared = {"schedule": "every 1h", "target": target, "timeout_seconds": TIMEOUT, "max_retries": 5}
        client.create_jobs([{"name": f"{group}-{number}", **shared} for number in range(JOBS_OF_A_HOST)])
    quiet = {"schedule": "every 1s", "target": http_target(scene.sink)}
    client.create_jobs([{"name": f"quiet-{number}", **quiet} for number in range(QUIET_JOBS)])
    await until(lambda: len({call.job for call in scene.sink.calls}) == QUIET_JOBS, 60, "the quiet jobs")


async def queue_runs(look: Any, group: str) -> None:
    jobs = await look.fetch(
        "SELECT c.job, c.queue FROM cursors c JOIN jobs j USING (job) WHERE j.name LIKE $1 || '-%'", group
    )
    async with look.transaction():
        for job in jobs:
            await add_ready(look, job["job"], job["queue"], RUNS_OF_EACH)
        await look.execute("SELECT pg_notify('detent_runs', 'ready')")


async def none_left(look: Any, query: str) -> bool:
    return not await look.fetchval(query, LONG_AGO)


async def first_pass(data: Path) -> float:
    """Seconds until every run that was queued has been claimed."""
    began = datetime.now(UTC)
    untouched = "SELECT count(*) FROM live_runs WHERE not_before = $1 AND owner IS NULL"
    async with looking_at(data) as look:
        await until(partial(none_left, look, untouched), 60, "the first claim of all runs")
    return (datetime.now(UTC) - began).total_seconds()


async def watched(scene: Scene, seconds: float) -> Sequence[float]:
    """The lateness of the ticks of the quiet jobs during these seconds; infinite where a call did not come."""
    began = datetime.now(UTC)
    await asyncio.sleep(seconds)
    ended = datetime.now(UTC)
    await until(lambda: all_called_since(scene.sink.calls, ended), 60, "the calls of the quiet jobs")
    called = {(call.job, call.scheduled_at): call.lateness for call in list(scene.sink.calls)}
    latest = {job: max(at for of, at in called if of == job) for job, _ in called}
    lateness = []
    for job, tick in latest.items():
        while tick >= began:
            if tick <= ended:
                lateness.append(called.get((job, tick), math.inf))
            tick -= timedelta(seconds=1)
    return lateness


def all_called_since(calls: Sequence[Received], moment: datetime) -> bool:
    return len({call.job for call in list(calls) if call.scheduled_at > moment}) == QUIET_JOBS


async def used_up(look: Any) -> Figures:
    row = await look.fetchrow(
        "SELECT count(*) AS attempts, count(DISTINCT (a.job, a.scheduled_at)) AS runs FROM attempts a"
        " JOIN jobs j USING (job) WHERE j.name LIKE 'dead-%' AND a.outcome <> 'succeeded'"
    )
    return Figures(row["attempts"], row["runs"])


def called(lateness: Sequence[float]) -> list[float]:
    return [seconds for seconds in lateness if seconds < math.inf]


def p99(lateness: Sequence[float]) -> float:
    return percentile(called(lateness), 0.99)


def judge_lateness(scene: Scene, phases: Mapping[str, Sequence[float]]) -> None:
    for name, lateness in phases.items():
        scene.note(f"ticks of other jobs, {name}", len(lateness))
        scene.note("... skipped, because the one before had not ended", len(lateness) - len(called(lateness)))
        scene.note("... start lateness, p50 of those called", milliseconds(percentile(called(lateness), 0.5)))
        scene.note("... start lateness, p99 of those called", milliseconds(p99(lateness)))
        scene.note("... start lateness, latest of those called", milliseconds(max(called(lateness))))


async def judge_attempts(scene: Scene, look: Any, variant: str) -> None:
    used = await used_up(look)
    # Calls that were sent when the circuit opened are attempts: those of all slots, if they hang.
    most = MOST_PROBES + BREAKER_FAILURES + (SLOTS if variant == "hangs" else 0)
    scene.note("attempts used up by the dead host", f"{used.attempts}, of {used.runs_with_attempts} runs")
    scene.expect(f"... at most {most}, with the probes", used.attempts <= most, True)
    ended = await look.fetchval("SELECT count(*) FROM run_history JOIN jobs j USING (job) WHERE j.name LIKE 'dead-%'")
    scene.expect("runs of the dead host that ended", ended, 0)


async def judge_recovery(scene: Scene, look: Any, host: CalledHost, variant: str) -> None:
    began = datetime.now(UTC)
    host.answers = True
    if variant == "refused":
        await host.listen()
    runs = JOBS_OF_A_HOST * RUNS_OF_EACH
    ended = (
        "SELECT h.status, coalesce(h.attempt, 1) > 1 AS again, count(*) AS runs FROM run_history h"
        " JOIN jobs j USING (job) WHERE j.name LIKE 'dead-%' GROUP BY 1, 2"
    )

    async def all_ended() -> bool:
        return sum(row["runs"] for row in await look.fetch(ended)) >= runs

    await until(all_ended, RECOVERED_WITHIN, "the end of all runs")
    took = (datetime.now(UTC) - began).total_seconds()
    found = {(row["status"], row["again"]): row["runs"] for row in await look.fetch(ended)}
    assert host.first_answer is not None
    # A probe may be under way that began before.
    most = MAX_PAUSE + (TIMEOUT if variant == "hangs" else 0.0) + 1.0
    scene.limit("first call after the host is back", (host.first_answer - began).total_seconds(), most)
    scene.note("all runs ended after", f"{took:.1f} s")
    used = await used_up(look)
    scene.expect("runs that succeeded", found.get((1, False), 0) + found.get((1, True), 0), runs)
    scene.expect("... with attempt 1", found.get((1, False), 0), runs - used.runs_with_attempts)


VARIANTS = ("refused", "hangs", "dns")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("variants", nargs="*", metavar="VARIANT", help=", ".join(VARIANTS))
    parser.add_argument("--source", type=Path, help="the folder of another copy of the product than the installed one")
    given = parser.parse_args()
    unknown = set(given.variants) - set(VARIANTS)
    if unknown:
        parser.error(f"there is no variant {', '.join(sorted(unknown))}: choose from {', '.join(VARIANTS)}")
    chosen = given.variants or VARIANTS
    source = given.source.absolute() if given.source else None
    return max(perform(f"dead host: {variant}", partial(script, variant=variant, source=source)) for variant in chosen)


if __name__ == "__main__":
    sys.exit(main())
