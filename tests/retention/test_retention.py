"""Old history is removed without blocking anything, by one node at a time; then the rows that deleted jobs left."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from detent.domain.run import Claim
from detent.errors import Unavailable
from detent.jobs import JobOperations
from detent.store import Store, sql
from detent.store.db import LockTimeout
from detent.store.retention import Part
from detent.upkeep.archive import Folder
from detent.upkeep.retention import Keeper
from tests.retention.conftest import NODE
from tests.support.ends import ended_run
from tests.support.factories import add_job, add_live_run
from tests.support.waiting import until

OTHER = 12
DAY = timedelta(days=1)
KEEP = 90


async def old_history(look: Any, store: Store, days: int = 200) -> datetime:
    """Eight days of history as they were made that long ago, and then those to come; the first day."""
    for row in await look.fetch("SELECT name FROM history_bounds"):
        await look.execute(f"DROP TABLE {row['name']}")
    await look.execute("DELETE FROM history_parts")
    first: datetime = await look.fetchval("SELECT date_trunc('day', now(), 'UTC') - $1::interval", days * DAY)
    for number in range(8):
        await look.execute("SELECT make_history_day($1)", (first + number * DAY).date())
    await look.execute("UPDATE history_parts SET made_at = until - interval '8 days'")
    await store.upkeep.make_history_days(7)
    return first


async def add_run(look: Any, job: int, at: datetime, **columns: Any) -> None:
    values = {
        "job": job, "scheduled_at": at, "token": 1, "node": NODE, "started_at": at, "finished_at": at, "serial": 0,
        "revision": 1, "attempt": 1, "status": 1, **columns,
    }  # fmt: skip
    places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
    await look.execute(f"INSERT INTO run_history ({', '.join(values)}) VALUES ({places})", *values.values())


async def add_attempt(look: Any, job: int, at: datetime, finished: datetime) -> None:
    await look.execute(
        "INSERT INTO attempts (job, scheduled_at, serial, token, finished_at, attempt, outcome)"
        " VALUES ($1, $2, 0, 1, $3, 1, 'failed')",
        job, at, finished,
    )  # fmt: skip


async def parts(look: Any) -> list[str]:
    return [row["name"] for row in await look.fetch("SELECT name FROM history_bounds ORDER BY until, parent")]


def keeper(store: Store, archive: Any = None, node: int = NODE, days: int = KEEP) -> Keeper:
    return Keeper(store, node, days, archive, lambda: None)


async def again(look: Any, store: Store, archive: Any = None, **options: Any) -> None:
    """Run retention again, as if its next turn had come."""
    await look.execute("UPDATE turns SET done_at = NULL")
    await keeper(store, archive, **options).tick()


async def test_expired_days_are_dropped_and_recorded_and_others_stay(look: Any, store: Store) -> None:
    first = await old_history(look, store)
    await add_run(look, 1, first + timedelta(hours=3))
    await add_run(look, 1, await look.fetchval("SELECT now()"))
    before = await parts(look)
    await keeper(store).tick()
    left = await parts(look)
    assert len(before) - len(left) == 24
    assert all(name >= f"attempts_{first + 8 * DAY:%Y%m%d}" for name in left)
    assert await look.fetchval("SELECT count(*) FROM run_history") == 1
    gone = await look.fetch("SELECT * FROM history_parts WHERE dropped_at IS NOT NULL ORDER BY until, parent")
    assert len(gone) == 24
    assert all(row["detached_at"] is not None and row["archive"] is None for row in gone)
    assert await look.fetchval("SELECT count(*) FROM pg_class WHERE relname LIKE $1", f"%{first:%Y%m%d}") == 0


async def test_nothing_is_dropped_while_ticks_are_held_since_the_clock_may_be_wrong(look: Any, store: Store) -> None:
    await old_history(look, store)
    before = await parts(look)
    await look.execute("UPDATE cluster SET held_at = now(), held_by = 'clock', held_reason = 'a step'")
    await keeper(store).tick()
    await keeper(store).retire_history()
    assert await parts(look) == before
    await look.execute("UPDATE cluster SET held_at = NULL, held_by = NULL, held_reason = NULL")
    await keeper(store).tick()
    assert len(before) - len(await parts(look)) == 24


async def test_a_clock_that_has_just_stepped_ages_nothing(look: Any, store: Store) -> None:
    first = await old_history(look, store)
    before = await parts(look)
    await Keeper(store, NODE, KEEP, None, lambda: first + KEEP * DAY).tick()
    assert await parts(look) == before
    await again(look, store)
    assert len(before) - len(await parts(look)) == 24


async def test_nothing_is_dropped_before_its_time(look: Any, store: Store) -> None:
    await old_history(look, store, days=80)
    before = await parts(look)
    await keeper(store).tick()
    assert await parts(look) == before
    await again(look, store, days=60)
    assert len(await parts(look)) == len(before) - 24


async def test_a_late_settle_gets_a_partition_that_is_kept_for_the_full_retention(look: Any, store: Store) -> None:
    first = await old_history(look, store)
    await keeper(store).tick()
    at = first - 100 * DAY
    await add_live_run(look, 1, at, owner=NODE)
    settled = ended_run(Claim(1, 0, at, 0, 1 << 22 | 1, 1), at, at, 1)
    assert await store.live_runs.settle(NODE, [settled]) == []
    await again(look, store)
    assert await look.fetchval("SELECT scheduled_at FROM run_history") == at
    await look.execute("UPDATE history_parts SET made_at = made_at - interval '91 days' WHERE since = '-infinity'")
    await again(look, store)
    assert await look.fetchval("SELECT count(*) FROM run_history") == 0


async def test_what_ended_lately_is_kept_however_old_its_tick_is(look: Any, store: Store) -> None:
    """A backfill of last year's ticks: each result is kept as long as every other, from its end on."""
    first = await old_history(look, store)
    now = await look.fetchval("SELECT now()")
    for number, finished in enumerate((now, now - 89 * DAY, now - 91 * DAY)):
        await add_run(look, 1, first + number * timedelta(hours=1), finished_at=finished)
        await add_run(look, 2, first - 165 * DAY + number * timedelta(hours=1), finished_at=finished)
        await add_attempt(look, 1, first + number * timedelta(hours=1), finished)
    await keeper(store).tick()
    kept = await look.fetch("SELECT job, scheduled_at FROM run_history ORDER BY job, scheduled_at")
    assert [tuple(row) for row in kept] == [
        *((1, first + number * timedelta(hours=1)) for number in range(2)),
        *((2, first - 165 * DAY + number * timedelta(hours=1)) for number in range(2)),
    ]
    assert await look.fetchval("SELECT count(*) FROM attempts") == 2
    await again(look, store)
    assert await look.fetchval("SELECT count(*) FROM run_history") == 4
    await look.execute("UPDATE history_parts SET made_at = now() - interval '91 days' WHERE dropped_at IS NULL")
    await look.execute("UPDATE run_history SET finished_at = now() - interval '100 days' WHERE job = 1")
    await again(look, store)
    assert {row["job"] for row in await look.fetch("SELECT job FROM run_history")} == {2}


