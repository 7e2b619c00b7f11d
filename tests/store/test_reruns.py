"""Re-runs of finished runs, and retries of dead runs, against a real PostgreSQL."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from detent.domain.identity import MANUAL, RunKey, run_id
from detent.domain.run_output import OutputChunk, OutputLine, encode_lines
from detent.domain.states import CODES, RunStatus
from detent.errors import Conflict, NotFound
from detent.jobs import JobOperations
from detent.store import Store, reruns
from detent.store.cursors import Advance
from detent.store.db import LockTimeout
from detent.store.dead_letters import DeadLetterChunk, DeadLetterFilter
from detent.store.output import LogPlace
from detent.store.statement import STATEMENTS
from detent.store.tasks import trigger
from tests.support.ends import ended_run
from tests.support.factories import add_job, add_live_run, add_node
from tests.support.ticks import advance_of

NODE = 7
AT = datetime.now(UTC).replace(hour=0, minute=5, second=0, microsecond=0)
HOUR = timedelta(hours=1)
EVERY = DeadLetterFilter()


async def finished(
    look: Any, job: int, at: datetime = AT, status: RunStatus = RunStatus.DEAD, serial: int = 0
) -> RunKey:
    ran = status in (RunStatus.SUCCEEDED, RunStatus.DEAD)
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, serial, revision, status, finished_at, token, attempt, node)"
        " VALUES ($1, $2, $3, 1, $4, $2, $5, $6, $7)",
        *(job, at, serial, CODES[status], 1 << 22 | 9 if ran else None, 4 if ran else None, NODE if ran else None),
    )
    return RunKey(job, at, serial)


async def job_id(look: Any, job: int) -> UUID:
    found: UUID = await look.fetchval("SELECT id FROM jobs WHERE job = $1", job)
    return found


async def settle(verbs: Store, look: Any, status: RunStatus = RunStatus.SUCCEEDED) -> None:
    await add_node(look, NODE)
    queues = [row["queue"] for row in await look.fetch("SELECT queue FROM queues")]
    claims = await verbs.live_runs.claim(NODE, 1, queues, 100)
    now = await look.fetchval("SELECT now()")
    assert await verbs.live_runs.settle(NODE, [ended_run(claim, now, now, CODES[status]) for claim in claims]) == []


async def test_a_re_run_of_a_tick_is_a_new_serial_with_a_key_of_its_own(verbs: Store, look: Any) -> None:
    job = await add_job(look, definition={"schedule": "@daily", "target": {"type": "http", "url": "http://x/"}})
    first = await JobOperations(verbs).runs.retry(await finished(look, job))
    run = await verbs.runs.get(first)
    assert first == RunKey(job, AT, 1)
    assert run is not None
    assert (run.status, run.attempt, run.idempotency_key) == (
        RunStatus.PENDING,
        1,
        f"{run.job_id}:{int(AT.timestamp())}:1",
    )
    await settle(verbs, look)
    assert await JobOperations(verbs).runs.retry(first) == RunKey(job, AT, 2)
    dead = await verbs.runs.get(RunKey(job, AT))
    assert dead is not None
    assert dead.idempotency_key == f"{run.job_id}:{int(AT.timestamp())}"


async def test_a_re_run_of_a_manual_run_appends_to_the_key_of_that_run(verbs: Store, look: Any) -> None:
    """Versions before on-demand runs recorded triggered runs under serials from MANUAL on."""
    job = await add_job(look)
    key = (await finished(look, job))._replace(serial=MANUAL)
    await look.execute("UPDATE run_history SET serial = $1", MANUAL)
    again = await JobOperations(verbs).runs.retry(key)
    run = await verbs.runs.get(again)
    assert again == key._replace(serial=MANUAL + 1)
    assert run is not None
    assert run.idempotency_key == f"{run.job_id}:{run_id(key)}:1"


async def test_a_re_run_of_a_triggered_run_is_a_run_of_its_own(verbs: Store, look: Any) -> None:
    job = await add_job(look)
    key = await JobOperations(verbs).lifecycle.trigger(await job_id(look, job), {"n": 1})
    await settle(verbs, look, RunStatus.DEAD)
    again = await JobOperations(verbs).runs.retry(key)
    run = await verbs.runs.get(again)
    assert again.on_demand and again.serial != key.serial
    assert run is not None
    assert (run.status, run.payload, run.idempotency_key) == ("pending", {"n": 1}, f"{run.job_id}:{run_id(again)}")


async def test_two_triggers_in_one_millisecond_have_serials_of_their_own(verbs: Store, look: Any) -> None:
    job = await add_job(look, lanes=5)
    async with look.transaction():
        keys = [await trigger(look, job, None) for _ in range(3)]
    assert len(set(keys)) == 3
    rows = await look.fetch("SELECT lane FROM live_runs ORDER BY serial")
    assert [row["lane"] for row in rows] == [4, 3, 2]


async def test_the_latest_finished_run_is_run_again_and_what_never_ran_does_not_count(verbs: Store, look: Any) -> None:
    job = await add_job(look)
    id_ = await job_id(look, job)
    with pytest.raises(Conflict, match="no finished run"):
        await JobOperations(verbs).runs.retry_latest(id_)
    await finished(look, job, AT, RunStatus.SUCCEEDED)
    await finished(look, job, AT + HOUR, RunStatus.MISSED)
    await finished(look, job, AT + 2 * HOUR, RunStatus.SKIPPED)
    assert await JobOperations(verbs).runs.retry_latest(id_) == RunKey(job, AT, 1)
    with pytest.raises(NotFound):
        await JobOperations(verbs).runs.retry_latest(uuid4())


@pytest.mark.parametrize("status", [RunStatus.MISSED, RunStatus.SKIPPED, RunStatus.CANCELLED, RunStatus.SUCCEEDED])
async def test_every_finished_run_can_be_run_again(verbs: Store, look: Any, status: RunStatus) -> None:
    job = await add_job(look)
    assert await JobOperations(verbs).runs.retry(await finished(look, job, status=status)) == RunKey(job, AT, 1)


async def test_what_cannot_be_run_again_says_why(verbs: Store, look: Any) -> None:
    job = await add_job(look)
    key = await finished(look, job)
    with pytest.raises(NotFound, match="There is no run"):
        await JobOperations(verbs).runs.retry(key._replace(serial=3))
    with pytest.raises(NotFound):
        await JobOperations(verbs).runs.retry(key, tenant=2)
    again = await JobOperations(verbs).runs.retry(key)
    with pytest.raises(Conflict, match="still pending"):
        await JobOperations(verbs).runs.retry(again)
    with pytest.raises(Conflict, match="maximum of unfinished runs"):
        await JobOperations(verbs).runs.retry(key)
    await look.execute("DELETE FROM live_runs")
    await look.execute("UPDATE jobs SET status = 'deleted'")
    with pytest.raises(Conflict, match="is deleted"):
        await JobOperations(verbs).runs.retry(key)
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 0


async def test_concurrent_reruns_get_one_serial_each(verbs: Store, look: Any) -> None:
    job = await add_job(look, lanes=10)
    key = await finished(look, job)
    found = await asyncio.gather(*(JobOperations(verbs).runs.retry(key) for _ in range(5)))
    assert sorted(again.serial for again in found) == [1, 2, 3, 4, 5]


async def test_a_redriven_run_is_the_same_run_with_its_key_and_a_higher_token(verbs: Store, look: Any) -> None:
    job = await add_job(look)
    key = await finished(look, job)
    before = await verbs.runs.get(key)
    done = await verbs.reruns.redrive([key])
    assert done == reruns.RedrivenRuns([key], [], False)
    run = await verbs.runs.get(key)
    assert run is not None
    assert before is not None
    assert (run.id, run.idempotency_key, run.status, run.attempt) == (
        before.id,
        before.idempotency_key,
        RunStatus.PENDING,
        1,
    )
    assert run.token is not None
    assert before.token is not None
    assert run.token > before.token
    assert await verbs.dead_letters.list() == ([], None)
    await settle(verbs, look)
    ended = await verbs.runs.get(key)
    assert ended is not None
    assert ended.status is RunStatus.SUCCEEDED


async def test_the_attempts_of_a_dead_run_stay_when_it_is_redriven(verbs: Store, look: Any) -> None:
    job = await add_job(look)
    await add_live_run(look, job, AT)
    await settle(verbs, look, RunStatus.DEAD)
    key = RunKey(job, AT)
    await verbs.reruns.redrive([key])
    await look.execute("DELETE FROM nodes")
    await settle(verbs, look)
    run = await verbs.runs.get(key)
    assert run is not None
    assert (run.status, len(run.attempts)) == (RunStatus.SUCCEEDED, 2)
    assert [attempt.token for attempt in run.attempts] == sorted(attempt.token for attempt in run.attempts)


async def test_a_redrive_takes_as_many_runs_as_a_job_has_lanes_and_a_second_one_none_twice(
    verbs: Store, look: Any
) -> None:
    one = await add_job(look)
    two = await add_job(look, lanes=2)
    keys = [await finished(look, job, AT + n * HOUR) for job in (one, two) for n in range(3)]
    done = await JobOperations(verbs).dead_letters.redrive(EVERY)
    assert (set(done.runs), done.remaining) == ({keys[0], keys[3], keys[4]}, 3)
    assert await JobOperations(verbs).dead_letters.redrive(EVERY) == DeadLetterChunk([], 3)
    named = await verbs.reruns.redrive(keys)
    assert (named.runs, set(named.waiting)) == ([], {keys[1], keys[2], keys[5]})
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 3
    assert await look.fetchval("SELECT count(*) FROM run_history") == 3


async def test_concurrent_redrives_bring_each_run_back_once(verbs: Store, look: Any) -> None:
    job = await add_job(look, lanes=50)
    keys = [await finished(look, job, AT + timedelta(minutes=n)) for n in range(20)]
    done = await asyncio.gather(*(verbs.reruns.redrive(keys if n % 2 else keys[::-1]) for n in range(4)))
    assert sorted(key for found in done for key in found.runs) == keys
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 20
    assert await look.fetchval("SELECT count(*) FROM run_history") == 0


async def test_a_concurrent_fire_and_redrive_share_the_lane_and_lose_nothing(verbs: Store, look: Any) -> None:
    await add_node(look, NODE)
    tick = AT + HOUR
    for _ in range(25):
        job = await add_job(look, AT + HOUR)
        await look.execute("UPDATE cursors SET fire_at = now(), next_tick = now() WHERE job = $1", job)
        tick = await look.fetchval("SELECT next_tick FROM cursors WHERE job = $1", job)
        key = await finished(look, job)
        advance = advance_of(job, tick, 1, tick + HOUR, None)
        await asyncio.gather(verbs.reruns.redrive([key]), fired(verbs, advance))
        rows = await look.fetch("SELECT scheduled_at, status FROM runs WHERE job = $1", job)
        found = {row["scheduled_at"]: row["status"] for row in rows}
        assert found in ({AT: "pending", tick: "skipped"}, {AT: "dead", tick: "pending"})
        assert len(rows) == 2


async def fired(verbs: Store, advance: Advance) -> None:
    try:
        await verbs.cursors.fire(NODE, 1, False, [advance])
    except LockTimeout:  # the other run took the lane first
        await verbs.cursors.fire(NODE, 1, False, [advance], careful=True)


async def test_only_dead_runs_of_ones_own_living_jobs_are_redriven(verbs: Store, look: Any) -> None:
    await look.execute(
        "INSERT INTO tenants (name) SELECT 'other' WHERE NOT EXISTS (SELECT FROM tenants WHERE tenant = 2)"
    )
    good, gone, foreign = [await add_job(look) for _ in range(3)]
    await look.execute("UPDATE jobs SET status = 'deleted' WHERE job = $1", gone)
    await look.execute("UPDATE jobs SET tenant = 2 WHERE job = $1", foreign)
    keys = [await finished(look, job) for job in (good, gone, foreign)]
    keys.append(await finished(look, good, AT + HOUR, RunStatus.SUCCEEDED))
    assert (await verbs.reruns.redrive([*keys, keys[0]])).runs == [keys[0]]
    assert await JobOperations(verbs).dead_letters.redrive(EVERY) == DeadLetterChunk([], 0)
    assert await JobOperations(verbs).dead_letters.redrive(EVERY, tenant=2) == DeadLetterChunk([keys[2]], 0)


async def test_a_redrive_brings_back_as_many_as_it_may_and_says_how_many_are_left(verbs: Store, look: Any) -> None:
    job = await add_job(look, lanes=10)
    keys = [await finished(look, job, AT + n * HOUR) for n in range(4)]
    only = DeadLetterFilter(job=await job_id(look, job))
    assert await JobOperations(verbs).dead_letters.redrive(only, 2) == DeadLetterChunk(keys[:2], 2)
    assert await JobOperations(verbs).dead_letters.redrive(only, 2) == DeadLetterChunk(keys[2:], 0)
    assert await JobOperations(verbs).dead_letters.redrive(only, 2) == DeadLetterChunk([], 0)


async def test_a_redrive_leaves_alone_what_died_after_it_was_begun(verbs: Store, look: Any) -> None:
    """Or it would go on for ever with runs that die again."""
    job = await add_job(look, lanes=10)
    keys = [await finished(look, job, AT + n * HOUR) for n in range(4)]
    assert await JobOperations(verbs).dead_letters.redrive(DeadLetterFilter(before=AT + HOUR)) == DeadLetterChunk(
        keys[:2], 0
    )


async def test_dead_letters_are_listed_newest_first_in_pages(verbs: Store, look: Any) -> None:
    one, two = await add_job(look), await add_job(look)
    keys = [await finished(look, job, AT - n * HOUR) for n in range(4) for job in (two, one)]
    await finished(look, one, AT - 9 * HOUR, RunStatus.SUCCEEDED)
    collected: list[Any] = []
    after = None
    while True:
        page, after = await verbs.dead_letters.list(after=after, limit=3)
        collected += page
        if after is None:
            break
    assert [run.id for run in collected] == [run_id(key) for key in keys]
    only, _ = await verbs.dead_letters.list(job=await job_id(look, one))
    assert [run.id for run in only] == [run_id(key) for key in keys[1::2]]
    assert await verbs.dead_letters.list(tenant=2) == ([], None)


async def test_dead_letters_are_found_by_their_index(verbs: Store, look: Any) -> None:

    await look.execute("SET enable_seqscan = off")
    for name, arguments in (
        ("dead_letter/list", (1, AT + HOUR, 1, 0, 50, None, None, None)),
        ("dead_letter/group", (1, None, 1000, 100, None)),
        ("dead_letter/list_oldest", (1, None, None, None, 50, 1000, None)),
        ("dead_letter/count", (1, None, None, None, None)),
        ("dead_letter/discard", (1, None, None, None, None, None, None, 50, None)),
    ):
        plan = "\n".join(row[0] for row in await look.fetch("EXPLAIN " + STATEMENTS[name].text, *arguments))
        assert "scheduled_at_job_serial_idx" in plan


# --- by what their errors have in common ---


@pytest.mark.parametrize(
    ("error", "pattern"),
    [
        ("HTTP 503 from https://api.example.com/v1/items/17?x=1", "HTTP 503 from <address>"),
        ("HTTP 404 from http://127.0.0.1:8787/nowhere", "HTTP 404 from <address>"),
        ("The command exited with status 2.", "The command exited with status 2."),
        ("No answer within 30 s.", "No answer within <n> s."),
        ("No answer within 0.25 s.", "No answer within <n> s."),
        ("No connection to 10.0.0.17:5432 could be made", "No connection to <address> could be made"),
        ("No connection to [2001:db8::1]:443 could be made", "No connection to <address> could be made"),
        ("KeyError: 'user_17'", "KeyError: 'user_<n>'"),
        ("ValueError: order 0192f4c8-8c00-7000-8000-000000000007 is gone", "ValueError: order <id> is gone"),
        ("object at 0x7fbbe5d3c640 is dead", "object at <id> is dead"),
        ("commit 3c7533d19fab01 not found", "commit <id> not found"),
        ("a facade is not an id", "a facade is not an id"),
        ("mail to ada.l@mail.example.org bounced", "mail to <address> bounced"),
        ("Boom at line 3\n  File x.py, line 17", "Boom at line <n>"),
        ("", ""),
    ],
)
async def test_what_differs_from_run_to_run_is_left_out(look: Any, error: str, pattern: str) -> None:
    assert await look.fetchval("SELECT error_pattern($1)", error) == pattern


async def with_error(look: Any, key: RunKey, error: str) -> None:
    await look.execute(
        "INSERT INTO attempts (job, scheduled_at, serial, token, finished_at, attempt, outcome, error)"
        " SELECT job, scheduled_at, serial, token, finished_at, 1, 'failed', $4 FROM run_history"
        " WHERE job = $1 AND scheduled_at = $2 AND serial = $3",
        *key,
        error,
    )


async def three_groups(look: Any) -> tuple[int, dict[str, list[RunKey]]]:
    one, two = await add_job(look, lanes=50), await add_job(look, lanes=50)
    keys: dict[str, list[RunKey]] = {"slow": [], "gone": [], "silent": []}
    for n in range(5):
        keys["slow"].append(await finished(look, (one, two)[n % 2], AT + n * HOUR))
        await with_error(look, keys["slow"][-1], f"No answer within {n} s.")
    for n in range(2):
        keys["gone"].append(await finished(look, one, AT + (10 + n) * HOUR))
        await with_error(look, keys["gone"][-1], f"HTTP 404 from http://host-{n}/")
    keys["silent"].append(await finished(look, two, AT + 12 * HOUR))
    return one, keys


async def test_dead_runs_are_reported_by_what_their_errors_have_in_common(verbs: Store, look: Any) -> None:
    one, keys = await three_groups(look)
    found = await verbs.dead_letters.groups()
    assert [(group.error, group.runs, group.jobs) for group in found.items] == [
        ("No answer within <n> s.", 5, 2),
        ("HTTP 404 from <address>", 2, 1),
        ("", 1, 1),
    ]
    assert (found.runs, found.more) == (8, False)
    slow = found.items[0]
    assert (slow.first, slow.last, slow.sample) == (AT, AT + 4 * HOUR, run_id(keys["slow"][4]))
    of_job = await verbs.dead_letters.groups(job=await job_id(look, one))
    assert [group.runs for group in of_job.items] == [3, 2]
    assert (await verbs.dead_letters.groups(tenant=2)).items == []


async def test_a_group_is_listed_redriven_and_discarded_alone(verbs: Store, look: Any) -> None:
    _, keys = await three_groups(look)
    slow, gone, silent = [group.group for group in (await verbs.dead_letters.groups()).items]
    page, _ = await verbs.dead_letters.list(group=gone)
    assert [run.id for run in page] == [run_id(key) for key in keys["gone"][::-1]]
    assert await JobOperations(verbs).dead_letters.redrive(DeadLetterFilter(group=slow), 3) == DeadLetterChunk(
        keys["slow"][:3], 2
    )
    assert await verbs.dead_letters.discard_all(DeadLetterFilter(group=gone)) == DeadLetterChunk(keys["gone"], 0)
    left = await verbs.dead_letters.groups()
    assert [(group.group, group.runs) for group in left.items] == [(slow, 2), (silent, 1)]


async def test_a_discarded_run_stays_in_history_and_is_neither_listed_nor_redriven(verbs: Store, look: Any) -> None:
    job = await add_job(look)
    dead, alive = await finished(look, job), await finished(look, job, AT + HOUR, RunStatus.SUCCEEDED)
    assert await verbs.dead_letters.discard([dead, alive]) == DeadLetterChunk([dead], 0)
    run = await verbs.runs.get(dead)
    assert run is not None
    assert (run.status, run.reason) == (RunStatus.DEAD, "discarded")
    assert await verbs.dead_letters.list() == ([], None)
    assert (await verbs.reruns.redrive([dead])).runs == []
    assert await JobOperations(verbs).dead_letters.redrive(EVERY) == DeadLetterChunk([], 0)
    assert await verbs.dead_letters.discard([dead]) == DeadLetterChunk([], 0)
    assert await JobOperations(verbs).runs.retry(dead) == dead._replace(serial=1), (
        "who wants it all the same can still run it again"
    )


async def test_discarding_goes_on_some_at_a_time_and_touches_no_other_tenant(verbs: Store, look: Any) -> None:
    job = await add_job(look)
    keys = [await finished(look, job, AT + n * HOUR) for n in range(5)]
    assert await verbs.dead_letters.discard_all(EVERY, tenant=2) == DeadLetterChunk([], 0)
    assert await verbs.dead_letters.discard(keys, tenant=2) == DeadLetterChunk([], 0)
    assert await verbs.dead_letters.discard_all(EVERY, 3) == DeadLetterChunk(keys[:3], 2)
    assert await verbs.dead_letters.discard_all(DeadLetterFilter(before=AT + 3 * HOUR), 3) == DeadLetterChunk(
        [keys[3]], 0
    )


async def test_the_attempts_of_a_redriven_run_are_numbered_on_and_its_retries_are_counted_anew(
    verbs: Store, look: Any
) -> None:
    job = await add_job(look)
    key = await finished(look, job)
    for number in range(1, 5):
        await look.execute(
            "INSERT INTO attempts (job, scheduled_at, serial, token, node, started_at, finished_at, attempt, outcome)"
            " VALUES ($1, $2, 0, $3, $4, $2, $2, $5, 'failed')",
            *(job, AT, 1 << 22 | number + 5, NODE, number),
        )
    for life in (1, 2):
        await verbs.reruns.redrive([key])
        await look.execute("DELETE FROM nodes")
        waiting = await verbs.runs.get(key)
        assert waiting is not None and waiting.attempt == 4 + life
        assert await look.fetchval("SELECT attempt FROM live_runs") == 1
        await settle(verbs, look, RunStatus.DEAD if life == 1 else RunStatus.SUCCEEDED)
        run = await verbs.runs.get(key)
        assert run is not None and run.attempt == 4 + life
    assert [attempt.attempt for attempt in run.attempts][-1] == 6
    assert len({attempt.attempt for attempt in run.attempts}) == len(run.attempts)


# The attempts of a run in the order of their tokens, the number of the present one, and how all of them are shown. "?":
# the attempt is not known to have started, so it was not counted.
NUMBERED = {
    "never redriven": (["failed 1", "failed 2"], 3, [1, 2, 3]),
    "redriven twice": (["failed 1", "failed 2", "failed 1", "failed 1"], 2, [1, 2, 3, 4, 5]),
    "lost after a redrive": (["failed 1", "failed 2", "failed 3", "lost 1", "failed 2"], 3, [1, 2, 3, 4, 5, 6]),
    "stale after a redrive": (["failed 1", "failed 2", "failed 3", "stale 1", "failed 2"], 3, [1, 2, 3, 4, 5, 6]),
    "the last of its life is stale": (["failed 1", "stale 2"], 1, [1, 2, 3]),
    "all of a life are stale": (["stale 1", "stale 2"], 1, [1, 2, 3]),
    "at most once, twice": (["lost 1", "stale 1"], 1, [1, 2, 3]),
    "lost before it started": (["lost? 1"], 1, [1, 1]),
    "stale, and not known to have started": (["stale? 1"], 1, [1, 1]),
    "not counted in between": (["failed 1", "lost? 2", "stale? 2", "failed 2"], 3, [1, 2, 2, 2, 3]),
    "not counted first after a redrive": (["failed 1", "lost? 1", "stale? 1", "failed 1"], 2, [1, 2, 2, 2, 3]),
    "dead after attempts that were not counted": (["failed 1", "stale? 2", "failed 2"], 1, [1, 2, 2, 3]),
}


@pytest.mark.parametrize(("stored", "present", "shown"), NUMBERED.values(), ids=list(NUMBERED))
async def test_attempts_and_their_lines_have_the_same_numbers(
    verbs: Store, look: Any, stored: list[str], present: int, shown: list[int]
) -> None:
    key = RunKey(await add_job(look), AT)
    chunks = []
    for token, each in enumerate([*stored, f"now {present}"], 1 << 22 | 1):
        outcome, number = each.split()
        if outcome == "now":
            await add_live_run(look, key.job, AT, attempt=int(number), token=token)
        else:
            await look.execute(
                "INSERT INTO attempts (job, scheduled_at, serial, token, node, started_at, finished_at, attempt,"
                " outcome) VALUES ($1, $2, 0, $3, $4, $5, $2, $6, $7)",
                *(key.job, AT, token, NODE, None if "?" in outcome else AT, int(number), outcome.rstrip("?")),
            )
        line = encode_lines([OutputLine(1, 0, "info", "print", each)])
        chunks.append(OutputChunk(str(run_id(key)), token, int(number), 0, 1, 1, line))
    await verbs.output.add(chunks)
    run = await verbs.runs.get(key)
    assert run is not None
    assert [*(attempt.attempt for attempt in run.attempts), run.attempt] == shown
    lines = (await verbs.output.read(key, LogPlace(), tenant=1)).lines
    assert [line.attempt for line in lines] == shown
    last = (await verbs.output.read(key, LogPlace(), tenant=1, attempt=shown[-1])).lines
    assert f"now {present}" in [line.message for line in last]


async def test_what_was_asked_for_after_its_tick_is_not_late(verbs: Store, look: Any) -> None:
    """A re-run, and a backfill of a tick from before the job was created."""
    job = await add_job(look)
    await look.execute("UPDATE jobs SET created_at = $1", AT - HOUR)
    again = await JobOperations(verbs).runs.retry(await finished(look, job))
    early = await finished(look, job, AT - 2 * HOUR)
    await settle(verbs, look)
    await look.execute("UPDATE run_history SET started_at = now()")
    for key, late in ((RunKey(job, AT), True), (again, False), (early, False)):
        run = await verbs.runs.get(key)
        assert run is not None and run.started_at is not None and (run.lateness_ms is not None) is late
