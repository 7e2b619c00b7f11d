"""Pulled runs: which worker gets them, how long its lease is, what a late report does, and that nodes do not touch
them."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from detent.domain.identity import RunKey
from detent.domain.run import Claim
from detent.domain.states import CODES, RunStatus
from detent.jobs import JobOperations
from detent.store import Store, sql
from detent.store.nodes import CRASH_CAP
from detent.store.pull import PullBeat, Pulled, Report, Wanted
from tests.support.ends import ended_run
from tests.support.factories import LONG_AGO, add_job, add_live_run, add_node, add_queue
from tests.support.waiting import until

MINE, NODE = 1, 11
MINUTE = timedelta(minutes=1)
FIRST_TOKEN = 1 << 22 | 1
SUCCEEDED = CODES[RunStatus.SUCCEEDED]
DEAD = CODES[RunStatus.DEAD]
EVERYTHING = Wanted("default", ("", "shell"), True)


@pytest.fixture(autouse=True)
async def empty(look: Any) -> None:
    await look.execute("DELETE FROM pull_leases; DELETE FROM pull_workers; DELETE FROM queues WHERE queue > 1")
    await add_node(look, NODE)


@pytest.fixture
async def worker(verbs: Store, empty: None) -> int:
    return await verbs.pull.worker(MINE, "js-1")


@pytest.fixture
async def theirs(look: Any) -> int:
    """Another tenant."""
    number: int = await look.fetchval(
        "INSERT INTO tenants (name) VALUES ('other') ON CONFLICT (name) DO UPDATE SET name = excluded.name"
        " RETURNING tenant"
    )
    return number


async def add_run(look: Any, needs: str = "", queue: str = "default", tenant: int = 1, **columns: Any) -> RunKey:
    number = await add_queue(look, queue, needs, tenant)
    spec: dict[str, Any] = {key: columns.pop(key) for key in ("timeout_seconds", "max_retries") if key in columns}
    target = {"type": "http", "url": "http://127.0.0.1:9/"}
    job = await add_job(look, None, definition={"schedule": "every 1h", "target": target, **spec}, queue=number)
    await look.execute("UPDATE jobs SET tenant = $2 WHERE job = $1", job, tenant)
    await add_live_run(look, job, queue=number, **columns)
    return RunKey(job, LONG_AGO, 0)


async def claim(
    verbs: Store, worker: int, wanted: Wanted = EVERYTHING, limit: int = 100, lease: timedelta = MINUTE, tenant: int = 1
) -> list[Pulled]:
    return await verbs.pull.claim(tenant, worker, wanted, limit, lease)


async def claimed(look: Any, verbs: Store, worker: int, lease: timedelta = MINUTE, **columns: Any) -> Claim:
    await add_run(look, **columns)
    (pulled,) = await claim(verbs, worker, lease=lease)
    return pulled.claim


async def run_out(look: Any) -> None:
    """The leases' time is over, long before that of their runs."""
    await look.execute("UPDATE pull_leases SET lease_until = now() - interval '1 second'")


async def live(look: Any) -> Any:
    return await look.fetchrow("SELECT * FROM live_runs")


async def ended(look: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await look.fetch("SELECT status, reason, token, node, attempt FROM run_history")]


async def attempts(look: Any) -> list[tuple[Any, ...]]:
    rows = await look.fetch("SELECT token, node, attempt, outcome, error FROM attempts ORDER BY token")
    return [tuple(row) for row in rows]


def success(claim: Claim, result: str | None = None) -> Report:
    return Report(claim.key, claim.token, SUCCEEDED, "succeeded", result=result)


def failure(claim: Claim, delay: timedelta = MINUTE) -> Report:
    return Report(claim.key, claim.token, None, "failed", error="no", delay=delay)


# --- claim ---