async def test_what_ended_lately_is_in_the_archive_only_when_its_time_is_over(
    look: Any, store: Store, tmp_path: Path
) -> None:
    first = await old_history(look, store)
    await add_run(look, 1, first, finished_at=first)
    await add_run(look, 2, first, finished_at=await look.fetchval("SELECT now()"))
    await keeper(store, Folder(tmp_path)).tick()
    row = await look.fetchrow(
        "SELECT * FROM history_parts WHERE until = $1 AND parent = 'run_history' AND dropped_at IS NOT NULL",
        first + DAY,
    )
    assert row["rows"] == 1
    assert [row["job"] for row in await look.fetch("SELECT job FROM run_history")] == [2]


async def test_a_keeper_that_dies_among_late_results_loses_none(
    look: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.store.retention.MOVED_AT_ONCE", 3)
    first = await old_history(look, store)
    now = await look.fetchval("SELECT now()")
    for minute in range(10):
        await add_run(look, 1, first + timedelta(minutes=minute), finished_at=now)
    part = next(each for each in await store.retention.expired(KEEP) if each.parent == "run_history")
    await store.retention.detach(part)
    await store.retention.keep_late(part, KEEP)  # three of them, and then it dies
    assert await look.fetchval("SELECT count(*) FROM run_history") == 3
    await keeper(store, node=OTHER).tick()
    assert await look.fetchval("SELECT count(*) FROM run_history") == 10


async def test_late_results_are_looked_for_without_reading_the_day(look: Any, store: Store) -> None:
    first = await old_history(look, store)
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, token, attempt)"
        " SELECT n, $1::timestamptz, $1::timestamptz, 0, 1, 1, 1, 1 FROM generate_series(1, 20000) AS n",
        first,
    )
    part = next(each for each in await store.retention.expired(KEEP) if each.parent == "run_history")
    async with look.transaction():
        await look.execute(sql.database.PREFER_INDEX.text)
        plan = await look.fetch(
            "EXPLAIN " + sql.history.FIND_LATE.text.format(name=part.name, ended="finished_at"),
            await look.fetchval("SELECT now()"),
        )
    assert any("Bitmap Index Scan" in row[0] for row in plan), plan


