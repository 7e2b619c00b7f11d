"""Marks in Redis: written with the work or after it. And why `SETNX` before the work is a mistake."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

from detent import Detent, Run
from detent.errors import Conflict, UsageError
from tests.support.servers import Redis, Server, running

KEPT_MS = 30 * 24 * 3600 * 1000


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(Redis) as started:
        yield started


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Any]:
    async with redis.asyncio.Redis.from_url(server.url, decode_responses=True) as opened:
        await opened.flushdb()
        yield opened


async def run_of(app: Detent, job: str) -> Any:
    with app.test() as t:
        return await t.trigger_async(job)


async def test_the_mark_and_the_commands_of_the_block_are_executed_together(client: Any) -> None:
    app = Detent()
    seen: list[Any] = []

    @app.job(every="1h")
    async def bill(run: Run) -> list[bool]:
        firsts = []
        for _ in range(2):
            async with run.once("invoice-42", redis=client) as effect:
                if effect.first:
                    effect.pipeline.incr("invoices")
                    seen.append(await client.keys("*"))
                firsts.append(effect.first)
        return firsts

    assert (await run_of(app, "bill")).result == [True, False]
    assert seen == [[]]  # neither the mark nor the effect before the end of the block
    (name,) = await client.keys("detent:once:*:invoice-42")
    assert 0.99 * KEPT_MS < await client.pttl(name) <= KEPT_MS
    assert await client.get("invoices") == "1"


async def test_a_block_that_fails_leaves_neither_effect_nor_mark(client: Any) -> None:
    app = Detent()

    @app.job(every="1h", max_retries=0)
    async def bill(run: Run) -> None:
        async with run.once("invoice-42", redis=client) as effect:
            effect.pipeline.incr("invoices")
            raise RuntimeError

    assert (await run_of(app, "bill")).status == "dead"
    assert await client.keys("*") == []


async def test_of_two_that_do_it_at_the_same_time_one_wins_and_the_other_writes_nothing(client: Any) -> None:
    app = Detent()
    both_inside = asyncio.Barrier(2)
    ends: list[Any] = []

    async def bill(run: Run) -> None:
        async with run.once("invoice-42", redis=client, scope="tenant") as effect:
            effect.pipeline.incr("invoices")
            await both_inside.wait()

    @app.job(every="1h")
    async def both(run: Run) -> None:
        ends.extend(await asyncio.gather(bill(run), bill(run), return_exceptions=True))

    await run_of(app, "both")
    assert [type(end) for end in ends if end is not None] == [Conflict]
    assert await client.get("invoices") == "1"
    assert await client.keys("detent:once:*") == ["detent:once:tenant-1:invoice-42"]


def test_a_plain_function_uses_a_blocking_client(server: Server) -> None:
    app = Detent()
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        client.flushdb()

        @app.job(every="1h")
        def bill(run: Run) -> list[bool]:
            with run.once("invoice-42", redis=client) as effect:
                effect.pipeline.incr("invoices")
            return [effect.first, run.once("invoice-42", redis=client).do_sync(client.incr, "invoices")]

        with app.test() as t:
            assert t.trigger("bill").result == [True, False]
        assert client.get("invoices") == "1"


async def test_a_client_of_the_other_kind_is_refused_with_advice(server: Server, client: Any) -> None:
    app = Detent()
    blocking = redis.Redis.from_url(server.url)

    @app.job(every="1h", max_retries=0)
    async def bill(run: Run) -> list[str]:
        found = []
        try:
            async with run.once("invoice-42", redis=blocking):
                pass
        except UsageError as error:
            found.append(error.message)
        try:
            with run.once("invoice-42", redis=client):
                pass
        except UsageError as error:
            found.append(error.message)
        return found

    first, second = (await run_of(app, "bill")).result
    assert "needs a client of redis.asyncio" in first
    assert "not of redis.asyncio" in second
    blocking.close()


# --- the mistake ---

WORKER = """
import os, signal, sys
import redis
from detent import Detent, Run

app, client = Detent(), redis.Redis.from_url(sys.argv[1])

@app.job(every="1h", max_retries=0)
def setnx_first(run: Run) -> None:
    if client.set("done:invoice-42", 1, nx=True):
        die()
        client.incr("setnx invoices")

@app.job(every="1h", max_retries=0)
def marked_after(run: Run) -> None:
    with run.once("invoice-42", redis=client) as effect:
        if effect.first:
            die()
            effect.pipeline.incr("once invoices")

def die() -> None:
    if sys.argv[3] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)

with app.test() as t:
    assert t.trigger(sys.argv[2]).status == "succeeded"
"""


def attempt(server: Server, job: str, how: str) -> int:
    """One attempt of the job in a process of its own: its exit code."""
    environ = {"PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", WORKER, server.url, job, how]
    return subprocess.run(command, env=environ, check=False, timeout=60).returncode


@pytest.mark.parametrize(
    ("job", "counter", "effects"), [("setnx-first", "setnx invoices", None), ("marked-after", "once invoices", "1")]
)
async def test_setnx_before_the_work_loses_the_effect_when_the_worker_dies_between_and_a_mark_after_it_does_not(
    server: Server, client: Any, job: str, counter: str, effects: str | None
) -> None:
    assert await asyncio.to_thread(attempt, server, job, "dies") == -signal.SIGKILL
    assert await asyncio.to_thread(attempt, server, job, "lives") == 0  # the retry
    assert await client.get(counter) == effects