async def test_a_pulled_run_has_a_higher_token_a_lease_and_no_node_for_its_owner(
    look: Any, verbs: Store, worker: int
) -> None:
    key = await add_run(look, timeout_seconds=90)
    (pulled,) = await claim(verbs, worker)
    assert (pulled.claim.key, pulled.claim.token, pulled.claim.attempt) == (key, FIRST_TOKEN + 1, 1)
    assert pulled.definition is not None
    assert pulled.definition.spec.timeout_seconds == 90
    lease = await look.fetchrow("SELECT *, lease_until - claimed_at AS length FROM pull_leases")
    assert (lease["token"], lease["worker"], lease["tenant"], lease["length"]) == (
        FIRST_TOKEN + 1,
        worker,
        MINE,
        MINUTE,
    )
    assert lease["ends_at"] - lease["claimed_at"] == timedelta(seconds=90)
    assert pulled.lease_until == lease["lease_until"]
    run = await live(look)
    assert (run["owner"], run["token"], run["started_at"]) == (-worker, FIRST_TOKEN + 1, None)
    assert await claim(verbs, worker) == []


async def test_a_lease_does_not_outlast_the_time_limit_of_its_run(look: Any, verbs: Store, worker: int) -> None:
    await claimed(look, verbs, worker, timeout_seconds=20)
    assert await look.fetchval("SELECT lease_until - claimed_at FROM pull_leases") == timedelta(seconds=20)


@pytest.mark.parametrize(
    ("has", "functions", "expected"),
    [
        (("python:a",), False, {"python:a"}),
        (("python:a", "python:b", "python:none"), False, {"python:a", "python:b"}),
        ((), True, {"python:a", "python:b"}),
        (("",), False, {""}),
        (("shell",), True, {"shell", "python:a", "python:b"}),
    ],
)
async def test_a_worker_gets_only_what_it_says_it_can_run(
    look: Any, verbs: Store, worker: int, has: tuple[str, ...], functions: bool, expected: set[str]
) -> None:
    runs = {await add_run(look, needs, "mail"): needs for needs in ("", "shell", "python:a", "python:b")}
    await add_run(look, "python:a", "other-queue")
    got = await claim(verbs, worker, Wanted("mail", has, functions))
    assert {runs[pulled.claim.key] for pulled in got} == expected


async def test_the_highest_priority_goes_first_then_the_oldest(look: Any, verbs: Store, worker: int) -> None:
    order = [(100, 3), (100, 5), (5, 1), (5, 2), (-100, 0)]
    runs = [
        await add_run(look, f"python:{n % 2}", priority=priority, not_before=LONG_AGO + age * MINUTE)
        for n, (priority, age) in enumerate(order)
    ]
    got = [pulled.claim.key for _ in order for pulled in await claim(verbs, worker, limit=1)]
    assert [key in runs[:2] for key in got] == [True, True, False, False, False]
    assert got[4] == runs[4]


async def test_what_is_not_due_yet_waits(look: Any, verbs: Store, worker: int) -> None:
    await add_run(look, not_before=datetime.now(LONG_AGO.tzinfo) + timedelta(hours=1))
    assert await claim(verbs, worker) == []


async def test_no_worker_ever_gets_another_tenants_runs(look: Any, verbs: Store, worker: int, theirs: int) -> None:
    key = await add_run(look, tenant=theirs)
    astray = await add_run(look, tenant=theirs)
    await look.execute("UPDATE live_runs SET queue = 1 WHERE job = $1", astray.job)  # as if it stood in the wrong queue
    assert await claim(verbs, worker) == []
    their_worker = await verbs.pull.worker(theirs, "js-1")
    assert their_worker != worker
    (pulled,) = await claim(verbs, their_worker, tenant=theirs)
    assert pulled.claim.key == key
    assert await verbs.pull.heartbeat(MINE, [PullBeat(key, pulled.claim.token, MINUTE)]) == [None]
    assert await verbs.pull.settle(MINE, [success(pulled.claim)]) == [None]
    assert await verbs.pull.held(MINE, key, pulled.claim.token) is None
    assert await verbs.pull.recorded(MINE, key, pulled.claim.token) is None


