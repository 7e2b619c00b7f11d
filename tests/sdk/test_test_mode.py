"""Test mode: an app's schedules and functions under a clock that the test moves."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from detent import Detent, NotRetryable, Retry, Run
from detent.domain.job import ConcurrentPolicy
from detent.errors import NotFound, UsageError
from detent.sdk.testing import mode


def ticks(runs: list[Any]) -> list[str]:
    return [f"{run.scheduled_at:%m-%d %H:%M}" for run in runs]


def test_what_becomes_due_runs_in_the_order_of_its_ticks() -> None:
    app, called = Detent(), []

    @app.job(every="2h")
    def slow() -> None:
        called.append("slow")

    @app.job(cron="0 * * * *", priority=6)
    def fast(run: Run) -> int:
        called.append("fast")
        return run.scheduled_at.hour

    with app.test(start="2026-05-05T00:00:00Z") as t:
        assert t.runs == []
        ran = t.advance(hours=3)
        assert t.advance(minutes=59) == []
        assert t.now == datetime(2026, 5, 5, 3, 59, tzinfo=UTC)
    assert called == ["fast", "fast", "slow", "fast"], "of two at one instant the higher priority is first"
    assert [run.result for run in t.runs_of("fast")] == [1, 2, 3]
    assert ran == t.runs
    assert {run.status for run in t.runs} == {"succeeded"}
    assert (t.next_tick("slow"), t.next_tick("fast")) == (datetime(2026, 5, 5, 4, tzinfo=UTC),) * 2


def test_a_job_in_the_dialect_of_another_program_ticks_as_there() -> None:
    app = Detent()

    @app.job(cron="0 14 ? * 2#1", dialect="quartz")
    def first_monday() -> None:
        pass

    @app.job(cron="cron(0 10 ? * 6L *)", dialect="aws")
    def last_friday() -> None:
        pass

    with app.test(start="2026-11-18T00:00:00Z") as t:
        assert t.next_tick("first-monday") == datetime(2026, 12, 7, 14, tzinfo=UTC)
        assert t.next_tick("last-friday") == datetime(2026, 11, 27, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("start", "fields", "expected"),
    [
        ("2026-03-28T23:00:00Z", {"dst_gap": "run"}, ["03-29 01:00", "03-30 00:30"]),
        ("2026-03-28T23:00:00Z", {"dst_gap": "skip"}, ["03-30 00:30"]),
        ("2026-10-24T23:00:00Z", {"dst_overlap": "first"}, ["10-25 00:30", "10-26 01:30"]),
        ("2026-10-24T23:00:00Z", {"dst_overlap": "both"}, ["10-25 00:30", "10-25 01:30", "10-26 01:30"]),
    ],
)
def test_nights_of_a_time_change_tick_as_the_job_says(start: str, fields: dict[str, Any], expected: list[str]) -> None:
    app = Detent()

    @app.job(cron="30 2 * * *", timezone="Europe/Berlin", **fields)
    def nightly() -> None:
        pass

    with app.test(start=start) as t:
        t.advance(hours=47)
    assert ticks(t.runs) == expected


def test_a_function_that_raises_is_tried_again_after_the_longest_wait_its_job_allows() -> None:
    app, keys = Detent(), []

    @app.job(every="1d", max_retries=3, retry_base_seconds=10, retry_max_seconds=30)
    async def flaky(run: Run) -> str:
        keys.append((run.idempotency_key, run.attempt, run.token & 0xFFFF))
        await asyncio.sleep(0)
        if run.attempt < 4:
            raise ConnectionError("away")
        return "done"

    with app.test() as t:
        t.advance(days=1)
        (run,) = t.runs
        assert (run.status, run.attempt, run.outcome) == ("retrying", 1, "failed")
        assert (run.error, type(run.attempts[0].exception)) == ("ConnectionError: away", ConnectionError)
        assert t.advance(minutes=2) == [], "a retry is not a new run"
    assert [(attempt.at - run.scheduled_at).total_seconds() for attempt in run.attempts] == [0, 10, 30, 60]
    assert (run.status, run.outcome, run.result, run.error) == ("succeeded", "succeeded", "done", None)
    assert keys == [(run.idempotency_key, number, number) for number in (1, 2, 3, 4)]


def test_a_run_without_retries_left_is_dead() -> None:
    app = Detent()

    @app.job(at="2026-01-01T01:00:00Z", max_retries=1, retry_base_seconds=1)
    def fails() -> None:
        raise ValueError

    @app.job(every="1h", max_retries=5, delivery="at_most_once")
    def once() -> None:
        raise ValueError

    with app.test() as t:
        t.advance(hours=1, seconds=30)
    assert [(run.job, run.status, run.attempt, run.error) for run in t.runs] == [
        ("fails", "dead", 2, "ValueError"),
        ("once", "dead", 1, "ValueError"),
    ]
    assert t.next_tick("fails") is None


@pytest.mark.parametrize(
    ("policy", "statuses"),
    [
        ({}, ["retrying", "skipped", "skipped"]),
        ({"concurrent_policy": "ALLOW", "max_concurrent": 2}, ["retrying", "retrying", "skipped"]),
    ],
)
def test_a_run_that_waits_for_its_next_try_holds_its_lane(policy: dict[str, Any], statuses: list[str]) -> None:
    app = Detent()

    @app.job(every="1m", retry_backoff="fixed", retry_base_seconds=600, **policy)
    def fails() -> None:
        raise ValueError

    with app.test() as t:
        t.advance(minutes=3)
    assert [run.status for run in t.runs] == statuses
    assert t.runs[-1].reason == "overlap"
    assert (t.runs[-1].attempt, t.runs[-1].outcome, t.runs[-1].error) == (0, None, None)


def test_bounds_end_a_schedule() -> None:
    app = Detent()

    @app.job(every="1h", max_runs=2)
    def twice() -> None:
        pass

    @app.job(every="1h", ends_at=datetime(2026, 1, 1, 3, tzinfo=UTC))
    def until_three() -> None:
        pass

    with app.test() as t:
        t.advance(days=1)
    assert len(t.runs_of("twice")) == 2
    assert len(t.runs_of("until-three")) == 3
    assert t.next_tick("twice") is t.next_tick("until-three") is None


def test_a_trigger_runs_beside_the_schedule_under_a_key_of_its_own() -> None:
    app = Detent()

    @app.job(every="1h", payload={"n": [1, 2]})
    def job(run: Run) -> Any:
        run.heartbeat()
        return run.payload

    with app.test(start=datetime(2026, 1, 1, tzinfo=UTC)) as t:
        run = t.trigger("job")
        t.advance(timedelta(hours=1))
        again, once_more = t.trigger("job"), t.trigger("job")
    assert (run.result, run.payload, run.scheduled_at) == (
        {"n": [1, 2]},
        {"n": [1, 2]},
        datetime(2026, 1, 1, tzinfo=UTC),
    )
    keys = [each.idempotency_key for each in t.runs]
    assert len(set(keys)) == len({each.id for each in t.runs}) == 4
    assert keys[2:] == [each.idempotency_key for each in (again, once_more)]
    assert keys[0].endswith(f":{run.id}")
    assert keys[1].endswith(f":{int(datetime(2026, 1, 1, 1, tzinfo=UTC).timestamp())}")


def test_a_trigger_of_a_busy_job_waits_its_turn() -> None:
    app = Detent()
    failing = [True]

    @app.job(every="1d", retry_base_seconds=60)
    def job() -> None:
        if failing:
            raise ValueError

    with app.test() as t:
        first, second, third = t.trigger("job"), t.trigger("job"), t.trigger("job")
        assert [run.status for run in (first, second, third)] == ["retrying", "pending", "pending"]
        failing.clear()
        t.advance(minutes=5)
        assert [run.status for run in (first, second, third)] == ["succeeded"] * 3


def test_any_number_of_runs_of_a_task_may_be_unfinished() -> None:
    app = Detent()

    @app.task(retry_base_seconds=60)
    def task() -> None:
        raise ValueError

    with app.test() as t:
        assert [t.trigger("task").status for _ in range(3)] == ["retrying"] * 3


def test_the_same_test_gives_the_same_ids_and_keys() -> None:
    def rehearse() -> list[tuple[str, str]]:
        app = Detent("same")

        @app.job(every="1h")
        def job() -> None:
            pass

        with app.test() as t:
            t.advance(hours=5)
        return [(run.id, run.idempotency_key) for run in t.runs]

    assert rehearse() == rehearse()


async def test_a_test_that_is_a_coroutine_moves_the_clock_on_its_own_loop() -> None:
    app, loops = Detent(), []

    @app.job(every="1h")
    async def job() -> None:
        loops.append(asyncio.get_running_loop())

    with app.test() as t:
        with pytest.raises(UsageError, match="advance_async"):
            t.advance(hours=1)
        await t.advance_async(hours=2)
        run = await t.trigger_async("job")
    assert loops == [asyncio.get_running_loop()] * 3
    assert run.status == "succeeded"


async def test_a_transaction_is_one_of_the_connection_that_the_test_gives(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute("CREATE TABLE public.payments (key text PRIMARY KEY)")
    app = Detent()

    @app.job(every="1h", max_retries=0)
    async def pays(run: Run) -> str:
        async with run.transaction() as mine:
            await mine.execute("INSERT INTO public.payments VALUES ($1)", run.idempotency_key)
            if run.scheduled_at.hour == 2:
                raise ValueError("no")
        return "not kept: the run committed itself"

    with app.test(connection=connection) as t:
        await t.advance_async(hours=3)
    assert [(run.status, run.result) for run in t.runs] == [("succeeded", None), ("dead", None), ("succeeded", None)]
    paid = await connection.fetch("SELECT key FROM public.payments ORDER BY key")
    assert [row["key"] for row in paid] == [t.runs[0].idempotency_key, t.runs[2].idempotency_key]
    await connection.close()


def test_without_a_connection_a_transaction_says_what_to_give() -> None:
    app = Detent()

    @app.job(every="1h", max_retries=0)
    async def pays(run: Run) -> None:
        async with run.transaction():
            pass

    with app.test() as t:
        assert "app.test(connection=connection)" in str(t.trigger("pays").error)


def test_jobs_that_call_something_else_are_left_out() -> None:
    app = Detent()
    app.jobs.append({"name": "hook", "schedule": "every 1h", "target": {"type": "http", "url": "http://127.0.0.1/"}})
    with app.test() as t:
        assert t.advance(hours=3) == []
        with pytest.raises(NotFound, match="no job 'hook'"):
            t.trigger("hook")


def test_what_cannot_be_is_refused_in_a_sentence() -> None:
    app = Detent()

    @app.job(every="1s")
    def moves() -> None:
        t.advance(hours=1)

    with pytest.raises(UsageError, match="without a zone"):
        app.test(start="2026-01-01T00:00:00")
    with pytest.raises(UsageError, match="give a time such as"):
        app.test(start="yesterday")
    with app.test() as t:
        with pytest.raises(UsageError, match="goes forward only"):
            t.advance(seconds=-1)
        with pytest.raises(UsageError, match="give one of the two"):
            t.advance(hours=1, to="2026-02-01T00:00:00Z")
        with pytest.raises(NotFound, match="no job 'other'"):
            t.next_tick("other")
        assert "cannot move the clock while it runs" in str(t.trigger("moves").error)


def test_a_clock_sent_too_far_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mode, "MAX_ATTEMPTS", 1000)
    app = Detent()

    @app.job(every="1s")
    def often() -> None:
        pass

    with app.test() as t, pytest.raises(UsageError, match="advance in smaller steps"):
        t.advance(days=1)


def test_a_job_that_cannot_be_is_named() -> None:
    app = Detent()

    @app.job(cron="61 * * * *")
    def wrong() -> None:
        pass

    with pytest.raises(UsageError, match="Job 'wrong' of the app: "):
        app.test()


def failing_at_first(policy: ConcurrentPolicy, tries: int) -> tuple[Detent, list[datetime]]:
    """A job every minute whose first run fails so often, with two and a half minutes between its tries."""
    app, called = Detent(), list[datetime]()

    @app.job(
        every="1m", concurrent_policy=policy, retry_backoff="fixed", retry_base_seconds=150, max_retries=tries, name="a"
    )
    def work(run: Run) -> None:
        called.append(run.scheduled_at)
        if run.scheduled_at == called[0] and run.attempt <= tries:
            raise RuntimeError("not yet")

    return app, called


def test_under_queue_one_tick_waits_for_the_run_that_is_tried_again() -> None:
    app, called = failing_at_first("QUEUE", 1)
    with app.test(start="2026-01-01T00:00:00Z") as t:
        t.advance(minutes=4)
    first = called[0]
    assert [run.status for run in t.runs] == ["succeeded", "succeeded", "skipped", "succeeded"]
    assert [(at - first) // timedelta(minutes=1) for at in called] == [0, 0, 1, 3]


def test_under_replace_a_tick_takes_the_place_of_the_run_that_is_tried_again() -> None:
    app, called = failing_at_first("REPLACE", 1)
    with app.test(start="2026-01-01T00:00:00Z") as t:
        t.advance(minutes=4)
    assert [(run.status, run.reason) for run in t.runs] == [("cancelled", "replaced")] + [("succeeded", None)] * 3
    assert len(called) == 4


def test_what_cannot_be_helped_is_not_tried_again() -> None:
    app = Detent()

    @app.job(every="1h", no_retry_on=["LookupError"])
    def lost() -> None:
        raise KeyError("gone")

    @app.job(every="1h")
    def over() -> None:
        raise NotRetryable("over")

    @app.job(every="1h", max_retries=1, retry_base_seconds=1)
    def later() -> None:
        raise Retry("busy", after=600)

    with app.test(start="2026-01-01T00:00:00Z") as t:
        t.advance(minutes=75)
    ends = {run.job: (run.status, run.reason, run.attempt) for run in t.runs}
    assert set(ends.values()) == {("dead", "not retryable", 1), ("dead", "retries exhausted", 2)}
    (waited,) = [run for run in t.runs if run.attempt == 2]
    assert waited.attempts[1].at - waited.attempts[0].at == timedelta(minutes=10)


class Abandoned(BaseException):
    pass


class Unprintable(Exception):  # noqa: N818 - raised by a handler
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (StopIteration("the end"), "StopIteration: the end"),
        (SystemExit(3), "SystemExit: 3"),
        (GeneratorExit(), "GeneratorExit"),
        (Abandoned("half way"), "Abandoned: half way"),
        (asyncio.CancelledError(), "The handler cancelled itself."),
        (Unprintable(), "Unprintable: its text cannot be read: ValueError: no words"),
        (Retry("busy", after="60"), "Retry: busy (after is '60': "),  # type: ignore[arg-type]
    ],
    ids=["end", "exit", "closed", "base", "cancelled", "unprintable", "later"],
)
def test_whatever_a_function_raises_is_a_failed_attempt_as_on_a_worker(
    error: BaseException, text: str, asynchronous: bool
) -> None:
    app = Detent()

    def fails() -> None:
        raise error

    async def fails_later() -> None:
        raise error

    app.job(name="fails", every="1h", max_retries=0)(fails_later if asynchronous else fails)
    if asynchronous and isinstance(error, StopIteration):  # Python itself makes it another
        text = "RuntimeError: coroutine raised StopIteration"
    with app.test(start="2026-01-01T00:00:00Z") as t:
        (run,) = t.advance(hours=1)
    assert (run.status, run.attempt) == ("dead", 1)
    assert (run.error or "").startswith(text)


def test_what_is_meant_for_the_test_itself_is_no_failed_attempt() -> None:
    app = Detent()

    @app.job(name="fails", every="1h")
    def fails() -> None:
        pytest.fail("not to be called")

    @app.job(name="interrupted", every="2h")
    async def interrupted() -> None:
        raise KeyboardInterrupt

    with app.test(start="2026-01-01T00:00:00Z") as t, pytest.raises(pytest.fail.Exception):
        t.advance(hours=1)
    with app.test(start="2026-01-01T00:00:00Z") as t, pytest.raises(KeyboardInterrupt):
        t.trigger("interrupted")


def test_a_wait_that_a_function_asks_for_is_no_longer_than_the_job_allows() -> None:
    app = Detent()

    @app.job(every="1h", max_retries=1, retry_base_seconds=1, retry_max_seconds=60)
    def later() -> None:
        raise Retry("busy", after=timedelta(minutes=30))

    with app.test(start="2026-01-01T00:00:00Z") as t:
        t.advance(minutes=75)
    first, second = t.runs[0].attempts
    assert second.at - first.at == timedelta(minutes=1)


def test_a_task_runs_when_it_is_triggered_and_never_by_itself() -> None:
    app = Detent()

    @app.task(max_retries=0, priority=-100)
    def send_mail(run: Run) -> str:
        return f"{run.window_start}"

    assert app.jobs[0]["name"] == "send-mail" and "schedule" not in app.jobs[0]
    with app.test() as t:
        assert t.next_tick("send-mail") is None
        assert t.advance(days=400) == []
        assert (t.trigger("send-mail").status, t.runs_of("send-mail")[0].result) == ("succeeded", "None")


def test_a_job_in_code_that_has_no_schedule_is_pointed_at_tasks() -> None:
    with pytest.raises(UsageError, match=r"0 were given. For a job without a schedule.*use @app.task\(\)"):
        Detent().job(name="forgotten")


def test_steps_and_effects_work_in_memory_by_the_clock_of_the_test() -> None:
    app = Detent()
    calls: list[str] = []

    def charge() -> int:
        calls.append("charge")
        return 7

    @app.job(every="1h", max_retries=1, retry_base_seconds=0)
    def pays(run: Run) -> list[Any]:
        charged = run.step_sync("charge", charge)
        first = run.once("invoice", keep_for=5400).do_sync(calls.append, "invoice")
        if run.attempt == 1:
            raise RuntimeError
        return [charged, first]

    with app.test() as t:
        t.advance(hours=1)
        assert [run.result for run in t.runs] == [[7, False]]
        assert calls == ["charge", "invoice"]
        t.advance(hours=1)
        assert calls == ["charge", "invoice", "charge"]  # another run, and the effect is remembered
        t.advance(hours=1)
        assert calls == ["charge", "invoice", "charge", "charge", "invoice"]


async def test_the_connection_of_an_effect_is_the_one_that_the_test_gives(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute("CREATE TABLE public.payments (key text PRIMARY KEY)")
    app = Detent()

    @app.job(every="1h", max_retries=1, retry_base_seconds=0)
    async def pays(run: Run) -> int:
        async with run.once("invoice-42") as effect:
            if effect.first:
                await effect.connection.execute("INSERT INTO public.payments VALUES ('42')")
                if run.attempt == 1:
                    raise ValueError("no")
        return await run.step("count", connection.fetchval, "SELECT count(*) FROM public.payments")

    with app.test(connection=connection) as t:
        await t.advance_async(hours=2)
    assert [run.result for run in t.runs] == [1, 1]
    await connection.close()


def test_an_effect_elsewhere_needs_no_connection_and_one_here_says_what_to_give() -> None:
    app = Detent()

    @app.job(every="1h", max_retries=0)
    async def pays(run: Run) -> None:
        await run.once("mail").do(asyncio.sleep, 0)
        async with run.once("invoice") as effect:
            await effect.connection.execute("SELECT 1")

    with app.test() as t:
        assert "app.test(connection=connection)" in str(t.trigger("pays").error)
