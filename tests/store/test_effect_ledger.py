"""The statements of the effect ledger: which steps upkeep removes, and what people see of the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from detent.domain.effects import NewStep, OnceKey
from detent.domain.identity import RunKey
from detent.domain.run import Claim
from detent.errors import OwnershipLost
from detent.store import Store, effect_ledger
from detent.store.effects import EffectPool
from detent.store.limits import STANDARD
from tests.support.factories import LONG_AGO, add_job
from tests.support.waiting import until

NODE = 11
TOKEN = 7
ADD_STEP = (
    "INSERT INTO run_steps (job, scheduled_at, serial, name, attempt, token, took) VALUES ($1, $2, $3, $4, 1, 1, '1 s')"
)
ADD_LIVE = (
    "INSERT INTO live_runs (job, scheduled_at, token, not_before, serial, queue, revision, lane, priority, owner)"
    " VALUES ($1, $2, $3, now(), $4, 1, 1, $5, 5, $6)"
)
ADD_ENDED = (
    "INSERT INTO run_history (job, scheduled_at, token, node, finished_at, serial, revision, attempt, status, reason)"
    " VALUES ($1, $2, 1, 1, now(), $3, 1, 1, $4, $5)"
)
ADD_WAITING = (
    "INSERT INTO backlog (job, scheduled_at, not_before, token, serial, queue, revision, priority)"
    " VALUES ($1, $2, now(), 1, $3, 1, 1, 5)"
)
SERIAL = 201326600


@pytest.fixture
async def effects(reach: dict[str, Any]) -> AsyncIterator[EffectPool]:
    pool = EffectPool(reach["url"], "detent", STANDARD, pooled=reach.get("pooled", False))
    yield pool
    await pool.close()


@pytest.fixture
async def now(sql: Any) -> datetime:
    moment: datetime = await sql.fetchval("SELECT date_trunc('milliseconds', now())")
    return moment


@pytest.fixture
async def claim(sql: Any, now: datetime) -> Claim:
    """A run that the node holds."""
    job = await add_job(sql, now)
    await sql.execute(ADD_LIVE, job, now, TOKEN, 0, 0, NODE)
    return Claim(job, 0, now, 0, TOKEN, 1)


async def purged(store: Store) -> int:
    return sum([gone async for gone in store.effect_ledger.purge_steps()])


async def test_only_unfinished_and_dead_runs_keep_their_steps(
    sql: Any, store: Store, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effect_ledger, "PURGE_PAGE", 3)
    job = await add_job(sql, now)
    kept: dict[str, int] = {}
    gone: dict[str, int] = {}
    await sql.execute(ADD_LIVE, job, now, 1, 0, 0, None)
    kept["a tick"] = 0
    await sql.execute(ADD_LIVE, job, now, 1, SERIAL, SERIAL, None)
    kept["on demand, claimed"] = SERIAL
    await sql.execute(ADD_LIVE, job, now, 1, SERIAL + 1, 1, None)
    kept["on demand, in a lane of its job"] = SERIAL + 1
    await sql.execute(ADD_WAITING, job, now, SERIAL + 2)
    kept["on demand, waiting"] = SERIAL + 2
    for serial, status, reason in ((1, 2, "retries exhausted"), (2, 1, None), (3, 3, None), (4, 2, "discarded")):
        await sql.execute(ADD_ENDED, job, now, serial, status, reason)
        (kept if serial == 1 else gone)[f"{status} {reason}"] = serial
    gone["no longer in the history"] = 5
    for serial in (*kept.values(), *gone.values()):
        for step in ("a", "b"):
            await sql.execute(ADD_STEP, job, now, serial, step)
    assert await purged(store) == 2 * len(gone)
    left = {row["serial"] for row in await sql.fetch("SELECT serial FROM run_steps")}
    assert left == set(kept.values())


async def test_a_run_shows_its_steps_without_results(sql: Any, store: Store, effects: EffectPool, claim: Claim) -> None:
    for name in ("charge", "a mail"):
        await effects.add_step(NODE, claim, NewStep(name, '"secret"', timedelta(seconds=1.5)))
    run = await store.runs.get(RunKey(*claim.key))
    assert run is not None and isinstance(run.steps, list)
    assert [(step.name, step.attempt, step.duration_ms) for step in run.steps] == [
        ("charge", 1, 1500),
        ("a mail", 1, 1500),
    ]
    assert "secret" not in repr(run.steps)
    assert await effects.steps(claim) == {"charge": '"secret"', "a mail": '"secret"'}


@pytest.mark.parametrize("wrong", [{"token": TOKEN - 1}, {"token": TOKEN + 1}, {"lane": 1}, {"serial": 1}])
async def test_a_claim_that_is_not_the_present_one_writes_nothing(
    sql: Any, effects: EffectPool, claim: Claim, wrong: dict[str, Any]
) -> None:
    stale = claim._replace(**wrong)
    with pytest.raises(OwnershipLost, match="was not stored"):
        await effects.add_step(NODE, stale, NewStep("charge", None, timedelta(0)))
    with pytest.raises(OwnershipLost, match="has not happened"):
        async with effects.once(NODE, stale, OnceKey("k", False, timedelta(days=1))):
            pytest.fail("the block must not run")
    with pytest.raises(OwnershipLost):
        await effects.add_step(NODE + 1, claim, NewStep("charge", None, timedelta(0)))
    assert await sql.fetchval("SELECT (SELECT count(*) FROM run_steps) + (SELECT count(*) FROM effect_marks)") == 0


async def test_a_step_that_was_stored_before_a_rescue_is_not_replaced_by_an_older_one(
    sql: Any, effects: EffectPool, claim: Claim
) -> None:
    await effects.add_step(NODE, claim, NewStep("charge", "1", timedelta(0)))
    await effects.add_step(NODE, claim, NewStep("charge", "2", timedelta(0)))  # its reply was lost, say
    assert await effects.steps(claim) == {"charge": "2"}
    await sql.execute("UPDATE live_runs SET token = token + 1")
    await sql.execute("UPDATE run_steps SET token = token + 1")
    with pytest.raises(OwnershipLost):
        await effects.add_step(NODE, claim, NewStep("charge", "3", timedelta(0)))
    assert await effects.steps(claim) == {"charge": "2"}


async def test_a_rescue_waits_for_the_commit_of_an_effect_and_not_for_its_block(
    sql: Any, effects: EffectPool, claim: Claim
) -> None:
    with pytest.raises(OwnershipLost, match="nothing was written"):
        async with effects.once(NODE, claim, OnceKey("k", False, timedelta(days=1))) as connection:
            assert connection is not None
            await asyncio.wait_for(sql.execute("UPDATE live_runs SET token = token + 1, owner = NULL"), 5)
    assert await sql.fetchval("SELECT count(*) FROM effect_marks") == 0


async def test_many_callers_with_one_key_do_it_once(sql: Any, effects: EffectPool, claim: Claim) -> None:
    await sql.execute("CREATE TABLE public.effects (n integer); GRANT ALL ON public.effects TO PUBLIC")

    async def caller(number: int) -> bool:
        async with effects.once(NODE, claim, OnceKey("k", True, timedelta(days=1))) as connection:
            if connection is not None:
                await connection.execute("INSERT INTO public.effects VALUES ($1)", number)
                if number % 2:
                    raise RuntimeError
            return connection is not None

    ends = await asyncio.gather(*(caller(number) for number in range(30)), return_exceptions=True)
    assert ends.count(True) == 1
    assert await sql.fetchval("SELECT count(*) FROM public.effects") == 1
    assert await sql.fetchval("SELECT scope FROM effect_marks") == -1


async def test_callers_that_wait_for_one_key_do_not_hold_the_connections_of_other_effects(
    sql: Any, effects: EffectPool, claim: Claim
) -> None:
    go_on = asyncio.Event()

    async def caller(key: str) -> bool:
        async with effects.once(NODE, claim, OnceKey(key, False, timedelta(days=1))) as connection:
            if connection is not None and key == "slow":
                await go_on.wait()
            return connection is not None

    waiting = [asyncio.create_task(caller("slow")) for _ in range(30)]
    await until(lambda: sql.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"))
    assert await asyncio.wait_for(caller("quick"), 30)
    go_on.set()
    assert (await asyncio.gather(*waiting)).count(True) == 1


async def test_a_handler_that_hangs_in_its_block_keeps_the_key_no_longer_than_its_attempt_may_take(
    sql: Any, effects: EffectPool, claim: Claim
) -> None:
    once = OnceKey("k", False, timedelta(days=1), timeout=timedelta(seconds=0.5))
    hanging = effects.once(NODE, claim, once)
    assert await hanging.__aenter__() is not None
    async with effects.once(NODE, claim, once) as connection:
        assert connection is not None, "the mark of the block that hangs must be gone"
    with pytest.raises(asyncpg.InterfaceError, match="closed"):
        await hanging.__aexit__(None, None, None)
    assert await sql.fetchval("SELECT count(*) FROM effect_marks") == 1


async def test_the_limit_of_the_server_for_idle_transactions_is_not_raised(
    sql: Any, effects: EffectPool, claim: Claim
) -> None:
    database = await sql.fetchval("SELECT current_database()")
    await sql.execute(f"ALTER DATABASE {database} SET idle_in_transaction_session_timeout = '2min'")
    try:
        async with effects.once(NODE, claim, OnceKey("k", False, timedelta(days=1))) as connection:
            assert await connection.fetchval("SHOW idle_in_transaction_session_timeout") == "2min"
    finally:
        await sql.execute(f"ALTER DATABASE {database} RESET idle_in_transaction_session_timeout")


async def test_the_handlers_statements_have_the_search_path_of_its_role_and_not_ours(
    sql: Any, effects: EffectPool, claim: Claim
) -> None:
    async with effects.once(NODE, claim, OnceKey("k", False, timedelta(days=1))) as connection:
        assert await connection.fetchval("SHOW search_path") == '"$user", public'
        assert await connection.fetchval("SHOW transaction_isolation") == "read committed"


async def test_marks_are_removed_when_they_are_no_longer_kept_unless_one_is_renewed_now(
    sql: Any, store: Store, effects: EffectPool, claim: Claim
) -> None:
    mark = (
        "INSERT INTO effect_marks (scope, key, job, scheduled_at, serial, kept_until) VALUES ($1, $2, 1, $3, 0, now())"
    )
    for key in ("renewed", "over"):
        await sql.execute(mark, claim.job, key, LONG_AGO)
    async with effects.once(NODE, claim, OnceKey("renewed", False, timedelta(days=1))) as connection:
        assert connection is not None
        assert await store.effect_ledger.purge_marks() == 1
    assert [row["key"] for row in await sql.fetch("SELECT key FROM effect_marks")] == ["renewed"]
    await until(lambda: sql.fetchval("SELECT min(kept_until) > now() + interval '23 hours' FROM effect_marks"))