async def test_a_run_carries_the_definition_it_was_fired_with(look: Any, verbs: Store, worker: int) -> None:
    key = await add_run(look, timeout_seconds=30, revision=1)
    await look.execute(
        "INSERT INTO job_revisions (job, revision, definition) SELECT job, 1, definition FROM jobs WHERE job = $1",
        key.job,
    )
    await look.execute(
        "UPDATE jobs SET revision = 2, definition = jsonb_set(definition, '{timeout_seconds}', '99') WHERE job = $1",
        key.job,
    )
    (pulled,) = await claim(verbs, worker)
    assert pulled.definition is not None
    assert pulled.definition.spec.timeout_seconds == 30
    await look.execute("DELETE FROM job_revisions")
    held = await verbs.pull.held(MINE, key, pulled.claim.token)
    assert held is not None
    assert held.definition is None


async def test_a_worker_is_known_by_its_name(verbs: Store, worker: int) -> None:
    assert await verbs.pull.worker(MINE, "js-1") == worker
    assert await verbs.pull.worker(MINE, "js-2") > worker


# --- beside embedded workers ---


async def test_embedded_workers_do_not_touch_a_pulled_run(look: Any, verbs: Store, worker: int) -> None:
    held = await claimed(look, verbs, worker)
    before = tuple(await live(look))
    assert await verbs.live_runs.claim(NODE, 1, [1], 10) == []
    assert await verbs.live_runs.reconcile(NODE) == []
    assert not await verbs.live_runs.start(NODE, [held])
    assert not await verbs.live_runs.give_back(NODE, [held])
    done = ended_run(held, LONG_AGO, LONG_AGO, SUCCEEDED)
    assert await verbs.live_runs.settle(NODE, [done]) == [done]
    await look.execute("UPDATE nodes SET evicted = true")
    assert await verbs.nodes.rescue(NODE) == []
    assert await verbs.nodes.delete(NODE)
    assert tuple(await live(look)) == before


async def test_workers_that_pull_do_not_touch_an_embedded_workers_run(look: Any, verbs: Store, worker: int) -> None:
    await add_run(look)
    (ours,) = await verbs.live_runs.claim(NODE, 1, [1], 10)
    before = tuple(await live(look))
    assert await claim(verbs, worker) == []
    assert await verbs.pull.heartbeat(MINE, [PullBeat(ours.key, ours.token, MINUTE)]) == [None]
    assert await verbs.pull.settle(MINE, [success(ours)]) == [None]
    assert await verbs.pull.rescue() == []
    await verbs.pull.give_back([ours])
    assert tuple(await live(look)) == before


async def test_both_kinds_of_workers_on_one_queue_share_its_runs_and_none_is_taken_twice(
    look: Any, verbs: Store, worker: int
) -> None:
    keys = {await add_run(look) for _ in range(60)}

    async def embedded() -> list[RunKey]:
        return [taken.key for taken in await verbs.live_runs.claim(NODE, 1, [1], 5)]

    async def pulling() -> list[RunKey]:
        return [pulled.claim.key for pulled in await claim(verbs, worker, limit=5)]

    taken: list[RunKey] = []
    while batches := [keys for keys in await asyncio.gather(embedded(), pulling(), embedded(), pulling()) if keys]:
        taken += [key for batch in batches for key in batch]
    assert len(taken) == 60
    assert set(taken) == keys
    owners = await look.fetch("SELECT DISTINCT owner FROM live_runs")
    assert {row["owner"] for row in owners} == {NODE, -worker}
    leases = await look.fetchval("SELECT count(*) FROM pull_leases")
    assert leases == await look.fetchval("SELECT count(*) FROM live_runs WHERE owner < 0")


