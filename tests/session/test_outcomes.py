"""A target that was called is called once for each attempt that is on record, whatever it raises or returns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from detent import Retry
from detent.domain.identity import MANUAL
from detent.domain.run import Call, Failed, Outcome, Succeeded
from detent.errors import Unavailable
from detent.node.session import Session
from detent.store import Store
from detent.worker import attempt as attempt_module
from detent.worker.execute import execute
from tests.support import factories
from tests.support.waiting import until

TOO_DEEP = "[" * 2000 + "]" * 2000
HTTP = {"type": "http", "url": "http://127.0.0.1:9/"}
DEAD = 2


class Abandoned(BaseException):
    pass


class Unprintable(Exception):  # noqa: N818 - raised by a handler
    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__


class Pretender(Exception):  # noqa: N818 - as above
    @property  # type: ignore[misc]  # that is what is tested
    def __class__(self) -> Any:
        raise ValueError("no class")


class Forgetful(Retry):
    def __init__(self) -> None:
        Exception.__init__(self, "busy")


TEXT: Any = "60"
RAISED: list[tuple[BaseException, str]] = [
    (Retry("busy", after=timedelta(seconds=60)), "Retry: busy"),
    (Retry("busy", after=TEXT), "Retry: busy (after is '60': give a number of seconds or a timedelta)"),
    (Retry("busy"), "Retry: busy"),
    (Retry("busy", after=float("nan")), "Retry: busy (after is nan: "),
    (Forgetful(), "Forgetful: busy (after cannot be read: AttributeError: "),
    (Unprintable(), "Unprintable: its text cannot be read: ValueError: no words"),
    (Pretender("odd"), "Pretender: odd"),
    (ValueError("a \ud800 and a \0"), "ValueError: a \ufffd and a \ufffd"),
    (Abandoned("half way"), "Abandoned: half way"),
    (GeneratorExit("closed"), "GeneratorExit: closed"),
    (SystemExit(3), "SystemExit: 3"),
    (KeyboardInterrupt("from a handler"), "KeyboardInterrupt: from a handler"),
    (asyncio.CancelledError("by itself"), "The handler cancelled itself: by itself"),
    (TimeoutError("too slow"), "TimeoutError: too slow"),
    (ExceptionGroup("two", [ValueError("a"), KeyError("b")]), "ExceptionGroup: two (2 sub-exceptions): ValueError: a"),
]
RETURNED = [
    (None, "The outcome of this attempt could not be recorded: TypeError: the target's runner returned nothing"),
    ("fine", "The outcome of this attempt could not be recorded: AssertionError: "),
    (Failed("broken \ud800\0", retry_after=float("nan")), "broken \ufffd\ufffd"),
    (Failed(5), "The outcome of this attempt could not be recorded: "),  # type: ignore[arg-type]
    (Failed("broken", kinds=None), "The outcome of this attempt could not be recorded: "),  # type: ignore[arg-type]
]


def counting(answer: Callable[[], Outcome]) -> tuple[list[str], Callable[[Call], Any]]:
    calls: list[str] = []

    async def target(call: Call) -> Outcome:
        calls.append(call.run_id)
        return answer()

    return calls, target


def raising(error: BaseException) -> Callable[[], Outcome]:
    def answer() -> Outcome:
        raise error

    return answer


async def soon(look: Any) -> Any:
    return await look.fetchval("SELECT date_trunc('milliseconds', now() + interval '300 milliseconds')")


async def due(look: Any, **fields: Any) -> int:
    document = {"schedule": "every 1h", "target": HTTP, **fields}
    once = fields.get("delivery") == "at_most_once"
    return await factories.add_job(look, await soon(look), definition=document, once=once)


async def ended(look: Any, job: int) -> Any:
    return await until(lambda: look.fetchrow("SELECT * FROM run_history WHERE job = $1", job), what="the run's end")


async def attempts(look: Any, job: int) -> list[tuple[int, str, str]]:
    rows = await look.fetch("SELECT attempt, outcome, error FROM attempts WHERE job = $1 ORDER BY attempt", job)
    return [tuple(row) for row in rows]


async def settled_idle(session: Session) -> None:
    await until(lambda: not session.worker._held and session.worker.slots.running == 0, what="an idle worker")


@pytest.mark.parametrize(("error", "text"), RAISED, ids=[text[:30] for _, text in RAISED])
async def test_whatever_a_handler_raises_it_is_called_once_and_its_error_is_on_record(
    look: Any, start: Any, error: BaseException, text: str
) -> None:
    calls, target = counting(raising(error))
    job = await due(look, delivery="at_most_once", max_retries=1000)
    session = await start(target)
    run = await ended(look, job)
    await settled_idle(session)
    (attempt,) = await attempts(look, job)
    assert (run["status"], len(calls), attempt[:2]) == (DEAD, 1, (1, "failed"))
    assert attempt[2].startswith(text)


@pytest.mark.parametrize(("outcome", "text"), RETURNED, ids=["nothing", "text", "nan", "number", "kinds"])
async def test_an_outcome_that_cannot_be_written_as_it_is_is_a_failed_attempt(
    look: Any, start: Any, outcome: Any, text: str
) -> None:
    calls, target = counting(lambda: outcome)
    job = await due(look, delivery="at_most_once")
    session = await start(target)
    run = await ended(look, job)
    await settled_idle(session)
    (attempt,) = await attempts(look, job)
    assert (run["status"], len(calls)) == (DEAD, 1)
    assert attempt[2].startswith(text)


async def test_failed_attempts_are_counted_and_end(look: Any, start: Any) -> None:
    calls, target = counting(raising(Abandoned("half way")))
    job = await due(look, max_retries=2, retry_base_seconds=0)
    await start(target)
    assert (await ended(look, job))["status"] == DEAD
    assert [number for number, _, _ in await attempts(look, job)] == [1, 2, 3]
    assert len(calls) == 3


async def test_a_result_that_postgresql_refuses_is_kept_with_replacements(look: Any, start: Any) -> None:
    calls, target = counting(lambda: Succeeded('"\ud800 \0 end"'))
    job = await due(look)
    await start(target)
    run = await ended(look, job)
    assert (run["status"], run["result"], len(calls)) == (1, '"\ufffd \ufffd end"', 1)


async def test_a_run_that_cannot_be_made_into_a_call_is_a_failed_attempt(look: Any, start: Any) -> None:
    calls, target = counting(Succeeded)
    job = await due(look, delivery="at_most_once", idempotency_key_template="{{nothing}}")
    session = await start(target)
    run = await ended(look, job)
    await settled_idle(session)
    assert (run["status"], run["reason"], calls) == (DEAD, "not retryable", [])
    (attempt,) = await attempts(look, job)
    assert attempt[2] == "The call of this run could not be prepared: KeyError: 'nothing'"


async def triggered(look: Any, store: Store, session: Session, payload: str) -> int:
    """A run with a payload of its own, in the hands of a worker that may call it only once."""
    job = await factories.add_job(look, None, once=True)
    tick = await soon(look)
    await look.execute("INSERT INTO run_payloads (job, scheduled_at, payload) VALUES ($1, $2, $3)", job, tick, payload)
    await factories.add_live_run(look, job, tick, serial=MANUAL, once=True)
    session.worker.loop.wake()
    return job


async def test_a_run_whose_own_payload_cannot_be_read_is_a_failed_attempt(look: Any, store: Store, start: Any) -> None:
    calls, target = counting(Succeeded)
    session = await start(target)
    job = await triggered(look, store, session, TOO_DEEP)
    assert (await ended(look, job))["status"] == DEAD
    ((_, _, error),) = await attempts(look, job)
    assert error.startswith("This attempt failed before its target was called: ")
    assert calls == []


async def test_a_run_is_given_back_only_while_the_database_does_not_answer(
    look: Any, store: Store, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, target = counting(Succeeded)
    session = await start(target)
    refused: list[Any] = []
    read = store.live_runs.own_payload

    async def away(key: Any, **_where: Any) -> str | None:
        if len(refused) < 3:
            refused.append(key)
            raise Unavailable("The database has no free connection.")
        return await read(key)

    monkeypatch.setattr(session._store.live_runs, "own_payload", away)
    job = await triggered(look, store, session, "7")
    assert (await ended(look, job))["status"] == 1
    assert (len(refused), len(calls)) == (3, 1)


async def test_a_worker_whose_task_ends_beneath_a_call_has_failed_the_attempt(
    look: Any, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that is raised above the call may make the run look as if it had not begun."""
    calls, target = counting(Succeeded)

    async def breaks(call: Call, runners: Any) -> Outcome:
        await execute(call, runners)
        raise RuntimeError("a mistake of our own")

    monkeypatch.setattr(attempt_module, "execute", breaks)
    job = await due(look, delivery="at_most_once")
    session = await start(target)
    assert (await ended(look, job))["status"] == DEAD
    await settled_idle(session)
    ((_, _, error),) = await attempts(look, job)
    assert (error, len(calls)) == ("RuntimeError: a mistake of our own", 1)


