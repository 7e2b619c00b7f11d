"""Tasks in test mode: their runs wait for the clock of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from detent import Depends, Detent, Discard, NotRetryable, Retry, Run
from detent.errors import Conflict, NotFound, PayloadMismatch, RunFailed, StartupFailed, UsageError


@dataclass
class Mail:
    to: str
    lines: list[str]


def mailer() -> tuple[Detent, list[str]]:
    app, sent = Detent("mailer"), list[str]()

    @app.task(max_retries=2, retry_base_seconds=10, queue="mail")
    def send(run: Run, mail: Mail, urgent: bool = False) -> int:
        run.log.info("to %s", mail.to)
        sent.append(f"{mail.to}{'!' if urgent else ''}")
        return len(mail.lines)

    return app, sent


def test_an_enqueued_run_waits_for_the_test() -> None:
    app, sent = Detent(), list[str]()

    @app.task
    def send(to: str, lines: int = 1) -> int:
        sent.append(to)
        return lines

    with app.test() as t:
        handle = send.enqueue_sync("ada", lines=3)
        assert (handle.status(), sent, handle.created) == ("pending", [], True)
        with pytest.raises(UsageError, match=r"call t.run_pending\(\)"):
            handle.result()
        (run,) = t.run_pending()
        assert (handle.status(), handle.result(), sent) == ("succeeded", 3, ["ada"])
        assert (run.id, run.payload, run.scheduled_at) == (handle.id, {"to": "ada", "lines": 3}, t.now)
        assert send.delay("bob").created and send.apply_async(("eve",), countdown=60).created
        assert [each.payload["to"] for each in t.run_pending()] == ["bob"]
        assert [each.payload["to"] for each in t.advance(minutes=1)] == ["eve"]
        assert len(send.enqueue_many_sync([send.call("a"), send.call("b")])) == 2
        assert t.advance() == t.runs[-2:] == t.runs_of("send")[-2:]
    assert sent == ["ada", "bob", "eve", "a", "b"]


async def test_a_test_that_is_a_coroutine_enqueues_and_awaits() -> None:
    app = Detent()

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    with app.test() as t:
        handle = await double.enqueue(21)
        many = await double.enqueue_many([double.call(n) for n in range(3)])
        await t.run_pending_async()
        assert await handle.result() == 42
        assert [await each.result() for each in many] == [0, 2, 4]


def test_arguments_are_values_of_their_types_as_on_a_worker() -> None:
    app, kinds = Detent(), list[object]()

    @app.task
    def book(at: datetime, mail: Mail, count: int = 1) -> Mail:
        kinds.extend((at, mail, count))
        return mail

    with app.test() as t:
        moment, mail = datetime(2026, 2, 3, tzinfo=UTC), Mail("ada", ["hi"])
        handle = book.enqueue_sync(moment, mail=mail)
        t.run_pending()
        assert kinds == [moment, mail, 1]
        assert handle.result() == mail
        wrong = t.trigger("book", payload={"at": "2026-02-03T00:00:00Z", "mail": {"to": 7, "lines": []}})
        assert (wrong.status, wrong.reason) == ("dead", "not retryable")
        assert "'mail' in the payload does not fit" in str(wrong.error)
        assert isinstance(wrong.attempts[0].exception, PayloadMismatch)
        with pytest.raises(UsageError, match="count"):
            book.enqueue_sync(moment, mail, count="many")  # type: ignore[arg-type] # wrong on purpose
        assert len(t.runs) == 2


def test_runs_that_are_due_at_the_same_time_run_by_priority() -> None:
    app, order = Detent(), list[str]()

    @app.task(priority=5)
    def work(name: str) -> None:
        order.append(name)

    @app.job(every="1h", priority=50)
    def hourly() -> None:
        order.append("tick")

    with app.test() as t:
        for name, priority in (("low", -100), ("usual", None), ("high", 100)):
            work.options(delay=3600, priority=priority).enqueue_sync(name)
        work.options(at=t.now + timedelta(minutes=59)).enqueue_sync("first")
        t.advance(hours=1)
    assert order == ["first", "high", "tick", "usual", "low"]


def test_a_unique_key_is_taken_while_its_run_is_unfinished_and_for_its_time() -> None:
    app = Detent()

    @app.task
    def work() -> None: ...

    with app.test() as t:
        first = work.options(unique_key="k", delay=60).enqueue_sync()
        second = work.options(unique_key="k").enqueue_sync()
        assert (second.id, second.created) == (first.id, False)
        assert work.options(unique_key="other").enqueue_sync().created
        t.advance(minutes=1)
        third = work.options(unique_key="k", unique_for=timedelta(hours=1)).enqueue_sync()
        assert third.created
        t.advance(minutes=59)
        assert third.status() == "succeeded"
        assert not work.options(unique_key="k").enqueue_sync().created
        t.advance(minutes=1)
        assert work.options(unique_key="k").enqueue_sync().created


def test_failures_are_retried_discarded_or_dead_as_in_production() -> None:
    app, calls = Detent(), list[str]()

    class RateLimited(Exception):  # noqa: N818 - as users name them
        pass

    @app.task(max_retries=3, retry_base_seconds=10, retry_on=(OSError, RateLimited), retry_delays={RateLimited: 90})
    def work(run: Run, how: str) -> str:
        calls.append(how)
        match how:
            case "later" if run.attempt == 1:
                raise Retry(after=600)
            case "limited" if run.attempt == 1:
                raise RateLimited
            case "away" if run.attempt < 3:
                raise ConnectionError("away")
            case "discard":
                raise Discard("nobody wants it")
            case "broken":
                raise LookupError
            case "over":
                raise NotRetryable("over")
        return how

    with app.test() as t:
        handles = {how: work.enqueue_sync(how) for how in ("later", "limited", "away", "discard", "broken", "over")}
        t.advance(hours=1)
        ends = {how: (run.status, run.reason, run.attempt) for how, run in zip(handles, t.runs, strict=True)}
        waits = {how: [(each.at - t.runs[0].scheduled_at).total_seconds() for each in run.attempts]
                 for how, run in zip(handles, t.runs, strict=True)}  # fmt: skip
        assert ends == {
            "later": ("succeeded", None, 2),
            "limited": ("succeeded", None, 2),
            "away": ("succeeded", None, 3),
            "discard": ("cancelled", "discarded: nobody wants it", 1),
            "broken": ("dead", "not retryable", 1),
            "over": ("dead", "not retryable", 1),
        }
        assert (waits["later"], waits["limited"], waits["away"]) == ([0, 600], [0, 90], [0, 10, 30])
        with pytest.raises(RunFailed, match="LookupError"):
            handles["broken"].result()
        with pytest.raises(RunFailed, match="discarded: nobody wants it"):
            handles["discard"].result()
        assert [each.outcome for each in handles["away"].run().attempts] == ["failed", "failed", "succeeded"]


def test_a_run_can_be_cancelled_before_it_is_due_and_while_it_runs() -> None:
    app, called = Detent(), list[str]()

    @app.task
    def work() -> None:
        called.append("work")

    @app.task
    def stubborn(run: Run) -> None:
        called.append("stubborn")
        stubborn.handle_sync(run.id).cancel()
        run.heartbeat()

    with app.test() as t:
        waiting = work.options(delay=60).enqueue_sync()
        waiting.cancel()
        running = stubborn.enqueue_sync()
        t.advance(minutes=2)
        assert (waiting.status(), running.status(), called) == ("cancelled", "cancelled", ["stubborn"])
        with pytest.raises(Conflict, match="already cancelled"):
            waiting.cancel()
        assert [run.reason for run in t.runs] == ["cancelled", "cancelled"]


def test_functions_enqueue_other_functions() -> None:
    app, order = Detent(), list[str]()

    @app.task
    def child(number: int) -> None:
        order.append(f"child {number}")

    @app.task
    async def later(number: int) -> None:
        order.append(f"later {number}")

    @app.job(every="1h")
    def parent() -> None:
        order.append("parent")
        child.enqueue_sync(1)

    @app.job(every="2h")
    async def other() -> None:
        order.append("other")
        await later.options(delay=60).enqueue(2)

    with app.test() as t:
        ran = t.advance(hours=2)
        assert order == ["parent", "child 1", "other", "parent", "child 1"]
        assert [run.job for run in ran].count("child") == 2
        t.advance(minutes=1)
    assert order[-1] == "later 2"


def test_a_job_can_be_scheduled_while_the_test_runs() -> None:
    app, called = Detent(), list[str]()

    @app.task
    def greet(name: str) -> None:
        called.append(name)

    with app.test(start="2026-01-01T00:00:00Z") as t:
        job = greet.schedule_sync("greet-ada", greet.call("ada"), every="1h")
        assert job.next_run_at == datetime(2026, 1, 1, 1, tzinfo=UTC)
        t.advance(hours=2)
        greet.schedule_sync("greet-ada", greet.call("bob"), every="30m")
        t.advance(hours=1)
    assert called == ["ada", "ada", "bob", "bob"]


def test_what_a_function_logs_is_kept_with_its_run() -> None:
    app, sent = mailer()
    send = app.tasks["send"]
    with app.test() as t:
        send.enqueue_sync(Mail("ada", ["one", "two"]), urgent=True)
        (run,) = t.run_pending()
    assert (run.logs, run.queue, run.result, sent) == (["to ada"], "mail", 2, ["ada!"])


def test_progress_is_kept_with_its_run() -> None:
    app = Detent()

    @app.task
    def work(run: Run) -> None:
        run.progress(0.4, "importing")
        run.progress(1, "done")

    with app.test() as t:
        assert t.trigger("work").progress == (1.0, "done")


def test_hooks_dependencies_and_middleware_run_in_a_test() -> None:
    seen: list[str] = []
    tenant: ContextVar[str] = ContextVar("tenant")

    @asynccontextmanager
    async def lifespan(app: Detent) -> AsyncIterator[None]:
        async with asyncio.TaskGroup():
            seen.append("lifespan")
            yield
        seen.append("lifespan ends")

    app = Detent(lifespan=lifespan)

    @app.on_startup
    async def start() -> None:
        tenant.set("acme")

    @app.on_shutdown
    def stop() -> None:
        seen.append("stop")

    @app.middleware
    def around(run: Run) -> Iterator[None]:
        seen.append("before")
        yield
        seen.append("after")

    async def pool() -> AsyncIterator[str]:
        seen.append("pool")
        yield "pool"
        seen.append("pool closed")

    def unused() -> str:
        raise AssertionError("only what a function needs is made")

    @app.task
    def work(pool: str = Depends(pool, scope="worker")) -> str:
        return f"{tenant.get()} {pool}"

    @app.task
    def other(value: str = Depends(unused, scope="worker")) -> str:
        return value

    with app.test() as t:
        handle = work.enqueue_sync()
        work.enqueue_sync()
        t.run_pending()
        assert handle.result() == "acme pool"
        with app.override(pool, lambda: "fake"):
            assert t.trigger("work").result == "acme fake"
    runs = ["before", "after"] * 2
    assert seen == ["lifespan", "pool", *runs, *runs[:2], "pool closed", "stop", "lifespan ends"]
    assert tenant not in copy_context()


async def test_hooks_in_a_test_that_is_a_coroutine_need_an_async_block() -> None:
    app, seen = Detent(), list[str]()

    @app.on_startup
    async def start() -> None:
        seen.append("start")

    @app.on_shutdown
    async def stop() -> None:
        seen.append("stop")

    @app.task
    async def work() -> None:
        seen.append("work")

    async with app.test() as t:
        await t.trigger_async("work")
    assert seen == ["start", "work", "stop"]
    with app.test() as t, pytest.raises(UsageError, match=r"async with app.test\(\)"):
        await t.trigger_async("work")


def test_hooks_that_fail_fail_the_test() -> None:
    app = Detent()

    @app.task
    def work() -> None: ...

    @app.on_shutdown
    def stop() -> None:
        raise ValueError("not closed")

    with pytest.raises(ValueError, match="not closed"), app.test() as t:
        t.trigger("work")

    @app.on_startup
    def start() -> None:
        raise KeyError("no")

    with pytest.raises(StartupFailed, match="KeyError"), app.test() as t:
        t.trigger("work")


def test_the_app_enqueues_elsewhere_again_after_the_block() -> None:
    app = Detent(url="postgresql://nobody@127.0.0.1:1/none")

    @app.task
    def work() -> None: ...

    with app.test() as t:
        work.enqueue_sync()
        assert len(t.run_pending()) == 1
    assert not app.in_memory


def test_what_cannot_be_enqueued_is_refused_and_changes_nothing() -> None:
    app = Detent()

    @app.task
    def work(number: int = 0) -> None: ...

    with app.test() as t:
        with pytest.raises(UsageError, match="more than 366 days ahead"):
            work.options(at=t.now + timedelta(days=400)).enqueue_sync()
        with pytest.raises(UsageError, match="unique_for_seconds is given without unique_key"):
            work.options(unique_for=60).enqueue_sync()
        with pytest.raises(NotFound, match="There is no run"):
            work.handle_sync("0199a2b4-0000-7000-8000-000000000001").status()
        late = work.options(at=t.now + timedelta(days=400))
        with pytest.raises(UsageError):
            late.enqueue_many_sync([late.call(1), work.call(2)])
        assert t.runs == []


def test_a_payload_that_does_not_match_the_schema_of_its_task_is_refused_where_it_is_enqueued() -> None:
    app = Detent()

    @app.task(payload_schema={"properties": {"to": {"type": "string", "pattern": "@"}}, "required": ["to"]})
    def send(to: str, copies: int = 1) -> None: ...

    with app.test() as t:
        send.enqueue_sync("a@b")
        with pytest.raises(UsageError, match="matches @") as caught:
            send.enqueue_many_sync([send.call("a@b"), send.call("ada")])
        assert caught.value.pointer == "/payload/to"
        t.run_pending()
    assert [run.status for run in t.runs] == ["succeeded"]
