# ruff: noqa: E501 - SQL in strings
"""The cost of the dashboard: pages with a million jobs, query by query, and fifty browsers during a busy loop.

    python -m tools.dashboard_bench overview [jobs] [runs]
    python -m tools.dashboard_bench streams [runs] [browsers] [rounds]

It prints figures and has no pass mark, because they depend on the machine.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from detent.api.app import create_app
from detent.dashboard.app import add_dashboard
from detent.devtools.bench.database import BenchRows
from detent.domain.run import Call, Outcome, Succeeded
from detent.node.database import opened_store, prepare_database
from detent.node.server import ApiServer
from detent.node.session import Session
from detent.settings.settings import Settings
from detent.store import Database, Store
from detent.store.db import PoolName
from detent.store.embedded import EmbeddedServer
from detent.store.statement import Statement
from detent.telemetry.health import Check
from detent.telemetry.log import configure
from detent.telemetry.metrics import Metrics
from tests.support.browsing import chromium, running_browser

DEFINITION = '{"schedule": "every 1h", "target": {"type": "http", "url": "http://127.0.0.1:9/"}, "timezone": "UTC"}'
FILL = (
    'INSERT INTO schedules (stored, digest) VALUES (\'{"kind": "interval", "every": 3600000}\', \'\\x00\')',
    "INSERT INTO jobs (id, name, partition, target, tags, definition, status)"
    " SELECT gen_random_uuid(), 'job-' || n, n % 256, 'http', CASE WHEN n % 10 = 0 THEN ARRAY['nightly'] ELSE '{{}}' END,"
    f" '{DEFINITION.replace('{', '{{').replace('}', '}}')}', CASE WHEN n % 50 = 0 THEN 'paused' ELSE 'active' END"
    " FROM generate_series(1, {jobs}) n",
    "INSERT INTO cursors (job, next_tick, fire_at, last_tick, partition, queue, schedule)"
    " SELECT job, t, t, now() - interval '1 hour', partition, 1, 1"
    " FROM (SELECT *, CASE WHEN status = 'active' THEN now() + (1 + job % 3600) * interval '1 s' END AS t FROM jobs) j",
    "UPDATE tenant_jobs SET jobs = {jobs}",
    "INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt, status,"
    " reason) SELECT 1 + n % {jobs}, t, 1, 1, t + interval '8 ms', t + interval '90 ms', 0, 1, 1,"
    " CASE WHEN n % 1000 = 0 THEN 2 ELSE 1 END, CASE WHEN n % 1000 = 0 THEN 'retries exhausted' END"
    " FROM (SELECT n, date_trunc('second', now()) - ({runs} - n) * interval '80 ms' AS t"
    " FROM generate_series(1, {runs}) n) v",
    "INSERT INTO attempts (job, scheduled_at, serial, token, node, started_at, finished_at, attempt, outcome, error)"
    " SELECT job, scheduled_at, 0, 1, 1, started_at, finished_at, 1, 'failed', 'HTTP 503 from https://x.example/' || job"
    " FROM run_history WHERE status = 2",
    "INSERT INTO live_runs (job, scheduled_at, token, owner, not_before, queue, revision, lane, priority)"
    " SELECT n, now(), 1, CASE WHEN n % 2 = 0 THEN 7 END, now(), 1, 1, 0, 5 FROM generate_series(1, 2000) n",
    "INSERT INTO run_minutes SELECT 1, date_trunc('minute', finished_at), status, 3, count(*) FROM run_history"
    " WHERE finished_at > now() - interval '8 days' GROUP BY 1, 2, 3",
    "INSERT INTO incidents (tenant, job, kind, within, tick, misses, opened_at, closed_at, closed)"
    " SELECT 1, 1 + n % {jobs}, 'finish', interval '1 min', now(), 1, now(), CASE WHEN n % 1000 > 0 THEN now() END,"
    " CASE WHEN n % 1000 > 0 THEN 'recovered' END FROM generate_series(1, {jobs} / 10) n",
    "INSERT INTO notices (incident, event, ended_at) SELECT incident, 'missed', now() FROM incidents",
    "VACUUM ANALYZE",
)


@asynccontextmanager
async def database() -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory(prefix="detent-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        async with EmbeddedServer(Path(folder)) as server:
            await prepare_database(server.url, "detent", migrate=True)
            yield server.url


async def ready() -> dict[str, Check]:
    return {}


@asynccontextmanager
async def served(store: Store) -> AsyncIterator[str]:
    app = create_app(store, settings=Settings(), readiness=ready, metrics=Metrics())
    add_dashboard(app)
    async with ApiServer(app, "127.0.0.1", 0) as server:
        yield server.url


# --- pages with very many jobs ---


class TimedDatabase(Database):
    """Records the duration of each statement."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.times: dict[str, list[float]] = defaultdict(list)

    async def _fetch(self, pool: PoolName, statement: Statement, *arguments: object) -> list[Any]:
        began = time.perf_counter()
        try:
            return await super()._fetch(pool, statement, *arguments)
        finally:
            self.times[statement.name].append((time.perf_counter() - began) * 1000)