async def test_a_cancellation_from_nowhere_is_a_failed_attempt(
    look: Any, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, target = counting(Succeeded)

    async def cancelled(call: Call, runners: Any) -> Outcome:
        await execute(call, runners)
        raise asyncio.CancelledError

    monkeypatch.setattr(attempt_module, "execute", cancelled)
    job = await due(look, delivery="at_most_once")
    session = await start(target)
    assert (await ended(look, job))["status"] == DEAD
    await settled_idle(session)
    ((_, _, error),) = await attempts(look, job)
    assert (error, len(calls)) == ("The worker was interrupted while it called the target.", 1)


async def test_a_definition_that_cannot_be_read_holds_up_no_other(look: Any, start: Any) -> None:
    """Reading may raise more than a decoder's own errors: one that is nested too deeply is a RecursionError."""
    calls, target = counting(Succeeded)
    bad, good = await due(look, payload="deep"), await due(look)
    change = "UPDATE jobs SET definition = jsonb_set(definition, '{payload}', $2::text::jsonb) WHERE job = $1"
    await look.execute(change, bad, TOO_DEEP)
    await start(target)
    assert (await ended(look, good))["status"] == 1
    assert (await ended(look, bad))["status"] == DEAD
    assert len(calls) == 1


async def test_definitions_that_fail_to_be_read_for_any_reason_end_only_their_own_runs(
    look: Any, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs whose definitions were being read when something raised stayed in hand for ever, uncalled."""
    calls, target = counting(Succeeded)
    jobs = [await factories.add_job(look, None) for _ in range(4)]
    session = await start(target)
    live = session._store.live_runs
    read = live.definitions

    async def fails_with_bad(wanted: Any) -> Any:
        if any(job == jobs[1] for job, _ in wanted):
            raise ValueError("a mistake of our own")
        return await read(wanted)

    monkeypatch.setattr(live, "definitions", fails_with_bad)
    async with look.transaction():
        for job in jobs:
            await factories.add_live_run(look, job)
    session.worker.loop.wake()
    assert [(await ended(look, job))["status"] for job in jobs] == [1, DEAD, 1, 1]
    assert len(calls) == 3