async def test_readers_and_writers_do_not_wait_while_history_goes(look: Any, store: Store, another: Any) -> None:
    """A reader may keep its snapshot for long: the detach waits for the reader, and nothing waits for the detach."""
    first = await old_history(look, store)
    await add_run(look, 1, first)
    async with another.transaction(isolation="repeatable_read", readonly=True):
        assert await another.fetchval("SELECT count(*) FROM run_history") == 1
        going = asyncio.create_task(keeper(store).tick())
        await until(lambda: look.fetchval("SELECT bool_or(detaching) FROM history_bounds"))
        now = await look.fetchval("SELECT now()")
        await add_live_run(look, 2, now, owner=NODE)
        settled = ended_run(Claim(2, 0, now, 0, 1 << 22 | 1, 1), now, now, 1)
        assert await store.live_runs.settle(NODE, [settled]) == []
        assert await look.fetchval("SELECT count(*) FROM run_history") == 1
        assert await another.fetchval("SELECT count(*) FROM run_history") == 1
        assert await store.upkeep.make_history_days(9) == 2
        assert not going.done()
    await going
    assert await look.fetchval("SELECT count(*) FROM history_parts WHERE dropped_at IS NOT NULL") == 24


async def test_a_detach_that_was_cut_in_half_is_finished_by_the_next(look: Any, store: Store, another: Any) -> None:
    await old_history(look, store)
    async with another.transaction(isolation="repeatable_read", readonly=True):
        await another.fetchval("SELECT count(*) FROM run_history")
        going = asyncio.create_task(keeper(store).tick())
        await until(lambda: look.fetchval("SELECT bool_or(detaching) FROM history_bounds"))
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        await look.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'ALTER TABLE%DETACH%'"
        )
    assert await look.fetchval("SELECT count(*) FROM history_bounds WHERE detaching") == 1
    await look.execute("UPDATE turns SET until = now() - interval '1 second'")
    await keeper(store, node=OTHER).tick()
    assert await look.fetchval("SELECT count(*) FROM history_parts WHERE dropped_at IS NOT NULL") == 24
    assert not await look.fetchval("SELECT bool_or(detaching) FROM history_bounds")


async def test_a_row_for_a_day_that_is_being_dropped_gets_a_partition(look: Any, store: Store, another: Any) -> None:
    first = await old_history(look, store)
    async with another.transaction(isolation="repeatable_read", readonly=True):
        await another.fetchval("SELECT count(*) FROM run_history")
        going = asyncio.create_task(keeper(store).tick())
        await until(lambda: look.fetchval("SELECT bool_or(detaching) FROM history_bounds"))
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        await look.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'ALTER TABLE%DETACH%'"
        )
    for job, at in ((1, first + timedelta(hours=1)), (2, first - 30 * DAY)):
        await add_live_run(look, job, at, owner=NODE)
        settled = ended_run(Claim(job, 0, at, 0, 1 << 22 | 1, 1), at, at, 1)
        assert await store.live_runs.settle(NODE, [settled]) == []
    assert await look.fetchval("SELECT count(*) FROM run_history") == 2


async def test_a_table_that_another_session_holds_is_dropped_the_next_time(
    look: Any, store: Store, another: Any
) -> None:
    await old_history(look, store)
    (part, *_) = await store.retention.expired(KEEP)
    await store.retention.detach(part)
    async with another.transaction():
        await another.execute(f"SELECT FROM {part.name}")
        with pytest.raises(LockTimeout):
            await store.retention.drop(part)
    again = next(each for each in await store.retention.expired(KEEP) if each.part == part.part)
    assert again.state == "detached"
    await store.retention.drop(again)
    assert part.part not in {each.part for each in await store.retention.expired(KEEP)}