async def test_the_claim_reads_along_the_index_of_what_is_ready(look: Any, worker: int) -> None:
    await look.execute("SET enable_seqscan = off")  # the tables are empty here
    arguments = (MINE, worker, "default", [""], True, 10, MINUTE, False, None, None, None)
    rows = await look.fetch("EXPLAIN " + sql.pull.CLAIM.text, *arguments)
    await look.execute("RESET enable_seqscan")
    assert any("live_ready" in row[0] for row in rows)


# --- heartbeat ---


async def test_a_heartbeat_extends_the_lease_from_the_databases_now(look: Any, verbs: Store, worker: int) -> None:
    held = await claimed(look, verbs, worker, lease=timedelta(seconds=5))
    (extended,) = await verbs.pull.heartbeat(MINE, [PullBeat(held.key, held.token, MINUTE)])
    assert extended is not None
    assert not extended.cancel
    left = await look.fetchval("SELECT lease_until - now() FROM pull_leases")
    assert timedelta(seconds=50) < left <= MINUTE
    assert extended.lease_until == await look.fetchval("SELECT lease_until FROM pull_leases")


async def test_a_heartbeat_names_the_token_of_now(look: Any, verbs: Store, worker: int) -> None:
    held = await claimed(look, verbs, worker)
    beats = [PullBeat(held.key, token, MINUTE) for token in (held.token - 1, held.token, held.token + 1)]
    answers = await verbs.pull.heartbeat(MINE, beats)
    assert [answer is not None for answer in answers] == [False, True, False]


async def test_an_expired_lease_continues_while_no_worker_has_taken_its_run(
    look: Any, verbs: Store, worker: int
) -> None:
    held = await claimed(look, verbs, worker)
    await run_out(look)
    (extended,) = await verbs.pull.heartbeat(MINE, [PullBeat(held.key, held.token, MINUTE)])
    assert extended is not None
    assert await verbs.pull.rescue() == []


async def test_no_heartbeat_goes_beyond_the_time_limit_of_the_run(look: Any, verbs: Store, worker: int) -> None:
    held = await claimed(look, verbs, worker, timeout_seconds=30)
    (extended,) = await verbs.pull.heartbeat(MINE, [PullBeat(held.key, held.token, timedelta(hours=1))])
    assert extended is not None
    assert extended.lease_until == await look.fetchval("SELECT ends_at FROM pull_leases")
    await look.execute("UPDATE pull_leases SET ends_at = now(), lease_until = now()")
    assert await verbs.pull.heartbeat(MINE, [PullBeat(held.key, held.token, MINUTE)]) == [None]


async def test_a_heartbeat_reports_that_the_run_is_asked_to_stop(look: Any, verbs: Store, worker: int) -> None:
    held = await claimed(look, verbs, worker)
    assert await JobOperations(verbs).runs.cancel(held.key) is RunStatus.RUNNING
    (extended,) = await verbs.pull.heartbeat(MINE, [PullBeat(held.key, held.token, MINUTE)])
    assert extended is not None
    assert extended.cancel


async def test_a_heartbeat_after_the_rescue_is_refused_and_extends_nothing(
    look: Any, verbs: Store, worker: int
) -> None:
    held = await claimed(look, verbs, worker)
    await run_out(look)
    assert len(await verbs.pull.rescue()) == 1
    assert await verbs.pull.heartbeat(MINE, [PullBeat(held.key, held.token, MINUTE)]) == [None]
    (again,) = await claim(verbs, worker, lease=timedelta(seconds=5))
    assert again.claim.token > held.token
    assert await verbs.pull.heartbeat(MINE, [PullBeat(held.key, held.token, MINUTE)]) == [None]
    assert await look.fetchval("SELECT lease_until FROM pull_leases") == again.lease_until


async def waiting_for_a_lock(look: Any) -> bool:
    return bool(
        await look.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
    )