async def overview(jobs: int, runs: int) -> None:
    async with database() as url:
        await fill(url, jobs, runs)
        timed = TimedDatabase(url)
        await timed.open()
        store = Store(timed)
        began = time.perf_counter()
        await store.tallies.count_jobs()
        print(f"counting all jobs, in the background: {(time.perf_counter() - began) * 1000:.0f} ms")
        async with served(store) as address, aiohttp.ClientSession() as session:
            await measure(session, address, timed, "/", 20)
            (job, *_), _ = await store.jobs.list(limit=1)
            groups = (await store.dead_letters.groups()).items
            chosen = f"/dead-letters?group={groups[0].group}"
            for path in ("/jobs", "/runs?search=status:dead", "/dead-letters", chosen, "/timeline", "/cluster"):
                await measure(session, address, timed, path, 3)
            for path in ("/cluster/problems", f"/jobs/{job.id}"):
                await measure(session, address, timed, path, 3)
            await first_paint(address)
        await timed.close()


async def fill(url: str, jobs: int, runs: int) -> None:
    from detent.store.db import connect
    from detent.store.limits import REQUEST_LIMITS

    patient = REQUEST_LIMITS._replace(statement=3600.0, answer=3600.0)
    connection = await connect(url, "detent", patient)
    for text in FILL:
        began = time.perf_counter()
        await connection.execute(text.format(jobs=jobs, runs=runs) if "{jobs}" in text or "{runs}" in text else text)
        print(f"  {time.perf_counter() - began:6.1f} s  {text[:60]}")
    await connection.close()


async def measure(session: aiohttp.ClientSession, address: str, timed: TimedDatabase, path: str, times: int) -> None:
    timed.times.clear()
    took = []
    for _ in range(times):
        began = time.perf_counter()
        async with session.get(address + path) as response:
            assert response.status == 200, await response.text()
            await response.read()
        took.append((time.perf_counter() - began) * 1000)
    print(f"{path}: {sorted(took)[times // 2]:.0f} ms (median of {times})")
    for name, each in sorted(timed.times.items(), key=lambda item: -max(item[1])):
        print(f"    {max(each):7.1f} ms at most, {sorted(each)[len(each) // 2]:6.1f} ms median   {name}")


async def first_paint(address: str) -> None:
    if chromium() is None:
        return
    async with running_browser(address) as browser:
        await browser.open("/")
        paint = await browser.page.evaluate(
            "() => performance.getEntriesByName('first-contentful-paint').map((entry) => entry.startTime)[0]"
        )
        print(f"first contentful paint of the overview: {paint:.0f} ms")


# --- browsers during the loop ---

CLIENT = """
import asyncio, sys, aiohttp
async def one(session, url):
    async with session.get(url) as response:
        async for _ in response.content.iter_any():
            pass
async def main():
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        await asyncio.gather(*(one(session, sys.argv[1]) for _ in range(int(sys.argv[2]))), return_exceptions=True)
asyncio.run(main())
"""


async def no_op(_call: Call) -> Outcome:
    return Succeeded()


async def one_round(runs: int, browsers: int) -> float:
    """CPU time of this process per run, in microseconds."""
    async with database() as url, opened_store(url, Settings()) as store, served(store) as address:
        bench = BenchRows(store.database)
        due = (await bench.make_due(runs, 6.0)).due
        session = Session(store, Settings(concurrency=2000), ("scheduler", "worker"), {"http": no_op}, [])
        await session.open()
        clients = None
        if browsers:
            clients = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CLIENT, f"{address}/live/", str(browsers)
            )
        await asyncio.sleep(max((due - session.clock.now()).total_seconds() - 0.2, 0))
        began, wall = time.process_time(), time.perf_counter()
        while await bench.succeeded(due) < runs:
            await asyncio.sleep(0.5)
        used, took = time.process_time() - began, time.perf_counter() - wall
        if clients is not None:
            clients.kill()
            await clients.wait()
        await session.close(1)
    print(f"  {browsers:3} browsers: {used / runs * 1e6:6.1f} µs for each run, {runs / took:,.0f} runs/s")
    return used / runs * 1e6


async def streams(runs: int, browsers: int, rounds: int) -> None:
    without, with_browsers = [], []
    for _ in range(rounds):
        without.append(await one_round(runs, 0))
        with_browsers.append(await one_round(runs, browsers))
    before, after = min(without), min(with_browsers)
    print(
        f"{browsers} browsers during {runs:,} runs: {before:.1f} -> {after:.1f} µs, {(after / before - 1) * 100:+.1f} %"
    )


if __name__ == "__main__":
    os.environ.setdefault("DETENT_LOG_LEVEL", "warning")
    configure("auto", "warning")
    numbers = [int(text.replace("_", "")) for text in sys.argv[2:]]
    if sys.argv[1:2] == ["overview"]:
        asyncio.run(overview(*(numbers or [1_000_000, 10_000_000])))
    elif sys.argv[1:2] == ["streams"]:
        asyncio.run(streams(*(numbers or [50_000, 50, 2])))
    else:
        sys.exit(__doc__)
