"""Programs that use the SDK as they should: type checkers know the type of everything."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import redis
import redis.asyncio

from detent import BlockingHandle, Detent, Discard, Handle, NotRetryable, Retry, Run, Task

app = Detent(url="postgresql://db/shop", tenant="default")


class RateLimited(Exception):  # noqa: N818 - what a user may write
    pass


@app.task(
    queue="mail",
    max_retries=5,
    retry_on=(TimeoutError, "shop.errors.Busy"),
    no_retry_on=[KeyError],
    retry_delays={RateLimited: timedelta(minutes=1), "shop.errors.Busy": 5},
    concurrent_policy="ALLOW",
)
async def send_mail(to: str, subject: str = "hi") -> int:
    return len(to + subject)


@app.task
def resize(run: Run, width: int, *, height: int) -> str:
    return f"{run.id} {width}x{height}"


@app.task
async def ping() -> None: ...


@app.task()
def raw(run: Run) -> str:
    return str(run.payload)


@app.task
async def store(document: dict[str, Any]) -> dict[str, Any]:
    return document


@app.task
def take(run: Run, /, document: dict[str, Any]) -> dict[str, Any]:
    """mypy knows a task whose annotations have Any, and whose first parameter is the run, only if that has no name."""
    return document


@app.job(
    every=timedelta(hours=1), timezone="Europe/Berlin", payload={"kind": "daily"}, starts_at="2026-01-01T00:00:00Z"
)
async def report(run: Run, kind: str = "weekly") -> list[str]:
    if run.attempt == 1:
        raise Retry("busy", after=30)
    if run.attempt == 2:
        raise NotRetryable("wrong")
    raise Discard("gone")


async def coroutine() -> None:
    assert_type(await send_mail.enqueue(to="a"), Handle[int])
    assert_type(await (await send_mail.enqueue("a", "b")).result(timeout=30), int)
    assert_type(await send_mail.options(delay=60, unique_key="k").enqueue("a"), Handle[int])
    assert_type(await resize.enqueue(1, height=2), Handle[str])
    assert_type(await send_mail.enqueue_many([send_mail.call(to="a"), send_mail.call("b", "c")]), list[Handle[int]])
    assert_type(await ping.enqueue(), Handle[None])
    assert_type(await report.enqueue(kind="daily"), Handle[list[str]])
    assert_type(await (await raw.options(payload=[1]).enqueue()).result(), str)
    assert_type(await send_mail("a"), int)
    assert_type(await store.enqueue({"a": 1}), Handle[dict[str, Any]])
    assert_type(await take.enqueue({"a": 1}), Handle[dict[str, Any]])
    job = await send_mail.schedule("weekly", send_mail.call(to="a"), cron="0 9 * * MON", queue="slow")
    assert_type(job.name, str)
    await send_mail.handle("01a1ec58-0e8e-7c00-8000-000000000001").cancel()


async def effects(run: Run) -> None:
    assert_type(await run.step("mail", send_mail, "a", subject="b"), int)
    assert_type(await run.step("length", len, "a"), int)
    async with run.once("invoice-42", scope="tenant", keep_for=timedelta(days=1)) as effect:
        assert_type(effect.first, bool)
        await effect.connection.execute("SELECT 1")
    assert_type(await run.once("mail").do(send_mail, "a"), bool)
    client: redis.asyncio.Redis = redis.asyncio.Redis()
    async with run.once("order-42", redis=client) as marked:
        marked.pipeline.incr("orders")


def blocking_effects(run: Run) -> None:
    assert_type(run.step_sync("length", len, "a"), int)
    with run.once("invoice-42") as effect:
        assert_type(effect.connection.execute("SELECT 1"), str)
    with run.once("order-42", redis=redis.Redis()) as marked:
        assert_type(marked.first, bool)
    assert_type(run.once("mail").do_sync(print, "a"), bool)


def plain(run: Run) -> None:
    assert_type(send_mail.enqueue_sync(to="a"), BlockingHandle[int])
    assert_type(send_mail.delay("a").result(timeout=5), int)
    assert_type(send_mail.apply_async(("a",), countdown=60, eta=datetime.now(UTC)), BlockingHandle[int])
    assert_type(resize(run, 1, height=2), str)
    every_task: list[Task[..., Any]] = [send_mail, resize, ping, raw, report]
    assert every_task
