"""Effects that happen once per key: with their mark or not at all, whoever asks, and however often."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from detent import Detent, Run
from detent.errors import OwnershipLost, UsageError
from detent.store import Store
from tests.sdk.test_python_target import due_job, outcome, serve
from tests.support.waiting import until

__all__ = ["serve"]


@pytest.fixture
async def invoices(look: Any) -> Any:
    await look.execute("CREATE TABLE public.invoices (run text); GRANT ALL ON public.invoices TO PUBLIC")

    async def count() -> int:
        return int(await look.fetchval("SELECT count(*) FROM public.invoices"))

    return count


async def bill(run: Run, **options: Any) -> bool:
    async with run.once("invoice-42", **options) as effect:
        if effect.first:
            await effect.connection.execute("INSERT INTO invoices VALUES ($1)", run.id)
        return effect.first


def bill_sync(run: Run, **options: Any) -> bool:
    with run.once("invoice-42", **options) as effect:
        if effect.first:
            effect.connection.execute("INSERT INTO invoices VALUES ($1)", run.id)
            assert effect.connection.fetchval("SELECT count(*) FROM invoices") == 1
        return effect.first


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
async def test_the_effect_and_its_mark_commit_together_and_once(
    look: Any, serve: Any, invoices: Any, kind: str
) -> None:
    app = Detent()

    @app.function("coroutine")
    async def coroutine(run: Run) -> list[bool]:
        return [await bill(run), await bill(run)]

    @app.function("plain")
    def plain(run: Run) -> list[bool]:
        return [bill_sync(run), bill_sync(run)]

    first = await due_job(look, kind)
    await serve(app)
    assert (await outcome(look, first))["result"] == "[true,false]"
    assert await invoices() == 1
    mark = await look.fetchrow("SELECT xmin::text, scope, key, job, kept_until - done_at AS kept FROM effect_marks")
    assert (mark["scope"], mark["key"], mark["job"]) == (first, "invoice-42", first)
    assert abs(mark["kept"] - timedelta(days=30)) < timedelta(minutes=1)
    assert mark["xmin"] == await look.fetchval("SELECT xmin::text FROM public.invoices")


async def test_a_block_that_fails_leaves_neither_effect_nor_mark(look: Any, serve: Any, invoices: Any) -> None:
    app = Detent()

    @app.function("bills")
    async def bills(run: Run) -> bool:
        async with run.once("invoice-42") as effect:
            await effect.connection.execute("INSERT INTO invoices VALUES ($1)", run.id)
            if run.attempt == 1:
                raise RuntimeError("card refused")
            return effect.first

    job = await due_job(look, "bills", max_retries=1, retry_base_seconds=0)
    await serve(app)
    assert (await outcome(look, job))["result"] == "true"
    assert await invoices() == 1


async def test_a_key_is_of_its_job_or_of_all_jobs_of_the_tenant(look: Any, serve: Any, invoices: Any) -> None:
    app = Detent()

    @app.function("bills")
    async def bills(run: Run) -> list[bool]:
        return [await bill(run), await bill(run, scope="tenant")]

    first, second = await due_job(look, "bills"), await due_job(look, "bills")
    await serve(app)
    results = sorted([(await outcome(look, first))["result"], (await outcome(look, second))["result"]])
    assert results == ["[true,false]", "[true,true]"]
    assert await invoices() == 3
    scopes = {row["scope"] for row in await look.fetch("SELECT scope FROM effect_marks")}
    assert scopes == {first, second, -1}


async def test_a_second_caller_waits_for_the_first_and_then_sees_its_effect(
    look: Any, serve: Any, invoices: Any
) -> None:
    app = Detent()
    inside, go_on = threading.Event(), threading.Event()

    @app.function("slow")
    async def slow(run: Run) -> bool:
        async with run.once("invoice-42", scope="tenant") as effect:
            await effect.connection.execute("INSERT INTO invoices VALUES ($1)", run.id)
            inside.set()
            await asyncio.to_thread(go_on.wait, 30)
            return effect.first

    @app.function("second")
    async def second(run: Run) -> bool:
        await asyncio.to_thread(inside.wait, 30)
        return await bill(run, scope="tenant")

    slow_job, waiting = await due_job(look, "slow"), await due_job(look, "second")
    await serve(app)
    waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
    await until(lambda: look.fetchval(waits), 30, "the second caller to wait")
    go_on.set()
    assert (await outcome(look, slow_job))["result"] == "true"
    assert (await outcome(look, waiting))["result"] == "false"
    assert await invoices() == 1


async def test_a_second_caller_does_it_if_the_first_failed(look: Any, serve: Any, invoices: Any) -> None:
    app = Detent()
    inside, go_on = threading.Event(), threading.Event()

    @app.function("slow")
    async def slow(run: Run) -> None:
        async with run.once("invoice-42", scope="tenant") as effect:
            await effect.connection.execute("INSERT INTO invoices VALUES ($1)", run.id)
            inside.set()
            await asyncio.to_thread(go_on.wait, 30)
            raise RuntimeError

    @app.function("second")
    def second(run: Run) -> bool:
        inside.wait(30)
        go_on.set()
        return bill_sync(run, scope="tenant")

    await due_job(look, "slow")
    job = await due_job(look, "second")
    await serve(app)
    assert (await outcome(look, job))["result"] == "true"
    assert await invoices() == 1


async def test_an_effect_of_a_run_that_was_lost_meanwhile_is_rolled_back(look: Any, serve: Any, invoices: Any) -> None:
    app = Detent()
    inside, go_on = threading.Event(), threading.Event()
    refused: list[BaseException] = []

    @app.function("bills")
    async def bills(run: Run) -> None:
        try:
            async with run.once("invoice-42") as effect:
                await effect.connection.execute("INSERT INTO invoices VALUES ($1)", run.id)
                inside.set()
                await asyncio.to_thread(go_on.wait, 30)
        except OwnershipLost as error:
            refused.append(error)
            raise

    job = await due_job(look, "bills")
    await serve(app)
    await until(inside.is_set)
    await look.execute("UPDATE live_runs SET token = token + 1 WHERE job = $1", job)
    go_on.set()
    await until(lambda: refused)
    assert await invoices() == 0
    assert await look.fetchval("SELECT count(*) FROM effect_marks") == 0


async def test_a_run_that_was_cancelled_while_it_waited_does_not_begin_its_effect(look: Any, serve: Any) -> None:
    app = Detent()
    inside, go_on = threading.Event(), threading.Event()
    runs: list[Run] = []
    begun: list[str] = []
    refused: list[BaseException] = []

    @app.function("slow")
    async def slow(run: Run) -> None:
        async with run.once("invoice-42", scope="tenant"):
            inside.set()
            await asyncio.to_thread(go_on.wait, 30)
            raise RuntimeError

    @app.function("second")
    def second(run: Run) -> None:
        inside.wait(30)
        runs.append(run)
        try:
            with run.once("invoice-42", scope="tenant"):
                begun.append(run.id)
        except OwnershipLost as error:
            refused.append(error)
            raise

    await due_job(look, "slow")
    job = await due_job(look, "second")
    session = await serve(app)
    waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
    await until(lambda: look.fetchval(waits), 30, "the second caller to wait")
    await look.execute("UPDATE live_runs SET cancel = true WHERE job = $1", job)
    await until(lambda: session.worker.holding(runs[0].id, runs[0].token) is None, 30, "the cancellation")
    go_on.set()
    await until(lambda: refused)
    assert begun == []


async def test_a_mark_that_is_no_longer_kept_counts_as_absent_and_is_removed(
    look: Any, serve: Any, store: Store, invoices: Any
) -> None:
    app = Detent()
    marked = threading.Event()

    @app.function("bills")
    def bills(run: Run) -> bool:
        marked.wait(30)
        return bill_sync(run, scope="tenant", keep_for=60)

    job = await due_job(look, "bills")
    await serve(app)
    upkeep = "SELECT count(*) FROM turns WHERE task = 'effects' AND done_at IS NOT NULL"
    await until(lambda: look.fetchval(upkeep), 10, "the first upkeep")
    await look.execute(
        "INSERT INTO effect_marks (scope, key, job, scheduled_at, serial, kept_until) VALUES"
        " (-1, 'invoice-42', 1, now(), 0, now() - interval '1 s'), (-1, 'other', 1, now(), 0, now())"
    )
    marked.set()
    assert (await outcome(look, job))["result"] == "true"
    assert await store.effect_ledger.purge_marks() == 1
    assert [row["key"] for row in await look.fetch("SELECT key FROM effect_marks")] == ["invoice-42"]


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
async def test_a_function_is_called_for_the_first_only(look: Any, serve: Any, kind: str) -> None:
    app = Detent()
    sent: list[str] = []

    async def send(to: str) -> None:
        sent.append(to)

    @app.function("coroutine")
    async def coroutine(run: Run) -> list[bool]:
        return [await run.once("mail").do(send, "ada"), await run.once("mail").do(send, "bob")]

    @app.function("plain")
    def plain(run: Run) -> list[bool]:
        return [run.once("mail").do_sync(sent.append, "ada"), run.once("mail").do_sync(sent.append, "bob")]

    job = await due_job(look, kind)
    await serve(app)
    assert (await outcome(look, job))["result"] == "[true,false]"
    assert sent == ["ada"]


async def nested(run: Run) -> None:
    async with run.once("a"), run.once("b"):
        pass


async def in_transaction(run: Run) -> None:
    async with run.transaction(), run.once("a"):
        pass


async def not_first(run: Run) -> None:
    await run.once("a").do(asyncio.sleep, 0)
    async with run.once("a") as effect:
        effect.connection.execute("SELECT 1")


async def blocking(run: Run) -> None:
    with run.once("a"):
        pass


async def empty(run: Run) -> None:
    run.once("")


async def no_scope(run: Run) -> None:
    run.once("a", scope="cluster")  # type: ignore[call-overload] # what is refused here


async def kept_for_nothing(run: Run) -> None:
    run.once("a", keep_for=0)


async def kept_for_a_text(run: Run) -> None:
    run.once("a", keep_for="1d")  # type: ignore[call-overload] # as above


MISUSES = {
    nested: "run.once('b') is inside of run.once('a')",
    in_transaction: "run.once('a') is inside of run.transaction()",
    not_first: "The effect 'a' has happened already: ask effect.first",
    blocking: "This is for plain functions",
    empty: "The key of run.once is ''",
    no_scope: "give 'job' or 'tenant'",
    kept_for_nothing: "keep_for=0: give a timedelta",
    kept_for_a_text: "keep_for='1d'",
}


@pytest.mark.parametrize("misuse", MISUSES, ids=lambda misuse: misuse.__name__)
async def test_a_misuse_is_refused_with_advice(look: Any, serve: Any, misuse: Any) -> None:
    app = Detent()
    app.function("misuse")(misuse)
    job = await due_job(look, "misuse")
    await serve(app)
    assert (await outcome(look, job))["status"] == 2
    error = await look.fetchval("SELECT error FROM attempts WHERE job = $1", job)
    assert MISUSES[misuse] in error and UsageError.__name__ in error


async def test_many_handlers_that_hold_all_connections_can_still_store_steps(look: Any, serve: Any) -> None:
    app = Detent()

    @app.function("both")
    async def both(run: Run) -> int:
        async with run.once("effect") as effect:
            await effect.connection.execute("SELECT 1")
            return await run.step("step", lambda: 1)

    jobs = [await due_job(look, "both") for _ in range(20)]
    await serve(app)
    assert [(await outcome(look, job))["result"] for job in jobs] == ["1"] * 20
