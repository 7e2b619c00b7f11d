"""Steps of a handler: a stored one is not repeated, a worker that lost its run stores none."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from detent import Detent, Run
from detent.domain.effects import MAX_STEP_BYTES
from detent.domain.job import PythonTarget
from detent.domain.masking import Mask
from detent.domain.run import Call
from detent.errors import OwnershipLost
from detent.jobs import JobOperations
from detent.sdk.testing.ledger import TestLedger
from detent.sdk.testing.records import HeldInTest
from detent.store import Store
from detent.store.dead_letters import DeadLetterFilter
from detent.targets.run import HandlerRun
from detent.targets.steps import BadStep, _json_type
from tests.sdk.test_python_target import due_job, outcome, serve
from tests.support.factories import LONG_AGO
from tests.support.waiting import until

__all__ = ["serve"]


@dataclass
class Charge:
    id: int
    day: date


async def stored(look: Any) -> list[tuple[str, int, str | None]]:
    rows = await look.fetch("SELECT name, attempt, result FROM run_steps ORDER BY number")
    return [(row["name"], row["attempt"], row["result"]) for row in rows]


@pytest.fixture(autouse=True)
async def no_purge_by_the_node(look: Any) -> None:
    """The first pass of the node's own purge would delete steps between the end of a run and a look at them."""
    await look.execute("INSERT INTO turns (task, node, until, done_at) VALUES ('effects', 1, now(), now())")


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
async def test_a_retry_gets_the_stored_results_and_calls_only_what_is_left(look: Any, serve: Any, kind: str) -> None:
    app = Detent()
    calls: list[str] = []

    def charge(amount: int, *, currency: str) -> Charge:
        calls.append(f"charge {amount} {currency}")
        return Charge(amount, date(2026, 1, 2))

    async def mail(charged: Charge) -> None:
        calls.append("mail")
        if len(calls) < 3:
            raise RuntimeError("no answer")

    def post(charged: Charge) -> None:
        asyncio.run(mail(charged))

    @app.function("coroutine")
    async def orders(run: Run) -> str:
        charged = await run.step("charge", charge, 7, currency="EUR")
        await run.step("mail", mail, charged)
        return charged.day.isoformat()

    @app.function("plain")
    def plain_orders(run: Run) -> str:
        charged = run.step_sync("charge", charge, 7, currency="EUR")
        run.step_sync("mail", post, charged)
        return charged.day.isoformat()

    job = await due_job(look, kind, max_retries=2, retry_base_seconds=0)
    await serve(app)
    ended = await outcome(look, job)
    assert (ended["status"], ended["attempt"], ended["result"]) == (1, 2, '"2026-01-02"')
    assert calls == ["charge 7 EUR", "mail", "mail"]
    assert await stored(look) == [("charge", 1, '{"id":7,"day":"2026-01-02"}'), ("mail", 2, None)]


async def test_all_attempts_get_what_was_stored_whatever_the_function_returned(look: Any, serve: Any) -> None:
    app = Detent()
    seen: list[Any] = []

    def pair():  # type: ignore[no-untyped-def] # a function that does not say what it returns
        return (1, "a")

    @app.function("orders")
    async def orders(run: Run) -> None:
        seen.append(await run.step("pair", pair))
        if run.attempt == 1:
            raise RuntimeError

    job = await due_job(look, "orders", max_retries=1, retry_base_seconds=0)
    await serve(app)
    assert (await outcome(look, job))["status"] == 1
    assert seen == [[1, "a"], [1, "a"]]


async def refusal(look: Any, serve: Any, app: Detent) -> str:
    """The error of the only attempt of the app's function."""
    job = await due_job(look, *app.functions, max_retries=3, retry_base_seconds=0)
    await serve(app)
    assert (await outcome(look, job))["status"] == 2
    return str(await look.fetchval("SELECT error FROM attempts WHERE job = $1 ORDER BY token DESC LIMIT 1", job))


async def test_a_name_that_is_used_twice_in_an_attempt_is_refused_with_advice(look: Any, serve: Any) -> None:
    app = Detent()

    @app.function("orders")
    async def orders(run: Run) -> None:
        await run.step("charge", dict)
        await run.step("charge", dict)

    assert "give each step a name of its own, such as 'charge#2'" in await refusal(look, serve, app)