async def test_a_heartbeat_that_waited_for_a_rescue_is_refused(
    look: Any, another: Any, verbs: Store, worker: int
) -> None:
    held = await claimed(look, verbs, worker)
    await run_out(look)
    async with another.transaction():
        assert len(await another.fetch(sql.pull.RESCUE.text, CRASH_CAP, 10)) == 1
        beat = asyncio.create_task(verbs.pull.heartbeat(MINE, [PullBeat(held.key, held.token, MINUTE)]))
        await until(lambda: waiting_for_a_lock(look))
    assert await beat == [None]


async def test_a_rescue_passes_over_a_run_whose_worker_is_speaking(
    look: Any, another: Any, verbs: Store, worker: int
) -> None:
    held = await claimed(look, verbs, worker)
    await run_out(look)
    async with another.transaction():
        await another.fetch(sql.pull.HEARTBEAT.text, MINE, [held.job], [held.scheduled_at], [0], [held.token], [MINUTE])
        assert await verbs.pull.rescue() == []
    assert await verbs.pull.rescue() == []
    assert (await live(look))["token"] == held.token


async def test_a_report_that_waited_for_a_rescue_changes_nothing(
    look: Any, another: Any, verbs: Store, worker: int
) -> None:
    held = await claimed(look, verbs, worker)
    await run_out(look)
    async with another.transaction():
        assert len(await another.fetch(sql.pull.RESCUE.text, CRASH_CAP, 10)) == 1
        report = asyncio.create_task(verbs.pull.settle(MINE, [success(held)]))
        await until(lambda: waiting_for_a_lock(look))
    assert await report == [None]
    run = await live(look)
    assert (run["owner"], run["token"]) == (None, held.token + 1)
    assert await ended(look) == []


# --- leases that run out ---


async def test_a_run_whose_lease_ran_out_returns_uncounted_under_a_higher_token(
    look: Any, verbs: Store, worker: int
) -> None:
    held = await claimed(look, verbs, worker)
    assert await verbs.pull.rescue() == []
    await run_out(look)
    (rescued,) = await verbs.pull.rescue()
    assert (rescued.job, rescued.dead) == (held.job, False)
    run = await live(look)
    assert (run["owner"], run["token"], run["attempt"], run["crashes"]) == (None, held.token + 1, 1, 1)
    ((token, node, attempt, outcome, _),) = await attempts(look)
    assert (token, node, attempt, outcome) == (held.token, -worker, 1, "lost")
    assert await look.fetchval("SELECT count(*) FROM pull_leases") == 0


async def test_a_run_lost_again_and_again_is_dead(look: Any, verbs: Store, worker: int) -> None:
    await add_run(look)
    for _ in range(CRASH_CAP + 2):  # the first two only make it a suspect
        assert len(await claim(verbs, worker)) == 1
        await run_out(look)
        assert len(await verbs.pull.rescue()) == 1
    assert await live(look) is None
    ((status, reason, _, node, attempt),) = await ended(look)
    assert (status, reason, node, attempt) == (DEAD, "lost", -worker, CRASH_CAP + 1)
    tokens = [row[0] for row in await attempts(look)]
    assert tokens == sorted(set(tokens))
    assert len(tokens) == CRASH_CAP + 2


async def test_a_suspect_is_given_alone_and_its_worker_gets_nothing_else_for_a_while(
    look: Any, verbs: Store, worker: int
) -> None:
    suspect = (await add_run(look, crashes=2)).job
    await add_run(look)
    (pulled,) = await claim(verbs, worker)
    assert pulled.claim.job == suspect
    assert await claim(verbs, worker) == []
    other = await verbs.pull.worker(MINE, "other")
    assert len(await claim(verbs, other)) == 1
    assert await look.fetchval("SELECT count(*) FROM pull_leases WHERE alone_until IS NOT NULL") == 1