async def test_a_partition_detached_by_hand_is_kept_until_it_expires(look: Any, store: Store) -> None:
    name = await look.fetchval("SELECT name FROM history_bounds ORDER BY until DESC LIMIT 1")
    await look.execute(f"ALTER TABLE {name.rpartition('_')[0]} DETACH PARTITION {name}")
    await keeper(store).tick()
    assert await look.fetchval("SELECT to_regclass($1) IS NOT NULL", name)


async def test_a_part_dropped_by_hand_is_recorded_and_its_name_may_be_reused(look: Any, store: Store) -> None:
    today = await look.fetchval("SELECT date_trunc('day', now(), 'UTC')")
    name = await look.fetchval(
        "SELECT name FROM history_bounds WHERE parent = 'run_history' AND since <= now() AND now() < until"
    )
    await look.execute(f"DROP TABLE {name}")
    (gone,) = await store.retention.expired(KEEP)
    assert (gone.name, gone.state) == (name, "gone")
    await add_live_run(look, 1, today, owner=NODE)
    settled = ended_run(Claim(1, 0, today, 0, 1 << 22 | 1, 1), today, today, 1)
    assert await store.live_runs.settle(NODE, [settled]) == []
    assert await store.retention.reread(gone, KEEP) is None
    with pytest.raises(Unavailable, match="again"):
        await store.retention.drop(gone._replace(state="detached"))
    await store.retention.drop(gone)
    assert await look.fetchval("SELECT count(*) FROM run_history") == 1


async def test_one_node_does_it_at_a_time_and_not_again_before_it_is_time(look: Any, store: Store) -> None:
    hour, turn = timedelta(hours=1), timedelta(minutes=5)
    take = store.retention.take_turn
    assert await take("history", NODE, turn, hour)
    assert not await take("history", OTHER, turn, hour)
    assert await store.retention.keep_turn("history", NODE, turn)
    assert not await store.retention.keep_turn("history", OTHER, turn)
    await store.retention.end_turn("history", NODE)
    assert not await take("history", OTHER, turn, hour)
    await look.execute("UPDATE turns SET done_at = now() - interval '61 minutes'")
    assert await take("history", OTHER, turn, hour)
    await look.execute("UPDATE turns SET until = now() - interval '1 second'")
    assert not await store.retention.keep_turn("history", OTHER, turn)
    assert await take("history", NODE, turn, hour)
    await look.execute("UPDATE turns SET until = now() + interval '3 days'")  # the clock stepped back
    assert await take("history", OTHER, turn, hour)


async def test_a_session_keeps_house(look: Any, store: Store, database_url: str) -> None:
    from detent.node.session import Session
    from detent.settings.settings import Settings

    await old_history(look, store)
    session = Session(store, Settings(), ("scheduler",), {}, [])
    await session.open()
    await until(lambda: look.fetchval("SELECT count(*) = 24 FROM history_parts WHERE dropped_at IS NOT NULL"))
    await session.close(0)


# --- archives ---


def read_archive(path: Path) -> list[Any]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]


async def test_a_day_is_archived_whole_before_it_is_dropped(look: Any, store: Store, tmp_path: Path) -> None:
    first = await old_history(look, store)
    job = await add_job(look, None, name="nightly")
    for hour in range(3):
        await add_run(look, job, first + timedelta(hours=hour), result='"fine"')
    await add_run(
        look, job, first + timedelta(hours=5), status=5, token=None, attempt=None, ticks=7, until=first + DAY / 2
    )
    await look.execute(
        "INSERT INTO attempts (job, scheduled_at, serial, token, finished_at, attempt, outcome, error)"
        " VALUES ($1, $2, 0, 1, $2, 1, 'failed', 'ä \"b\"')",
        job, first,
    )  # fmt: skip
    await look.execute(
        "INSERT INTO run_logs (job, scheduled_at, serial, token, attempt, part, first, last, lines, written_at)"
        " VALUES ($1, $2, 0, 1, 1, 1, 1, 1, '[[1, 0, \"info\", \"shop\", \"ä\"]]', $2)",
        job, first,
    )  # fmt: skip
    await keeper(store, Folder(tmp_path)).tick()
    noted = await look.fetch("SELECT * FROM history_parts WHERE until = $1 ORDER BY parent", first + DAY)
    attempts, runs, logs = noted
    for row in noted:
        path = Path(row["archive"])
        assert path.parent == tmp_path / row["parent"]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == row["sha256"]
        assert row["archived_at"] <= row["dropped_at"]
    assert (runs["rows"], attempts["rows"], logs["rows"]) == (4, 1, 1)
    lines = read_archive(Path(runs["archive"]))
    assert [line["status"] for line in lines] == ["succeeded"] * 3 + ["missed"]
    assert {(line["job"], line["tenant"]) for line in lines} == {("nightly", "default")}
    assert datetime.fromisoformat(lines[0]["scheduled_at"]) == first
    assert (lines[0]["result"], lines[3]["ticks"]) == ('"fine"', 7)
    assert read_archive(Path(attempts["archive"]))[0]["error"] == 'ä "b"'
    (chunk,) = read_archive(Path(logs["archive"]))
    assert (chunk["job"], chunk["attempt"], chunk["lines"]) == ("nightly", 1, [[1, 0, "info", "shop", "ä"]])
    assert not list(tmp_path.rglob("*.part"))


