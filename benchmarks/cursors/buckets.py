"""Would a coarse bucket instead of `fire_at` in the index of cursors make the loop cheaper?

    python benchmarks/cursors/buckets.py

A fire changes `fire_at`, which is indexed, so no update of a cursor is heap-only. With an index on a coarse bucket of
the time, updates within a bucket would be, but a window load has to read all cursors of its buckets. This measures both
sides on plain tables, in simulated time: jobs every ten seconds and hourly ones tick, in batches as the loop has them,
each minute the cursors of the next minute are read, and every ten minutes the table is vacuumed. The layouts take turns
step by step. CPU is that of the connection's own server process.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg

from detent.devtools.bench.processes import process_seconds
from detent.store.embedded import EmbeddedServer

START = datetime(2030, 1, 1, tzinfo=UTC)
STEP, WINDOW, VACUUM_EVERY = timedelta(seconds=10), timedelta(minutes=1), timedelta(minutes=10)
MINUTES = 20
PER_STEP = 3000
BATCH = 1000
PARTITIONS = 64
EXACT = 0
LAYOUTS = {"fire_at (today)": EXACT, "bucket of 1 minute": 60, "bucket of 10 minutes": 600}
MIXES = {"every 10 s only": (1.0, 0.0), "half of the ticks hourly jobs": (0.5, 0.5), "hourly only": (0.0, 1.0)}

TABLE = """
CREATE TABLE {name} (
    job bigint PRIMARY KEY, next_tick timestamptz, fire_at timestamptz,
    last_tick timestamptz NOT NULL DEFAULT '-infinity',
    generation integer NOT NULL DEFAULT 1, serials integer NOT NULL DEFAULT 0, runs_left integer,
    queue integer NOT NULL DEFAULT 1, schedule integer NOT NULL DEFAULT 1, revision integer NOT NULL DEFAULT 1,
    grace integer NOT NULL DEFAULT -1, partition smallint NOT NULL, lanes smallint NOT NULL DEFAULT 1,
    priority smallint NOT NULL DEFAULT 5, once boolean NOT NULL DEFAULT false, bucket integer
) WITH (fillfactor = 50, autovacuum_enabled = false)
"""
FILL = """
INSERT INTO {name} (job, next_tick, fire_at, partition, bucket)
SELECT n, at, at, n % {partitions}, extract(epoch FROM at)::bigint / {divisor}
  FROM generate_series({first}, {last}) AS n, LATERAL (SELECT $1::timestamptz
       + ((n - {first}) / {per_step}) * interval '10 seconds' AS at) t
"""
FIRE = """
UPDATE {name} SET next_tick = $2::timestamptz, fire_at = $2::timestamptz, last_tick = next_tick {bucket}
 WHERE job = ANY ($1::bigint[]) AND next_tick = $3::timestamptz AND generation = 1
   AND coalesce(fire_at, 'infinity') <= $3::timestamptz
"""
READ = """
SELECT c.* FROM generate_series(0, {last}) AS p CROSS JOIN LATERAL (
    SELECT job, next_tick, fire_at, generation, queue, schedule, revision, grace, partition, priority, lanes, once
      FROM {name} WHERE partition = p AND {buckets} fire_at > $1::timestamptz AND fire_at <= $2::timestamptz
     ORDER BY fire_at LIMIT 100000) c