async def test_a_suspect_that_runs_on_is_no_longer_alone_once_its_worker_gets_more(
    look: Any, verbs: Store, worker: int
) -> None:
    suspect = (await add_run(look, crashes=2, lost_alone=CRASH_CAP)).job
    assert len(await claim(verbs, worker)) == 1
    await look.execute("UPDATE pull_leases SET alone_until = now() - interval '1 second'")
    assert await claim(verbs, worker) == []
    assert await look.fetchval("SELECT alone_until IS NOT NULL FROM pull_leases")
    await add_run(look)
    assert len(await claim(verbs, worker)) == 1
    await run_out(look)
    assert {(run.job == suspect, run.dead) for run in await verbs.pull.rescue()} == {(True, False), (False, False)}


async def test_a_busy_worker_gets_a_suspect_only_after_a_wait_and_then_its_loss_does_not_count(
    look: Any, verbs: Store, worker: int
) -> None:
    await add_run(look)
    assert len(await claim(verbs, worker)) == 1
    now = await look.fetchval("SELECT now()")
    suspect = (await add_run(look, crashes=3, lost_alone=CRASH_CAP, not_before=now - timedelta(seconds=50))).job
    assert await claim(verbs, worker) == []
    await look.execute("UPDATE live_runs SET not_before = not_before - interval '20 seconds' WHERE job = $1", suspect)
    assert [pulled.claim.job for pulled in await claim(verbs, worker)] == [suspect]
    await run_out(look)
    assert not any(run.dead for run in await verbs.pull.rescue())


async def test_two_claims_of_one_worker_at_the_same_time_make_no_run_alone(
    look: Any, verbs: Store, worker: int
) -> None:
    """Neither sees the other's lease; the rescue sees both, together or one after the other."""
    suspect = (await add_run(look, crashes=2, lost_alone=CRASH_CAP)).job
    assert len(await claim(verbs, worker)) == 1
    await add_run(look)
    await look.execute("UPDATE pull_leases SET alone_until = now() + interval '1 hour', worker = worker + 1000")
    assert len(await claim(verbs, worker)) == 1
    await look.execute("UPDATE pull_leases SET worker = $1", worker)
    await look.execute("UPDATE pull_leases SET lease_until = now() - interval '1 second' WHERE job <> $1", suspect)
    assert [run.dead for run in await verbs.pull.rescue()] == [False]
    await run_out(look)
    assert [(run.job, run.dead) for run in await verbs.pull.rescue()] == [(suspect, False)]


async def test_an_at_most_once_run_counts_as_started_when_it_was_handed_over(
    look: Any, verbs: Store, worker: int
) -> None:
    held = await claimed(look, verbs, worker, once=True)
    await run_out(look)
    (rescued,) = await verbs.pull.rescue()
    assert rescued.dead
    assert await ended(look) == [(DEAD, "lost", held.token, -worker, 1)]


async def test_a_lost_run_that_was_asked_to_stop_is_cancelled(look: Any, verbs: Store, worker: int) -> None:
    held = await claimed(look, verbs, worker)
    await JobOperations(verbs).runs.cancel(held.key)
    await run_out(look)
    assert len(await verbs.pull.rescue()) == 1
    assert [row[0] for row in await ended(look)] == [CODES[RunStatus.CANCELLED]]


async def test_a_lease_that_ends_too_far_ahead_is_void(look: Any, verbs: Store, worker: int) -> None:
    await claimed(look, verbs, worker, timeout_seconds=86400)
    await look.execute("UPDATE pull_leases SET lease_until = now() + interval '10 minutes'")  # the clock stepped back
    assert len(await verbs.pull.rescue()) == 1


async def test_runs_over_their_time_limit_are_found_although_their_worker_beats(
    look: Any, verbs: Store, worker: int
) -> None:
    held = await claimed(look, verbs, worker)
    assert await verbs.pull.overdue() == []
    await look.execute("UPDATE pull_leases SET ends_at = now(), lease_until = now()")
    (overdue,) = await verbs.pull.overdue()
    assert (overdue.claim, overdue.tenant) == (held, MINE)
    assert await verbs.pull.rescue() == [], "such a worker is not lost"


# --- reports ---


