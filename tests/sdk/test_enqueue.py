"""Tasks that are enqueued through the database and through the API, and run by a real worker."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent import Detent, Discard, Retry, Run
from detent.api.app import create_app
from detent.client.transport import ApiAddress
from detent.domain.identity import RunKey, run_id
from detent.domain.on_demand import NewRun
from detent.errors import Conflict, NotFound, RunFailed, UsageError
from detent.jobs import JobOperations
from detent.node.apps import attach_database, register_jobs
from detent.node.server import ApiServer
from detent.node.session import Session
from detent.sdk.portal import portal
from detent.settings.settings import Settings
from detent.store import Database, Store
from detent.store.effects import EffectPool
from detent.store.limits import STANDARD
from detent.targets.python import HandlerThread, PythonTargetRunner
from detent.telemetry.metrics import Metrics
from detent.worker.queues import book
from tests.support.waiting import until

Serve = Callable[[Detent], Awaitable[None]]


async def ready() -> dict[str, Any]:
    return {}


@pytest.fixture
async def serve(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    """Register an app, and run its functions in a session of this process."""
    monkeypatch.setattr(book, "READ_EVERY", 1.0)
    database = Database(database_url)
    await database.open()
    thread = HandlerThread(4)
    thread.start()
    effects = EffectPool(database.url, "detent", STANDARD)
    sessions: list[Session] = []

    async def start(app: Detent) -> None:
        app.name = app.name or "shop"
        await register_jobs(Store(database), JobOperations(Store(database)), app)
        runner = PythonTargetRunner(app.functions, thread, lambda call: sessions[0].make_run(call, effects))
        session = Session(Store(database), Settings(), ("scheduler", "worker"), {"python": runner}, list(app.functions))
        await session.open()
        sessions.append(session)

    yield start
    for session in sessions:
        await session.close(1)
    await thread.run(effects.close())
    await thread.stop()
    await database.close()


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[str]:
    database = Database(database_url)
    await database.open()
    app = create_app(Store(database), settings=Settings(), readiness=ready, metrics=Metrics())
    async with ApiServer(app, "127.0.0.1", 0) as server:
        yield server.url
    await database.close()


@pytest.fixture(params=["database", "api", "node"])
async def app(
    request: pytest.FixtureRequest, database_url: str, api: str, reach: dict[str, Any]
) -> AsyncIterator[Detent]:
    """An app that enqueues in each way: all that follows is the same code. In a node it does so with the node's role,
    which owns nothing."""
    app = Detent(url={"database": database_url, "api": api, "node": None}[request.param])
    if request.param == "node":
        attach_database(app, reach["url"], "detent", pooled=False)
    yield app
    await app.close()


@dataclass
class Mail:
    to: str
    at: datetime


AT = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)


async def test_arguments_and_results_keep_their_types(app: Detent, serve: Serve) -> None:
    @app.task
    async def send(mail: Mail, times: int = 1) -> list[Mail]:
        return [mail] * times

    @app.task(name="plain")
    def shout(run: Run, text: str) -> str:
        return f"{text.upper()} {run.job}"

    await serve(app)
    handle = await send.enqueue(Mail("ada", AT), times=2)
    assert await handle.result(timeout=30) == [Mail("ada", AT)] * 2
    assert await handle.status() == "succeeded" and handle.created
    run = await handle.run()
    assert (str(run.id), run.job, len(run.attempts)) == (handle.id, "send", 1)
    with pytest.raises(Conflict):
        await handle.cancel()
    assert await send.handle(handle.id).result() == [Mail("ada", AT)] * 2
    blocking = await asyncio.to_thread(shout.enqueue_sync, "hallo")
    assert await asyncio.to_thread(blocking.result, 30) == "HALLO plain"
    assert await asyncio.to_thread(blocking.status) == "succeeded"


async def test_many_runs_are_enqueued_at_once(app: Detent, serve: Serve) -> None:
    @app.task
    def double(n: int) -> int:
        return 2 * n

    await serve(app)
    handles = await double.enqueue_many(double.call(n) for n in range(5))
    assert [await handle.result(30) for handle in handles] == [0, 2, 4, 6, 8]
    assert await double.enqueue_many([]) == []
    again = await asyncio.to_thread(double.enqueue_many_sync, [double.call(n=7)])
    assert await asyncio.to_thread(again[0].result, 30) == 14
    with pytest.raises(UsageError, match=r"is not a call: write double\.call"):
        await double.enqueue_many([7])  # type: ignore[list-item] # on purpose


async def test_a_call_of_another_task_is_refused(app: Detent) -> None:
    @app.task
    def one(n: int) -> int:
        return n

    @app.task
    def other(n: int) -> int:
        return n

    with pytest.raises(UsageError, match="This is a call of 'other', and was given to 'one'"):
        await one.enqueue_many([other.call(1)])


async def test_options_decide_when_and_where_a_run_waits(app: Detent, serve: Serve, look: Any) -> None:
    @app.task
    def work(n: int) -> int:
        return n

    await serve(app)
    later = await work.options(delay=timedelta(hours=1), priority=50, queue="slow", unique_key="k").enqueue(1)
    same = await work.options(unique_key="k", unique_for=60).enqueue(2)
    assert (same.id, same.created) == (later.id, False)
    row = await look.fetchrow("SELECT * FROM backlog")
    assert (row["priority"], row["payload"]) == (50, '{"n": 1}')
    at = datetime.now(UTC) + timedelta(days=2)
    on_time = await work.options(at=at).enqueue(3)
    assert (await on_time.run()).scheduled_at == at.replace(microsecond=at.microsecond // 1000 * 1000)
    with pytest.raises(TimeoutError, match=r"has not finished within 0\.05 s: it is pending"):
        await later.result(timeout=0.05)
    await later.cancel()
    assert await later.status() == "cancelled"
    with pytest.raises(RunFailed, match="is cancelled"):
        await later.result()


async def test_look_alikes_of_celery_work(app: Detent, serve: Serve) -> None:
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    await serve(app)
    assert await asyncio.to_thread(lambda: add.delay(1, 2).result(30)) == 3
    assert await asyncio.to_thread(lambda: add.apply_async((1,), {"b": 4}, countdown=0.1, priority=9).result(30)) == 5
    with pytest.raises(UsageError, match="missing a required argument"):
        add.apply_async((1,))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"priority": 101}, "do not fit: Expected `int` <= 100"),
        ({"delay": -1}, "do not fit"),
        ({"delay": "soon"}, "delay is 'soon': give a number of seconds or a timedelta"),
        ({"at": datetime(2026, 1, 1)}, "do not fit"),
        ({"unique_for": 10}, "unique_for"),
        ({"later": 10}, "There is no option 'later' of an enqueue: there are delay, at, "),
    ],
)
async def test_wrong_options_are_refused(app: Detent, serve: Serve, options: Any, words: str) -> None:
    @app.task
    def work() -> None: ...

    await serve(app)
    with pytest.raises(UsageError) as refused:
        await work.options(**options).enqueue()
    assert words in refused.value.message


async def test_a_function_with_only_its_run_has_any_payload(app: Detent, serve: Serve) -> None:
    @app.task(payload=["of the job"])
    def raw(run: Run) -> Any:
        return run.payload

    await serve(app)
    assert await (await raw.options(payload={"any": 1}).enqueue()).result(30) == {"any": 1}
    assert await (await raw.options(payload=None).enqueue()).result(30) is None
    assert await (await raw.enqueue()).result(30) == ["of the job"]


async def test_a_failed_run_raises_what_went_wrong(app: Detent, serve: Serve) -> None:
    class Gone(LookupError):  # noqa: N818 - what a user may write
        pass

    attempts: list[int] = []

    @app.task(max_retries=5, no_retry_on=(LookupError,))
    def fail(run: Run) -> None:
        attempts.append(run.attempt)
        raise Gone("there is no order 7")

    @app.task
    def mismatched(n: int) -> None: ...

    await serve(app)
    with pytest.raises(RunFailed, match="of fail is dead: Gone: there is no order 7") as failed:
        await (await fail.enqueue()).result(30)
    assert (failed.value.status, failed.value.error) == ("dead", "Gone: there is no order 7")
    assert failed.value.traceback is not None and 'raise Gone("there is no order 7")' in failed.value.traceback
    assert attempts == [1]
    (sent,) = await portal.run(lambda: app.gateway().enqueue("mismatched", [NewRun(payload={"n": "x"})]))
    with pytest.raises(RunFailed, match=r"PayloadMismatch: .*'n' in the payload does not fit"):
        await mismatched.handle(sent.id).result(30)


async def test_exceptions_decide_about_retries(app: Detent, serve: Serve) -> None:
    class RateLimited(Exception):  # noqa: N818 - what a user may write
        pass

    seen: dict[str, list[int]] = {"listed": [], "unlisted": [], "asked": [], "discarded": []}

    @app.task(
        retry_on=(RateLimited, OSError), retry_delays={RateLimited: 0, ConnectionError: 0}, retry_base_seconds=3000
    )
    def listed(run: Run) -> int:
        seen["listed"].append(run.attempt)
        if run.attempt < 3:
            raise RateLimited if run.attempt == 1 else ConnectionResetError("no")
        return run.attempt

    @app.task(retry_on=(RateLimited,))
    def unlisted(run: Run) -> None:
        seen["unlisted"].append(run.attempt)
        raise ValueError("wrong")

    @app.task(retry_on=(RateLimited,), retry_base_seconds=0)
    def asked(run: Run) -> int:
        seen["asked"].append(run.attempt)
        if run.attempt == 1:
            raise Retry("later", after=0.01)
        return run.attempt

    @app.task
    def discarded(run: Run, why: str) -> None:
        seen["discarded"].append(run.attempt)
        raise Discard(why)

    await serve(app)
    handles = [await listed.enqueue(), await asked.enqueue()]
    assert [await handle.result(30) for handle in handles] == [3, 2]
    with pytest.raises(RunFailed, match="ValueError: wrong"):
        await (await unlisted.enqueue()).result(30)
    with pytest.raises(RunFailed, match="is cancelled: discarded: no such order") as ended:
        await (await discarded.enqueue("no such order")).result(30)
    assert ended.value.status == "cancelled"
    assert seen == {"listed": [1, 2, 3], "unlisted": [1], "asked": [1, 2], "discarded": [1]}


async def test_a_task_can_be_scheduled_while_the_program_runs(app: Detent, serve: Serve) -> None:
    called: list[str] = []

    @app.task(queue="mail", max_retries=7)
    def send(to: str, subject: str = "hi") -> None:
        called.append(to)

    await serve(app)
    job = await send.schedule("weekly-mail", send.call(to="ada"), cron="0 9 * * MON", timezone="Europe/Berlin")
    assert (job.name, job.payload, job.queue, job.max_retries) == ("weekly-mail", {"to": "ada"}, "mail", 7)
    assert job.schedule == {"cron": "0 9 * * MON"}
    again = await asyncio.to_thread(
        send.schedule_sync, "weekly-mail", send.call(to="bob"), every=timedelta(hours=1), queue="slow"
    )
    assert (again.id, again.payload, again.queue, again.timezone) == (job.id, {"to": "bob"}, "slow", "UTC")
    with pytest.raises(UsageError, match="needs 'to' at each tick"):
        await send.schedule("weekly-mail", every="1h")
    with pytest.raises(UsageError, match="exactly one of cron=, every=, rrule= and at=; 0 were given"):
        await send.schedule("weekly-mail", send.call("a"))
    with pytest.raises(UsageError, match="no field 'max_retrys'"):
        await send.schedule("weekly-mail", send.call("a"), every="1h", max_retrys=5)  # type: ignore[call-arg] # on purpose
    soon = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    await send.schedule("soon", send.call("eve"), queue="default", at=soon)
    await until(lambda: called == ["eve"], 30, "the call")


async def test_a_task_that_nothing_registered_is_reported_with_what_to_do(app: Detent) -> None:
    @app.task
    def work() -> None: ...

    with pytest.raises(NotFound, match=r"There is no task or job 'work' in this cluster: a worker .* app.register"):
        await work.enqueue()
    await app.register()
    handle = await work.enqueue()
    assert await handle.status() == "pending"
    with pytest.raises(NotFound):
        await work.handle("01a1ec58-0e8e-7c00-8000-000000000001").status()


async def test_through_the_api_an_app_that_registers_learns_that_no_worker_serves_its_task(
    api: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Detent(url=api)

    @app.task
    def work() -> None: ...

    try:
        await app.register()
        assert "work: Its runs will wait. No worker is running" in caplog.text
        handle = await work.enqueue()
        with pytest.raises(
            TimeoutError, match=r"within 0\.1 s: it is pending\. No worker is running, and the function"
        ):
            await handle.result(timeout=0.1)
    finally:
        await app.close()


async def test_an_app_works_in_threads_and_several_loops(app: Detent, serve: Serve) -> None:
    @app.task
    def double(n: int) -> int:
        return 2 * n

    await serve(app)
    results: list[int] = []

    async def enqueue(n: int) -> None:
        results.append(await (await double.enqueue(n)).result(30))

    threads = [threading.Thread(target=lambda n=n: asyncio.run(enqueue(n))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert sorted(results) == [0, 2, 4, 6]


async def test_a_forked_process_opens_its_own_connections(app: Detent, serve: Serve) -> None:
    @app.task
    def double(n: int) -> int:
        return 2 * n

    await serve(app)
    assert await (await double.enqueue(1)).result(30) == 2
    child = os.fork()
    if child == 0:
        try:
            result = double.enqueue_sync(1).result(30)
            gc.collect()  # what is left of the parent's connections is finalised here
            os._exit(40 + result)
        finally:
            os._exit(1)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 42
    assert await (await double.enqueue(2)).result(30) == 4


async def test_an_awaiting_caller_that_gives_up_stops_its_wait(app: Detent, serve: Serve) -> None:
    @app.task
    def work() -> None: ...

    await serve(app)
    handle = await work.options(delay=3600).enqueue()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await handle.result()
    assert await handle.status() == "pending"


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="is no address of a cluster: give http"):
        Detent(url="redis://localhost")


def test_an_address_that_is_refused_is_not_shown_with_its_password() -> None:
    with pytest.raises(UsageError) as refused:
        Detent(url="postgresql+asyncpg://shop:hunter2@host/detent")
    assert "postgresql+asyncpg://…" in refused.value.message
    assert "hunter2" not in refused.value.message
    with pytest.raises(UsageError) as without_port:
        ApiAddress("http://shop:hunter2@host:port/", None)
    assert "hunter2" not in without_port.value.message


async def test_the_end_of_a_wait_comes_also_while_a_question_has_no_answer() -> None:
    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(never_answer, "127.0.0.1", 0) as server:
        app = Detent(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")

        @app.task
        def work() -> None: ...

        with pytest.raises(TimeoutError, match=r"has not finished within 0\.1 s: it is unknown"):
            await work.handle(run_id(RunKey(1, AT))).result(timeout=0.1)
        await app.close()


async def test_a_connection_of_one_call_is_refused(app: Detent) -> None:
    @app.task
    def work() -> None: ...

    with pytest.raises(UsageError, match="connection= is of the whole enqueue"):
        await work.enqueue_many([work.options(connection=object()).call()])


async def test_what_is_known_of_a_run_has_its_result(app: Detent, serve: Serve) -> None:
    @app.task
    def total() -> dict[str, int]:
        return {"total": 7}

    await serve(app)
    handle = await total.enqueue()
    await handle.result(30)
    known: Any = await handle.run()
    assert known.result == {"total": 7}