"""


@dataclass
class Spent:
    ticks: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: {"fire": 0.0, "read": 0.0, "vacuum": 0.0})
    wal: int = 0


class Layout:
    """One table, its connection, and what its statements cost."""

    def __init__(self, connection: asyncpg.Connection, name: str, width: int) -> None:
        self.connection, self.name, self.width, self.spent = connection, name, width, Spent()
        self._pid = connection.get_server_pid()

    async def make(self, frequent: int, hourly: int) -> None:
        run = self.connection.execute
        await run(TABLE.format(name=self.name))
        divisor = self.width or 1
        for first, last, per_step in (
            (1, frequent, max(frequent, 1)),
            (frequent + 1, frequent + hourly, max(hourly // 360, 1)),
        ):
            text = FILL.format(
                name=self.name, first=first, last=last, per_step=per_step, partitions=PARTITIONS, divisor=divisor
            )
            await run(text.replace("$1", f"'{START.isoformat()}'"))
        indexed = "bucket" if self.width else "fire_at"
        await run(f"CREATE INDEX ON {self.name} (partition, {indexed})")
        await run(f"VACUUM (ANALYZE) {self.name}")
        await run("CHECKPOINT")

    async def fire(self, jobs: range, tick: datetime, following: datetime) -> None:
        bucket = ", bucket = $4::integer" if self.width else ""
        more = (int(following.timestamp()) // self.width,) if self.width else ()
        text = FIRE.format(name=self.name, bucket=bucket)
        before, wal = process_seconds(self._pid), await self._wal()
        for first in range(jobs.start, jobs.stop, BATCH):
            batch = list(range(first, min(first + BATCH, jobs.stop)))
            moved = await self.connection.execute(text, batch, following, tick, *more)
            assert moved == f"UPDATE {len(batch)}", moved
        self.spent.seconds["fire"] += process_seconds(self._pid) - before
        self.spent.wal += await self._wal() - wal
        self.spent.ticks += len(jobs)

    async def read(self, now: datetime) -> int:
        buckets, more = "", list[int]()
        if self.width:
            buckets = "bucket >= $3::integer AND bucket <= $4::integer AND"
            more = [int(now.timestamp()) // self.width, int((now + WINDOW).timestamp()) // self.width]
        text = READ.format(name=self.name, last=PARTITIONS - 1, buckets=buckets)
        before = process_seconds(self._pid)
        found = await self.connection.fetch(text, now, now + WINDOW, *more)
        self.spent.seconds["read"] += process_seconds(self._pid) - before
        return len(found)

    async def vacuum(self) -> None:
        before = process_seconds(self._pid)
        await self.connection.execute(f"VACUUM {self.name}")
        self.spent.seconds["vacuum"] += process_seconds(self._pid) - before

    async def heap_only(self) -> float:
        await self.connection.execute("SELECT pg_stat_force_next_flush()")
        row = await self.connection.fetchrow(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = $1", self.name
        )
        assert row is not None
        return float(row["n_tup_hot_upd"] / max(row["n_tup_upd"], 1))

    async def _wal(self) -> int:
        return int(await self.connection.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))


async def simulate(layouts: list[Layout], frequent: int, hourly: int) -> None:
    per_step = hourly // 360
    for step in range(int(MINUTES * 60 / STEP.total_seconds())):
        tick = START + step * STEP
        turn = step % len(layouts)
        for layout in layouts[turn:] + layouts[:turn]:
            if step and not (tick - START) % WINDOW:
                await layout.read(tick)
            if frequent:
                await layout.fire(range(1, frequent + 1), tick, tick + STEP)
            if hourly:
                first = frequent + 1 + step * per_step
                await layout.fire(range(first, first + per_step), tick, tick + timedelta(hours=1))
            if step and not (tick - START) % VACUUM_EVERY:
                await layout.vacuum()


async def measure(url: str, mix: str) -> None:
    share_frequent, share_hourly = MIXES[mix]
    frequent, hourly = int(PER_STEP * 2 * share_frequent), int(PER_STEP * 2 * share_hourly) * 360
    connections = [await asyncpg.connect(url) for _ in LAYOUTS]
    layouts = [
        Layout(connection, f"cursors_{width}", width)
        for connection, width in zip(connections, LAYOUTS.values(), strict=True)
    ]
    for layout in layouts:
        await layout.make(frequent, hourly)
    await simulate(layouts, frequent, hourly)
    for name, layout in zip(LAYOUTS, layouts, strict=True):
        spent = layout.spent
        cpu = {what: seconds / spent.ticks * 1e6 for what, seconds in spent.seconds.items()}
        print(
            f"{mix}\t{name}\theap-only {await layout.heap_only():.0%}\tfire {cpu['fire']:.2f} µs\t"
            f"read {cpu['read']:.2f}\tvacuum {cpu['vacuum']:.2f}\tin all {sum(cpu.values()):.2f} µs\t"
            f"WAL of fires {spent.wal / spent.ticks:.0f} B"
        )
        await layout.connection.execute(f"DROP TABLE {layout.name}")
        await layout.connection.close()


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="detent-buckets-") as folder:
        Path(folder).chmod(0o755)
        async with EmbeddedServer(Path(folder)) as server:
            for mix in MIXES:
                await measure(server.url, mix)


if __name__ == "__main__":
    asyncio.run(main())