async def test_a_run_that_succeeded_is_in_history_with_its_worker(look: Any, verbs: Store, worker: int) -> None:
    held = await claimed(look, verbs, worker)
    assert await verbs.pull.settle(MINE, [success(held, '{"n": 1}')]) == [RunStatus.SUCCEEDED]
    assert await ended(look) == [(SUCCEEDED, None, held.token, -worker, 1)]
    row = await look.fetchrow("SELECT result, started_at, finished_at FROM run_history")
    assert row["result"] == '{"n": 1}'
    assert row["started_at"] <= row["finished_at"]
    assert await attempts(look) == []
    assert await live(look) is None
    assert await look.fetchval("SELECT count(*) FROM pull_leases") == 0


async def test_a_run_that_failed_waits_for_its_next_try(look: Any, verbs: Store, worker: int) -> None:
    held = await claimed(look, verbs, worker)
    assert await verbs.pull.settle(MINE, [failure(held)]) == [RunStatus.RETRYING]
    run = await live(look)
    assert (run["owner"], run["attempt"], run["crashes"]) == (None, 2, 0)
    assert await look.fetchval("SELECT not_before > now() FROM live_runs")
    assert await attempts(look) == [(held.token, -worker, 1, "failed", "no")]
    assert await claim(verbs, worker) == []
    await look.execute("UPDATE live_runs SET not_before = now()")
    (again,) = await claim(verbs, worker)
    assert (again.claim.token, again.claim.attempt) == (held.token + 1, 2)
    assert await verbs.pull.settle(MINE, [success(again.claim)]) == [RunStatus.SUCCEEDED]
    assert [row[3] for row in await attempts(look)] == ["failed", "succeeded"]


async def test_a_run_may_go_on_in_an_embedded_worker(look: Any, verbs: Store, worker: int) -> None:
    held = await claimed(look, verbs, worker)
    await verbs.pull.settle(MINE, [failure(held, timedelta(0))])
    (taken,) = await verbs.live_runs.claim(NODE, 1, [1], 10)
    assert (taken.token, taken.attempt) == (held.token + 1, 2)
    assert await verbs.live_runs.settle(NODE, [ended_run(taken, LONG_AGO, LONG_AGO, SUCCEEDED)]) == []


async def test_a_run_that_was_asked_to_stop_has_no_next_try_but_may_still_succeed(
    look: Any, verbs: Store, worker: int
) -> None:
    first = await claimed(look, verbs, worker)
    second = await claimed(look, verbs, worker)
    for held in (first, second):
        await JobOperations(verbs).runs.cancel(held.key)
    answers = await verbs.pull.settle(MINE, [failure(first), success(second)])
    assert answers == [RunStatus.CANCELLED, RunStatus.SUCCEEDED]
    assert {row[:2] for row in await ended(look)} == {(3, "cancelled"), (1, None)}


async def test_the_same_report_twice_in_one_batch_is_written_once(look: Any, verbs: Store, worker: int) -> None:
    held = await claimed(look, verbs, worker)
    old = success(held)._replace(token=held.token - 1)
    answers = await verbs.pull.settle(MINE, [old, success(held), failure(held), success(held)])
    assert answers == [None, RunStatus.SUCCEEDED, None, None]
    assert len(await ended(look)) == 1


async def test_a_report_under_an_old_token_leaves_the_lease_of_now(look: Any, verbs: Store, worker: int) -> None:
    held = await claimed(look, verbs, worker)
    assert await verbs.pull.settle(MINE, [success(held)._replace(token=held.token - 1)]) == [None]
    await verbs.pull.give_back([held._replace(token=held.token - 1)])
    (extended,) = await verbs.pull.heartbeat(MINE, [PullBeat(held.key, held.token, MINUTE)])
    assert extended is not None
    assert (await live(look))["owner"] == -worker


