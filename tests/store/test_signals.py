"""Figures of the whole cluster: how much is due, ready, overdue and dead, and which nodes there are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from detent.store import Store
from tests.support.factories import add_job, add_live_run, add_node

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


async def history(look: Any, job: int, at: datetime, status: int = 2, reason: str | None = None) -> None:
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status, reason)"
        " VALUES ($1, $2, 1, $2, 0, 1, 1, $3, $4)",
        *(job, at, status, reason),
    )


async def test_an_empty_cluster_reports_only_that_no_node_leads(verbs: Store, look: Any) -> None:
    told = await verbs.signals.read()
    assert told._replace(answer_seconds=0) == told._replace(
        ticks_due=0, oldest_due=0, runs_ready=0, oldest_ready=0, jobs_overdue=0, dead_letters=0, catch_up_ticks=0,
        nodes={}, zone_data_releases=0, versions=0, partitions_without_leader=256, partition_elections=0,
        incidents_open=0, answer_seconds=0,
    )  # fmt: skip


async def test_what_is_due_and_what_is_ready_is_counted_with_its_age(verbs: Store, look: Any) -> None:
    now = datetime.now(UTC)
    await add_job(look, now - 10 * MINUTE)
    await add_job(look, now - MINUTE)
    await add_job(look, now + MINUTE)
    for lane in range(3):
        await add_live_run(look, 77, now - MINUTE, lane=lane, priority=lane)
    await add_live_run(look, 78, now + MINUTE)  # a retry that has to wait
    await add_live_run(look, 79, now - HOUR, owner=5)
    told = await verbs.signals.read()
    assert (told.ticks_due, told.runs_ready) == (2, 3)
    assert 600 <= told.oldest_due < 660
    assert 60 <= told.oldest_ready < 120


async def test_a_job_is_overdue_when_its_tick_is_due_for_longer_than_its_interval(verbs: Store, look: Any) -> None:
    now = datetime.now(UTC)
    await add_job(look, now - 61 * MINUTE, last_tick=now - 121 * MINUTE)
    await add_job(look, now - 59 * MINUTE, last_tick=now - 119 * MINUTE)
    await add_job(look, now - 61 * MINUTE)  # its first tick: it has no interval yet
    assert (await verbs.signals.read()).jobs_overdue == 1


async def test_a_job_is_overdue_when_its_run_has_waited_for_two_intervals(verbs: Store, look: Any) -> None:
    now = datetime.now(UTC)
    stands: dict[str, Any] = {"last_tick": now - MINUTE, "next_tick": now + HOUR - MINUTE}
    waits, tried, recent = [await add_job(look, **stands, fire_at=stands["next_tick"]) for _ in range(3)]
    await add_live_run(look, waits, now - 2 * HOUR + MINUTE)
    await add_live_run(look, tried, now - 2 * HOUR + MINUTE, attempt=2)
    await add_live_run(look, recent, now - HOUR)
    assert (await verbs.signals.read()).jobs_overdue == 0
    await look.execute("UPDATE live_runs SET scheduled_at = scheduled_at - interval '2 minutes'")
    assert (await verbs.signals.read()).jobs_overdue == 1


async def test_dead_runs_count_until_they_are_redriven_or_discarded(verbs: Store, look: Any) -> None:
    now = datetime.now(UTC)
    job, deleted = await add_job(look, None), await add_job(look, None)
    await look.execute("UPDATE jobs SET status = 'deleted' WHERE job = $1", deleted)
    await history(look, job, now)
    await history(look, job, now - MINUTE, reason="discarded")
    await history(look, job, now - HOUR, status=1)
    await history(look, deleted, now)
    assert (await verbs.signals.read()).dead_letters == 1


async def test_ticks_that_are_still_to_be_made_up_for_are_added_up(verbs: Store, look: Any) -> None:
    for ticks in (30, 12):
        await look.execute(
            "INSERT INTO catchups (job, partition, kind, schedule, since, until, next_tick, left_over)"
            " VALUES (1, 1, 'missed', 1, now(), now(), now(), $1)",
            ticks,
        )
    assert (await verbs.signals.read()).catch_up_ticks == 42


async def test_nodes_are_alive_silent_draining_or_evicted(verbs: Store, look: Any) -> None:
    for node in range(1, 6):
        await add_node(look, node, evicted=node == 5)
    await look.execute("UPDATE nodes SET beat_at = now() - interval '41 minutes' WHERE node = 3")
    await look.execute("UPDATE nodes SET draining = true, tzdata = 'other' WHERE node = 4")
    await look.execute("UPDATE nodes SET version = 'older' WHERE node = 5")
    await look.execute(
        "UPDATE partitions SET holder = CASE WHEN partition < 200 THEN 1 WHEN partition < 220 THEN 5 END"
    )
    await look.execute("INSERT INTO elections (partition, term, node, nomination) VALUES (7, 1, 1, 0), (7, 2, 2, 0)")
    told = await verbs.signals.read()
    assert told.nodes == {"alive": 2, "silent": 1, "draining": 1, "evicted": 1}
    assert (told.zone_data_releases, told.versions) == (2, 1)
    assert told.partitions_without_leader == 56
    assert told.partition_elections == 2