async def test_a_step_that_failed_may_be_tried_again_in_the_same_attempt(look: Any, serve: Any) -> None:
    app = Detent()
    tries: list[int] = []

    def flaky() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise TimeoutError
        return len(tries)

    @app.function("orders")
    def orders(run: Run) -> int:
        try:
            return run.step_sync("flaky", flaky)
        except TimeoutError:
            return run.step_sync("flaky", flaky)

    job = await due_job(look, "orders")
    await serve(app)
    assert (await outcome(look, job))["result"] == "2"


async def test_a_result_that_cannot_be_stored_fails_the_run_without_a_retry(look: Any, serve: Any) -> None:
    app = Detent()

    @app.function("orders")
    async def orders(run: Run) -> None:
        await run.step("large", lambda: "x" * MAX_STEP_BYTES)

    assert "The result of step 'large' has 65,538 bytes" in await refusal(look, serve, app)
    assert await stored(look) == []


async def test_a_type_that_has_no_json_form_is_refused_before_the_function_is_called(look: Any, serve: Any) -> None:
    app = Detent()
    called: list[int] = []

    def connect() -> threading.Thread:
        called.append(1)
        return threading.Thread()

    @app.function("orders")
    async def orders(run: Run) -> None:
        await run.step("connect", connect)

    assert "The result of step 'connect' cannot be stored" in await refusal(look, serve, app)
    assert called == []


async def test_a_worker_that_lost_its_run_stores_no_step(look: Any, serve: Any) -> None:
    app = Detent()
    inside, go_on = threading.Event(), threading.Event()
    refused: list[BaseException] = []

    def slow() -> int:
        inside.set()
        go_on.wait(30)
        return 1

    @app.function("orders")
    def orders(run: Run) -> None:
        try:
            run.step_sync("slow", slow)
        except OwnershipLost as error:
            refused.append(error)
            raise

    job = await due_job(look, "orders")
    await serve(app)
    await until(inside.is_set)
    await look.execute("UPDATE live_runs SET token = token + 1 WHERE job = $1", job)
    go_on.set()
    await until(lambda: refused)
    assert await stored(look) == []


async def test_steps_may_run_at_the_same_time(look: Any, serve: Any) -> None:
    app = Detent()

    async def square(number: int) -> int:
        await asyncio.sleep(0)
        return number * number

    @app.function("orders")
    async def orders(run: Run) -> int:
        return sum(await asyncio.gather(*(run.step(f"square#{n}", square, n) for n in range(20))))

    job = await due_job(look, "orders")
    await serve(app)
    assert (await outcome(look, job))["result"] == "2470"
    assert len(await stored(look)) == 20


async def test_the_steps_of_a_run_end_with_it_unless_it_is_dead(look: Any, serve: Any, store: Store) -> None:
    app = Detent()
    calls: list[str] = []

    @app.function("fails")
    async def fails(run: Run) -> None:
        await run.step("first", lambda: calls.append("first"))
        if len(calls) < 2:
            calls.append("failed")
            raise RuntimeError("no")

    @app.function("works")
    async def works(run: Run) -> None:
        await run.step("only", dict)

    failing, working = await due_job(look, "fails"), await due_job(look, "works")
    await serve(app)
    dead = await outcome(look, failing)
    await outcome(look, working)
    assert [gone async for gone in store.effect_ledger.purge_steps()] == [1]
    assert [name for name, *_ in await stored(look)] == ["first"]
    assert dead["status"] == 2
    await JobOperations(store).dead_letters.redrive(DeadLetterFilter())
    await until(lambda: look.fetchval("SELECT status = 1 FROM run_history WHERE job = $1", failing), 30, "its success")
    assert calls == ["first", "failed"]
    assert [gone async for gone in store.effect_ledger.purge_steps()] == [1]
    assert await stored(look) == []


async def test_a_result_with_the_value_of_a_secret_is_not_stored() -> None:
    ledger = TestLedger()
    secret = "correct horse battery"
    call = Call(
        "1", "job", "01890000-0000-7000-8000-000000000001", LONG_AGO, 1, "key", 1, None, PythonTarget("f"), 9,
        mask=Mask([secret]),
    )  # fmt: skip
    run = HandlerRun(call, HeldInTest(None, None, ledger))
    with pytest.raises(BadStep, match="contains the value of a secret") as refused:
        await run.step("login", lambda: {"token": f"Bearer {secret}"})
    assert secret not in str(refused.value)
    assert ledger.steps(run.id) == {}
    assert await run.step("other", lambda: {"token": "none"}) == {"token": "none"}


def test_the_function_of_a_step_may_be_a_mock() -> None:
    assert _json_type(Mock()) is None
    assert _json_type(partial(Mock(), 1)) is None