async def test_what_is_on_record_tells_a_repeated_report_from_a_late_one(look: Any, verbs: Store, worker: int) -> None:
    held = await claimed(look, verbs, worker)
    await verbs.pull.settle(MINE, [failure(held, timedelta(0))])
    recorded = await verbs.pull.recorded(MINE, held.key, held.token)
    assert recorded == (RunStatus.RETRYING, held.token, "failed")
    (again,) = await claim(verbs, worker)
    assert await verbs.pull.recorded(MINE, held.key, again.claim.token) == (RunStatus.RUNNING, again.claim.token, None)
    await verbs.pull.settle(MINE, [success(again.claim)])
    recorded = await verbs.pull.recorded(MINE, held.key, again.claim.token)
    assert recorded == (RunStatus.SUCCEEDED, again.claim.token, "succeeded")
    assert await verbs.pull.recorded(MINE, RunKey(held.job, LONG_AGO, 5), held.token) is None


LEASE_ENDED = "the lease ended without a word from its worker; it may not have started"


async def test_a_late_report_is_kept_with_the_attempt_that_was_given_up(look: Any, verbs: Store, worker: int) -> None:
    held = await claimed(look, verbs, worker)
    await run_out(look)
    await verbs.pull.rescue()
    assert await verbs.pull.settle(MINE, [success(held)]) == [None]
    for _ in range(2):
        await verbs.pull.record_stale(held.key, held.token, "refused: succeeded")
    assert await attempts(look) == [(held.token, -worker, 1, "stale", f"{LEASE_ENDED}; refused: succeeded")]
    await verbs.pull.record_stale(held.key, held.token + 77, "refused: succeeded")
    assert len(await attempts(look)) == 1, "a token that never was leaves no trace"


async def test_a_late_report_after_a_timeout_leaves_the_timeout(look: Any, verbs: Store, worker: int) -> None:
    held = await claimed(look, verbs, worker)
    timeout = Report(held.key, held.token, DEAD, "timeout", "retries exhausted", error="No answer within 30 s.")
    await verbs.pull.settle(MINE, [timeout])
    for _ in range(2):
        await verbs.pull.record_stale(held.key, held.token, "refused: succeeded")
    assert await attempts(look) == [(held.token, -worker, 1, "timeout", "No answer within 30 s. refused: succeeded")]


async def test_runs_that_could_not_be_handed_over_wait_again_uncounted(look: Any, verbs: Store, worker: int) -> None:
    held = await claimed(look, verbs, worker, once=True)
    await verbs.pull.give_back([held])
    run = await live(look)
    assert (run["owner"], run["token"], run["attempt"], run["crashes"]) == (None, held.token + 1, 1, 0)
    assert run["started_at"] is None
    assert await look.fetchval("SELECT count(*) FROM pull_leases") == 0
    assert await verbs.pull.settle(MINE, [success(held)]) == [None]


async def test_concurrent_heartbeats_reports_and_rescues_do_not_deadlock(look: Any, verbs: Store, worker: int) -> None:
    for _ in range(40):
        await add_run(look)
    held = [pulled.claim for pulled in await claim(verbs, worker)]
    await look.execute("UPDATE pull_leases SET lease_until = now() - interval '1 second' WHERE job % 2 = 0")
    beats = [PullBeat(run.key, run.token, MINUTE) for run in held]
    reports = [success(run) for run in held]
    answers = await asyncio.gather(
        verbs.pull.heartbeat(MINE, beats),
        verbs.pull.settle(MINE, reports[:20][::-1]),
        verbs.pull.rescue(),
        verbs.pull.heartbeat(MINE, beats[::-1]),
        verbs.pull.settle(MINE, reports[10:]),
        verbs.pull.rescue(),
    )
    written = [status for batch in (answers[1], answers[4]) for status in batch if status]
    freed = len(answers[2]) + len(answers[5])
    assert len(written) + freed == 40
    assert await look.fetchval("SELECT count(*) FROM run_history") == len(written)
    assert await look.fetchval("SELECT count(*) FROM live_runs WHERE owner IS NULL") == freed
    assert await look.fetchval("SELECT count(*) FROM pull_leases") == 0