async def test_many_rows_are_read_page_by_page(
    look: Any, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.store.retention.READ_AT_ONCE", 7)
    first = await old_history(look, store)
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, token, attempt)"
        " SELECT n % 3, $1::timestamptz + n * interval '1 minute', $1, 0, 1, 1, 1, 1"
        " FROM generate_series(1, 50) AS n",
        first,
    )
    await keeper(store, Folder(tmp_path)).tick()
    row = await look.fetchrow("SELECT * FROM history_parts WHERE until = $1 AND parent = 'run_history'", first + DAY)
    ids = [line["id"] for line in read_archive(Path(row["archive"]))]
    assert len(ids) == len(set(ids)) == row["rows"] == 50


async def test_what_cannot_be_archived_is_not_dropped_and_goes_on_next_time(
    look: Any, store: Store, tmp_path: Path
) -> None:
    first = await old_history(look, store)
    await add_run(look, 1, first)
    blocked = tmp_path / "archive"
    blocked.write_text("no folder")
    await keeper(store, Folder(blocked)).tick()
    assert await look.fetchval("SELECT count(*) FROM history_parts WHERE dropped_at IS NOT NULL") == 0
    assert await look.fetchval(f"SELECT count(*) FROM run_history_{first:%Y%m%d}") == 1
    blocked.unlink()
    await again(look, store, Folder(blocked))
    row = await look.fetchrow("SELECT * FROM history_parts WHERE until = $1 AND parent = 'run_history'", first + DAY)
    assert (row["rows"], row["dropped_at"] is not None) == (1, True)


