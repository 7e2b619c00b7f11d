"""Fail-over: one of three real nodes is killed with `kill -9`, and the others take over its partitions.

Jobs that tick every second call a target in this process. For jobs whose partition the killed node led, this measures
the time from the kill to the first call of a tick that became due after it: of the first of these jobs, and of the
last. At the end an audit checks that no tick of any job is missing or doubled. All clocks are this machine's.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Callable, Mapping, Set
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from detent.client import AsyncClient
from detent.devtools.bench.http_sink import Sink
from detent.devtools.bench.nodes import ServeProcess, throw_away_database
from detent.domain.identity import partition_of
from detent.errors import Unavailable
from detent.settings.settings import Settings

NODES = 3
PATIENCE_SECONDS = 120.0
SETTLED_SECONDS = 2.0  # without a change of leaders


@dataclass
class FailoverRound:
    jobs: int
    first_seconds: float
    last_seconds: float


@dataclass
class FailoverResult:
    lease_seconds: float
    jobs: int
    rounds: list[FailoverRound]
    expected: int
    missing: int
    doubled: int

    @property
    def first_seconds(self) -> float:
        return statistics.median(one.first_seconds for one in self.rounds)

    @property
    def last_seconds(self) -> float:
        return statistics.median(one.last_seconds for one in self.rounds)

    def as_document(self) -> dict[str, Any]:
        return {"first_seconds": self.first_seconds, "last_seconds": self.last_seconds, **asdict(self)}


class Calls:
    """When each job was first called for a tick after a certain instant."""

    def __init__(self) -> None:
        self.begin(frozenset())

    def begin(self, awaited: Set[str]) -> datetime:
        """Start again from now; `complete` is set when all awaited jobs were called."""
        self.first: dict[str, datetime] = {}
        self.complete = asyncio.Event()
        self._awaited = awaited
        self._since = datetime.now(UTC)
        return self._since

    def record(self, request: bytes) -> None:
        headers = _headers(request)
        job, tick = headers["detent-job"], datetime.fromisoformat(headers["detent-scheduled-at"])
        if tick > self._since and job not in self.first:
            self.first[job] = datetime.now(UTC)
            if self.first.keys() >= self._awaited:
                self.complete.set()


def _headers(request: bytes) -> dict[str, str]:
    lines = request.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def bench_failover(jobs: int, rounds: int, progress: Callable[[int], None]) -> FailoverResult:
    calls = Calls()
    async with _listening(calls) as url, throw_away_database() as server:
        nodes = [await ServeProcess.start(server.url) for _ in range(NODES)]
        try:
            numbers = await _register(nodes[0], url, jobs)
            done: list[FailoverRound] = []
            for number in range(rounds):
                await _settled(nodes[0], calls, numbers)
                done.append(await _fail_over(nodes.pop(), nodes[0], calls, numbers))
                nodes.insert(0, await ServeProcess.start(server.url))
                progress(number + 1)
            await _settled(nodes[0], calls, numbers)
            expected, missing, doubled = await _audit(nodes[0])
        finally:
            await asyncio.gather(*(node.kill() for node in nodes))
    return FailoverResult(Settings().lease_ttl_seconds, jobs, done, expected, missing, doubled)


@asynccontextmanager
async def _listening(calls: Calls) -> AsyncIterator[str]:
    server = await asyncio.get_running_loop().create_server(lambda: Sink(calls.record), "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


async def _register(node: ServeProcess, url: str, jobs: int) -> dict[str, int]:
    """The jobs by name, with the partition of each."""
    async with AsyncClient(node.url) as client:
        made = [
            await client.create_job(
                {"name": f"bench-{number}", "schedule": "every 1s", "target": {"type": "http", "url": url}}
            )
            for number in range(jobs)
        ]
    return {job.name: partition_of(UUID(str(job.id))) for job in made}


async def _settled(node: ServeProcess, calls: Calls, jobs: Mapping[str, int]) -> None:
    """Wait until every node leads its share, leaders no longer change, and every job ticks."""
    async with AsyncClient(node.url) as client, _patience("the nodes share the partitions and every job ticks"):
        calm_since, before = datetime.now(UTC), None
        while True:
            cluster = await client.get_cluster()
            alive = [one.id for one in cluster.nodes if one.state == "alive"]
            led = {one.partition: one.node for one in cluster.partitions}
            if len(alive) != NODES or set(led.values()) != set(alive) or led != before:
                calm_since, before = datetime.now(UTC), led
                calls.begin(jobs.keys())
            elif (
                calls.first.keys() >= jobs.keys() and (datetime.now(UTC) - calm_since).total_seconds() > SETTLED_SECONDS
            ):
                return
            await asyncio.sleep(0.2)


async def _fail_over(
    victim: ServeProcess, witness: ServeProcess, calls: Calls, jobs: Mapping[str, int]
) -> FailoverRound:
    async with AsyncClient(witness.url) as client:
        cluster = await client.get_cluster()
    name = next(one.id for one in cluster.nodes if one.pid == victim.pid)
    led = {one.partition for one in cluster.partitions if one.node == name}
    orphaned = {job for job, partition in jobs.items() if partition in led}
    if not orphaned:
        raise Unavailable("The node to kill leads none of the jobs: give more with --jobs.")
    await victim.kill()
    killed = calls.begin(orphaned)
    async with _patience("the jobs of the killed node tick again"):
        await calls.complete.wait()
    waits = [(calls.first[job] - killed).total_seconds() for job in orphaned]
    return FailoverRound(len(orphaned), min(waits), max(waits))


@asynccontextmanager
async def _patience(what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield
    except TimeoutError as error:
        raise Unavailable(f"Timed out after {PATIENCE_SECONDS:.0f} seconds, waiting until {what}.") from error


async def _audit(node: ServeProcess) -> tuple[int, int, int]:
    async with AsyncClient(node.url, timeout=60) as client:
        audited = [job async for job in client.audit()]
    return sum(a.expected for a in audited), sum(a.missing for a in audited), sum(a.doubled for a in audited)


def as_table(result: FailoverResult) -> list[tuple[str, str]]:
    first, last = ([getattr(one, name) for one in result.rounds] for name in ("first_seconds", "last_seconds"))
    return [
        ("rounds", f"{len(result.rounds)}: one of {NODES} nodes killed with kill -9"),
        (
            "jobs every second",
            f"{result.jobs}, of which the killed node led {_range([r.jobs for r in result.rounds], '')}",
        ),
        ("lease of a node", f"{result.lease_seconds:g} s"),
        ("first job continues after", f"{result.first_seconds:.2f} s ({_range(first, '.2f')})"),
        ("last job continues after", f"{result.last_seconds:.2f} s ({_range(last, '.2f')})"),
        ("ticks missing / doubled", f"{result.missing} / {result.doubled} of {result.expected:,}"),
    ]


def _range(values: list[Any], form: str) -> str:
    return f"{min(values):{form}} - {max(values):{form}}"
