"""A request that is sent again is answered again and not done again, whatever happened in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from detent.domain.job import HttpTarget, JobSpec
from detent.errors import Conflict, IdempotencyKeyReused, RequestInProgress
from detent.jobs import JobOperations
from detent.store import Store
from detent.store.requests import StoredAnswer

DIGEST = b"d" * 32
IDLE = timedelta(seconds=2)
SPEC = JobSpec(name="one", schedule="@daily", target=HttpTarget(url="http://127.0.0.1:9/"))


def registering(verbs: Store, *names: str) -> Callable[[], Awaitable[StoredAnswer]]:
    async def work() -> StoredAnswer:
        from msgspec.structs import replace

        for name in names:
            await JobOperations(verbs).registration.add([replace(SPEC, name=name)])
        return StoredAnswer(201, {"Location": "/x"}, b'{"names": 1}')

    return work


async def ask(
    verbs: Store, key: str, work: Callable[[], Awaitable[StoredAnswer]], digest: bytes = DIGEST, tenant: int = 1
) -> Any:
    return await verbs.requests.once(key, digest, work, tenant=tenant, idle=IDLE)


async def names(look: Any) -> list[str]:
    return [row["name"] for row in await look.fetch("SELECT name FROM jobs ORDER BY job")]


async def test_the_second_time_the_answer_comes_from_the_first(verbs: Store, look: Any) -> None:
    answer = StoredAnswer(201, {"Location": "/x"}, b'{"names": 1}')
    assert await ask(verbs, "k", registering(verbs, "one")) == (answer, False)
    assert await ask(verbs, "k", registering(verbs, "two")) == (answer, True)
    assert await names(look) == ["one"]
    assert (await ask(verbs, "other", registering(verbs, "two")))[1] is False


async def test_a_key_belongs_to_one_request_and_to_one_tenant(verbs: Store, look: Any) -> None:
    await ask(verbs, "k", registering(verbs, "one"))
    with pytest.raises(IdempotencyKeyReused, match="was used for another request"):
        await ask(verbs, "k", registering(verbs, "two"), digest=b"e" * 32)
    assert (await ask(verbs, "k", registering(verbs, "two"), digest=b"e" * 32, tenant=2))[1] is False
    assert await names(look) == ["one", "two"]


async def test_work_that_fails_leaves_nothing_and_its_key_is_free(verbs: Store, look: Any) -> None:
    await JobOperations(verbs).registration.add([SPEC])
    with pytest.raises(Conflict, match="job named 'one' already exists"):
        await ask(verbs, "k", registering(verbs, "two", "one"))
    assert await names(look) == ["one"]
    assert await look.fetchval("SELECT count(*) FROM requests") == 0
    assert (await ask(verbs, "k", registering(verbs, "two")))[1] is False


async def test_work_and_answer_commit_together(verbs: Store, look: Any) -> None:
    seen: list[Any] = []

    async def work() -> StoredAnswer:
        await JobOperations(verbs).registration.add([SPEC])
        seen.append(await names(look))
        return StoredAnswer(201, {}, b"")

    await ask(verbs, "k", work)
    seen.append(await names(look))
    assert seen == [[], ["one"]]
    assert await look.fetchval("SELECT count(*) FROM requests") == 1


async def test_a_request_blocks_only_concurrent_requests_with_its_key(verbs: Store, look: Any) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> StoredAnswer:
        begun.set()
        await go_on.wait()
        return await registering(verbs, "one")()

    first = asyncio.create_task(ask(verbs, "k", slow))
    await begun.wait()
    with pytest.raises(RequestInProgress, match="in progress"):
        await ask(verbs, "k", registering(verbs, "two"))
    assert (await ask(verbs, "other", registering(verbs, "three")))[1] is False
    go_on.set()
    assert (await first)[1] is False
    assert (await ask(verbs, "k", registering(verbs, "two")))[1] is True
    assert await names(look) == ["three", "one"]


async def test_many_concurrent_requests_with_one_key_do_the_work_once(verbs: Store, look: Any) -> None:
    results = await asyncio.gather(
        *(ask(verbs, "k", registering(verbs, f"n{number}")) for number in range(12)), return_exceptions=True
    )
    done = [result for result in results if isinstance(result, tuple)]
    assert sum(not again for _, again in done) == 1
    assert all(isinstance(result, tuple | RequestInProgress) for result in results)
    assert len(await names(look)) == 1


async def test_a_connection_that_breaks_in_the_middle_leaves_nothing(verbs: Store, look: Any) -> None:
    async def work() -> StoredAnswer:
        await JobOperations(verbs).registration.add([SPEC])
        await look.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE state = 'idle in transaction' AND datname = current_database()"
        )
        return StoredAnswer(201, {}, b"")

    with pytest.raises(Exception, match=r".") as caught:
        await ask(verbs, "k", work)
    assert type(caught.value).__name__ in ("OutcomeUnknown", "Unavailable")
    assert await names(look) == []
    assert (await ask(verbs, "k", registering(verbs, "one")))[1] is False


async def test_answers_are_kept_a_day_and_then_removed(verbs: Store, look: Any) -> None:
    await ask(verbs, "k", registering(verbs, "one"))
    await look.execute("UPDATE requests SET created_at = now() - interval '23 h 59 min'")
    assert (await ask(verbs, "k", registering(verbs, "two")))[1] is True
    assert await verbs.requests.purge() == 0
    await look.execute("UPDATE requests SET created_at = now() - interval '24 h 1 s'")
    assert (await ask(verbs, "k", registering(verbs, "three")))[1] is False
    await look.execute("UPDATE requests SET created_at = now() - interval '25 h'")
    assert await verbs.requests.purge(await look.fetchval("SELECT now() - interval '2 h'")) == 0
    await look.execute("UPDATE cluster SET held_at = now(), held_by = 'clock', held_reason = 'a step'")
    assert await verbs.requests.purge() == 0, "the clock may be wrong"
    await look.execute("UPDATE cluster SET held_at = NULL, held_by = NULL, held_reason = NULL")
    assert await verbs.requests.purge() == 1
    assert await look.fetchval("SELECT count(*) FROM requests") == 0


async def test_verbs_outside_of_a_request_have_connections_of_their_own(verbs: Store) -> None:
    async def work() -> StoredAnswer:
        other = asyncio.get_running_loop().create_future()
        import contextvars

        async def outside() -> None:
            other.set_result(await verbs.jobs.list())

        task = asyncio.get_running_loop().create_task(outside(), context=contextvars.Context())
        await JobOperations(verbs).registration.add([SPEC])
        assert (await other)[0] == []
        await task
        return StoredAnswer(200, {}, b"")

    await ask(verbs, "k", work)
    assert len((await verbs.jobs.list())[0]) == 1