async def test_an_archive_that_was_cut_in_half_leaves_nothing_with_its_name(
    look: Any, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await old_history(look, store)
    await add_run(look, 1, first)
    lines = store.retention.lines

    async def broken(part: Part) -> AsyncIterator[list[str]]:
        async for page in lines(part):
            yield page
            raise OSError("the disk is full")

    monkeypatch.setattr(store.retention, "lines", broken)
    await keeper(store, Folder(tmp_path)).tick()
    monkeypatch.undo()
    assert not list(tmp_path.rglob(f"run_history_{first:%Y%m%d}*"))
    await again(look, store, Folder(tmp_path))
    assert len(list(tmp_path.rglob(f"run_history_{first:%Y%m%d}*"))) == 1


async def test_object_storage_is_an_archive_too(look: Any, store: Store, tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    from detent.upkeep.archive import Bucket

    first = await old_history(look, store)
    await add_run(look, 1, first)
    await keeper(store, Bucket(f"file://{tmp_path}")).tick()
    row = await look.fetchrow("SELECT * FROM history_parts WHERE until = $1 AND parent = 'run_history'", first + DAY)
    path = Path(row["archive"].removeprefix("file://"))
    assert len(read_archive(path)) == 1
    assert hashlib.sha256(path.read_bytes()).hexdigest() == row["sha256"]


# --- leftovers ---


async def test_what_a_deleted_job_leaves_goes_when_history_knows_nothing_of_it(look: Any, store: Store) -> None:
    await old_history(look, store)
    old, young, alive = [await add_job(look, None, name=name) for name in ("old", "young", "alive")]
    for job, days in ((old, 195), (young, 3)):
        job_id = await look.fetchval("SELECT id FROM jobs WHERE job = $1", job)
        await JobOperations(store).registration.patch(job_id, {"priority": 7})
        await JobOperations(store).lifecycle.delete(job_id)
        await look.execute("UPDATE jobs SET updated_at = now() - $2::interval WHERE job = $1", job, days * DAY)
    assert await store.retention.purge_jobs(KEEP) == 0  # history still goes back to the beginning of time
    await keeper(store).tick()
    await look.execute("UPDATE turns SET done_at = NULL")
    await keeper(store).tick()
    assert {row["job"] for row in await look.fetch("SELECT job FROM jobs")} == {young, alive}
    for table in ("cursors", "job_revisions", "segments"):
        assert old not in {row["job"] for row in await look.fetch(f"SELECT job FROM {table}")}
    assert young in {row["job"] for row in await look.fetch("SELECT job FROM cursors")}


async def test_names_of_workers_go_with_the_history_they_are_in(look: Any, store: Store) -> None:
    await old_history(look, store)
    for name, days in (("gone", 195), ("lately", 5)):
        await store.pull.worker(1, name)
        await look.execute("UPDATE pull_workers SET seen_at = now() - $2::interval WHERE name = $1", name, days * DAY)
    await keeper(store).tick()
    await again(look, store)
    assert [row["name"] for row in await look.fetch("SELECT name FROM pull_workers")] == ["lately"]


async def test_a_backfill_of_old_ticks_does_not_delay_the_expiry_of_other_history(look: Any, store: Store) -> None:
    """Their rows make a partition that begins with time, and is kept from then on."""
    first = await old_history(look, store)
    gone, busy = [await add_job(look, None, name=name) for name in ("gone", "busy")]
    await JobOperations(store).lifecycle.delete(await look.fetchval("SELECT id FROM jobs WHERE job = $1", gone))
    await look.execute("UPDATE jobs SET updated_at = now() - interval '195 days' WHERE job = $1", gone)
    await store.pull.worker(1, "gone")
    await look.execute("UPDATE pull_workers SET seen_at = now() - interval '195 days'")
    for job in (gone, busy):
        await look.execute("INSERT INTO run_payloads VALUES ($1, $2, '{}')", job, first - 500 * DAY)
    await add_live_run(look, busy, first - 500 * DAY, owner=NODE)
    for part in await store.retention.expired(KEEP):
        await store.retention.detach(part)
        await store.retention.drop(part)
    settled = ended_run(Claim(busy, 0, first - 500 * DAY, 0, 1 << 22 | 1, 1), first, first, 1)
    assert await store.live_runs.settle(NODE, [settled]) == []
    assert await look.fetchval("SELECT min(since) = '-infinity' FROM history_bounds")
    await keeper(store).tick()
    assert [row["name"] for row in await look.fetch("SELECT name FROM jobs")] == ["busy"]
    assert await look.fetchval("SELECT count(*) FROM pull_workers") == 0
    assert [row["job"] for row in await look.fetch("SELECT job FROM run_payloads")] == [busy]


async def test_a_tick_that_is_to_be_skipped_is_so_however_late_its_turn_comes(look: Any, store: Store) -> None:
    """What nothing will ask for again is forgotten with its history, and not before."""
    now = await look.fetchval("SELECT date_trunc('second', now())")
    tick = now - 100 * DAY
    late, owed, passed, lately = [
        await add_job(look, tick if name == "late" else None, name=name, last_tick=last)
        for name, last in (("late", tick - DAY), ("owed", now), ("passed", now), ("lately", now))
    ]
    await look.execute(
        "INSERT INTO catchups (job, partition, kind, schedule, since, until, next_tick, left_over)"
        " SELECT job, partition, 'missed', schedule, $2, $3, $2, 9 FROM cursors WHERE job = $1",
        owed,
        tick - DAY,
        tick + DAY,
    )
    for job, at in ((late, tick), (owed, tick), (passed, tick), (lately, now - 80 * DAY)):
        await look.execute("INSERT INTO skips (job, tick, created_by) VALUES ($1, $2, 'ada')", job, at)
    await JobOperations(store).automatic.delete_completed()
    await keeper(store).tick()
    assert {row["job"] for row in await look.fetch("SELECT job FROM skips")} == {late, owed, lately}
