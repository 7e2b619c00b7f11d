"""Tasks sent by detent, executed by real Celery workers that know nothing about it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import amqp
import pytest

from detent.domain.job import CeleryTarget, TargetCredentials
from detent.domain.run import INTERRUPTED, Cancelled, Failed, NotBegun, Succeeded
from detent.domain.target_access import OPERATOR, PUBLIC_ONLY
from detent.targets.breaker import CallPermit, HostBreakers, Unanswered
from detent.targets.called_hosts import HostKey
from detent.targets.celery.order import task_id_of
from detent.targets.celery.runner import CeleryTargetRunner
from detent.targets.policies import FixedPolicy
from detent.telemetry.metrics import Metrics
from tests.support.celery.stage import RabbitMq, Shop, broker
from tests.support.refusing_amqp import RefusingBroker
from tests.support.relay import relay_to
from tests.support.servers import Server
from tests.support.waiting import until
from tests.targets.target_helpers import call_of, failed, succeeded


def new_call(target: CeleryTarget, payload: Any = None, **changes: Any) -> Any:
    return call_of(target, payload, **({"job_id": str(uuid4())} | changes))


@pytest.fixture
def target(redis_server: Server, running_shop: Shop) -> CeleryTarget:
    return CeleryTarget("shop.record", broker_url=redis_server.url, queue="shop")


@pytest.fixture
def followed(target: CeleryTarget, redis_server: Server) -> CeleryTarget:
    return CeleryTarget("shop.record", broker_url=redis_server.url, result_backend=redis_server.url, queue="shop")


def executions(shop: Shop, task_id: str) -> list[dict[str, Any]]:
    return [each for each in shop.executed() if each["id"] == task_id]


async def test_without_a_result_backend_the_run_ends_as_sent(
    runner: CeleryTargetRunner, target: CeleryTarget, running_shop: Shop
) -> None:
    call = new_call(target, {"week": 46})
    assert succeeded(await runner(call)) == {"task_id": task_id_of(call), "state": "SENT"}
    (seen,) = await until(lambda: executions(running_shop, task_id_of(call)), 20, "the task to be executed")
    assert seen["args"] == [{"week": 46}]
    assert seen["headers"]["Detent-Run-Id"] == call.run_id
    assert seen["headers"]["Detent-Scheduled-At"] == "2026-03-01T06:30:00Z"
    assert seen["headers"]["Idempotency-Key"] == call.idempotency_key
    assert seen["headers"]["traceparent"]


async def test_with_a_result_backend_the_run_ends_when_the_task_ends(
    runner: CeleryTargetRunner, followed: CeleryTarget
) -> None:
    call = new_call(followed, ["positional"])
    answer = succeeded(await runner(call))
    assert answer["state"] == "SUCCESS"
    assert answer["result"] == {"args": ["positional"], "kwargs": {}}


async def test_the_payload_adds_keyword_arguments_to_those_of_the_target(
    runner: CeleryTargetRunner, redis_server: Server, followed: CeleryTarget
) -> None:
    url = redis_server.url
    target = CeleryTarget("shop.record", broker_url=url, result_backend=url, queue="shop", args=[1], kwargs={"a": 1})
    answer = succeeded(await runner(new_call(target, {"b": 2})))
    assert answer["result"] == {"args": [1], "kwargs": {"a": 1, "b": 2}}


async def test_a_task_that_raises_fails_the_run_with_its_exception_and_traceback(
    runner: CeleryTargetRunner, redis_server: Server, running_shop: Shop
) -> None:
    url = redis_server.url
    outcome = failed(
        await runner(new_call(CeleryTarget("shop.fails", broker_url=url, result_backend=url, queue="shop")))
    )
    assert outcome.error == "ConnectionError: the mail server is away"
    assert outcome.retryable
    assert "OSError" in outcome.kinds
    assert outcome.traceback is not None
    assert "shop.py" in outcome.traceback


async def test_a_cancelled_run_revokes_its_task(
    runner: CeleryTargetRunner, redis_server: Server, running_shop: Shop
) -> None:
    url = redis_server.url
    call = new_call(CeleryTarget("shop.slow", broker_url=url, result_backend=url, queue="shop", args=[30]))
    running = asyncio.create_task(runner(call))
    await until(lambda: executions(running_shop, task_id_of(call)), 20, "the task to start")
    running.cancel(INTERRUPTED)  # as a worker does for a timeout or a request
    with pytest.raises(asyncio.CancelledError):
        await running
    again = await until(
        lambda: running_shop.store.get(f"celery-task-meta-{task_id_of(call)}"), 20, "the worker to end the task"
    )
    assert b'"REVOKED"' in again
    assert task_id_of(call) not in running_shop.finished()


async def test_a_task_whose_node_stops_goes_on_and_is_followed_by_the_next_node(
    runner: CeleryTargetRunner, redis_server: Server, running_shop: Shop
) -> None:
    url = redis_server.url
    call = new_call(CeleryTarget("shop.slow", broker_url=url, result_backend=url, queue="shop", args=[2]))
    running = asyncio.create_task(runner(call))
    await until(lambda: executions(running_shop, task_id_of(call)), 20, "the task to start")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    # The worker records no state while the task runs, so it is sent again under the same id.
    rescued = new_call(call.target, job_id=call.job_id, attempt=2, lost=1)
    assert succeeded(await runner(rescued))["result"] == "done"


async def test_a_task_that_raises_a_group_of_exceptions_fails_its_run_and_no_other(
    runner: CeleryTargetRunner, redis_server: Server, followed: CeleryTarget
) -> None:
    url = redis_server.url
    broken = CeleryTarget("shop.fails_twice", broker_url=url, result_backend=url, queue="shop")
    async with asyncio.timeout(30):
        outcome, other = await asyncio.gather(runner(new_call(broken)), runner(new_call(followed, [1])))
    assert "both servers are away" in failed(outcome).error
    assert "ExceptionGroup" in failed(outcome).kinds
    assert succeeded(other)["state"] == "SUCCESS"


async def test_a_state_that_cannot_be_read_fails_one_run_only(
    runner: CeleryTargetRunner, redis_server: Server, followed: CeleryTarget, running_shop: Shop
) -> None:
    call = new_call(followed, [1])
    meta = '{"status": "SUCCESS", "result": ' + "[" * 900 + "]" * 900 + "}"
    running_shop.store.set(f"celery-task-meta-{task_id_of(call)}", meta)
    async with asyncio.timeout(30):
        outcome, other = await asyncio.gather(runner(call), runner(new_call(followed, [2])))
    assert isinstance(outcome, Failed | Succeeded)
    assert succeeded(other)["state"] == "SUCCESS"


async def test_a_run_whose_node_was_lost_follows_the_task_that_was_sent(
    runner: CeleryTargetRunner, followed: CeleryTarget, running_shop: Shop
) -> None:
    call = new_call(followed, [1])
    first = succeeded(await runner(call))
    rescued = new_call(followed, [1], job_id=call.job_id, attempt=2, lost=1)
    assert succeeded(await runner(rescued)) == first
    assert len(executions(running_shop, first["task_id"])) == 1


async def test_a_retry_is_another_task(runner: CeleryTargetRunner, redis_server: Server, running_shop: Shop) -> None:
    url = redis_server.url
    call = new_call(CeleryTarget("shop.fails", broker_url=url, result_backend=url, queue="shop"))
    failed(await runner(call))
    again = new_call(call.target, job_id=call.job_id, attempt=2)
    failed(await runner(again))
    assert len(executions(running_shop, task_id_of(call))) == 1
    assert len(executions(running_shop, task_id_of(again))) == 1


async def test_a_task_that_expires_ends_its_run(
    runner: CeleryTargetRunner, redis_server: Server, running_shop: Shop
) -> None:
    url = redis_server.url
    running_shop.store.delete("unread")
    target = CeleryTarget("shop.record", broker_url=url, result_backend=url, queue="shop", expires=0.001)
    outcome = await runner(new_call(target))
    # A worker that is quick enough executes it in time.
    assert isinstance(outcome, Succeeded) or outcome == Failed(
        "The task expired before a worker took it.", retryable=False
    )


async def test_an_app_of_the_operator_is_used_with_its_own_settings(
    runner: CeleryTargetRunner, running_shop: Shop, importable: None
) -> None:
    answer = succeeded(await runner(new_call(CeleryTarget("shop.record", app="shop:app"), {"n": 1})))
    assert answer["result"] == {"args": [], "kwargs": {"n": 1}}
    outcome = failed(await runner(new_call(CeleryTarget("shop.fails", app="shop:app"))))
    assert "OSError" in outcome.kinds
    sent = succeeded(await runner(new_call(CeleryTarget("shop.record", app="shop:app", ignore_result=True))))
    assert sent["state"] == "SENT"


async def test_a_task_of_another_module_of_the_app_keeps_the_options_of_its_decorator(
    runner: CeleryTargetRunner, running_shop: Shop, importable: None
) -> None:
    """It ignores its result, so the run cannot wait for one."""
    assert succeeded(await runner(new_call(CeleryTarget("shop.purge", app="shop:app"))))["state"] == "SENT"


async def test_an_app_is_open_to_its_tenant_only(runner: CeleryTargetRunner, importable: None) -> None:
    call = new_call(CeleryTarget("shop.record", app="shop:app"), tenant=2)
    assert failed(await runner(call)).error == "This worker does not have the Celery app 'shop:app' for this tenant."
    other = new_call(CeleryTarget("shop.record", app="os:system"))
    assert "does not have the Celery app 'os:system'" in failed(await runner(other)).error


async def test_an_address_that_the_tenant_may_not_reach_is_refused(
    target: CeleryTarget, followed: CeleryTarget
) -> None:
    runner = CeleryTargetRunner(FixedPolicy(PUBLIC_ONLY))
    try:
        for each in (target, followed):
            outcome = failed(await runner(new_call(each)))
            assert not outcome.retryable
            assert "detent tenant allow default 127.0.0.1:" in outcome.error
    finally:
        await runner.close()


async def test_a_broker_that_is_away_fails_the_attempt_with_its_own_words(runner: CeleryTargetRunner) -> None:
    outcome = failed(await runner(new_call(CeleryTarget("shop.record", broker_url="redis://127.0.0.1:1"))))
    assert outcome.retryable
    assert outcome.error.startswith("The task was not sent to redis://127.0.0.1:1: ")
    assert "refused" in outcome.error


def refused_target(target: CeleryTarget, **fields: Any) -> CeleryTarget:
    """With credentials as a worker fills them in."""
    credentials = TargetCredentials(username="ada", password="wrong-password")
    return CeleryTarget("shop.record", broker_url=target.broker_url, queue="shop", credentials=credentials, **fields)


async def test_wrong_credentials_fail_the_attempt_with_the_words_of_the_broker_and_are_not_retried(
    runner: CeleryTargetRunner, target: CeleryTarget
) -> None:
    outcome = failed(await runner(new_call(refused_target(target))))
    assert not outcome.retryable
    assert "WRONGPASS" in outcome.error or "invalid username-password" in outcome.error
    assert "wrong-password" not in outcome.error


async def test_wrong_credentials_of_a_result_backend_are_not_retried(
    runner: CeleryTargetRunner, target: CeleryTarget
) -> None:
    credentials = TargetCredentials(username="ada", password="wrong-password")
    named = CeleryTarget(
        "shop.record", broker_url=target.broker_url, queue="shop", result_backend=target.broker_url,
        result_credentials=credentials,
    )  # fmt: skip
    outcome = failed(await runner(new_call(named)))
    assert not outcome.retryable
    assert "wrong-password" not in outcome.error


async def test_rabbitmq_refuses_wrong_credentials_in_its_words(runner: CeleryTargetRunner) -> None:
    with broker(RabbitMq) as rabbitmq:
        outcome = failed(await runner(new_call(refused_target(CeleryTarget("t", broker_url=rabbitmq.url)))))
        assert not outcome.retryable
        assert "ACCESS_REFUSED" in outcome.error
        absent = CeleryTarget("shop.record", broker_url=f"{rabbitmq.url}nowhere")
        assert not failed(await runner(new_call(absent))).retryable
        sent = await runner(new_call(CeleryTarget("shop.record", broker_url=rabbitmq.url)))
        assert succeeded(sent)["state"] == "SENT"


@pytest.mark.parametrize(
    ("words", "retried"),
    [
        ("NOT_ALLOWED - access to vhost '/' refused for user 'ada': connection limit (2) is reached", True),
        ("NOT_ALLOWED - vhost nowhere not found", False),
    ],
)
async def test_a_broker_with_too_many_connections_is_asked_again(
    runner: CeleryTargetRunner, words: str, retried: bool
) -> None:
    refusing = RefusingBroker(530, words)
    async with refusing.listening():
        outcome = failed(await runner(new_call(CeleryTarget("shop.record", broker_url=refusing.url))))
    assert outcome.retryable is retried
    assert words in outcome.error


async def test_a_queue_that_refuses_a_task_fails_no_other_run(runner: CeleryTargetRunner) -> None:
    with broker(RabbitMq) as rabbitmq, amqp.Connection(f"127.0.0.1:{rabbitmq.port}") as other:
        other.channel().queue_declare("locked", exclusive=True)
        queues = ["locked", None, None] * 3
        targets = [CeleryTarget("shop.record", broker_url=rabbitmq.url, queue=queue) for queue in queues]
        outcomes = await asyncio.gather(*(runner(new_call(target)) for target in targets))
    for queue, outcome in zip(queues, outcomes, strict=True):
        if queue is None:
            succeeded(outcome)
        else:
            assert "RESOURCE_LOCKED" in failed(outcome).error


async def test_of_a_batch_whose_connection_breaks_only_the_first_run_may_have_been_sent(
    redis_server: Server, running_shop: Shop
) -> None:
    runner = CeleryTargetRunner(FixedPolicy(OPERATOR), breakers=HostBreakers(1, 30.0, Metrics()))
    async with relay_to(redis_server.port) as relay:
        target = CeleryTarget("shop.record", broker_url=f"redis://127.0.0.1:{relay.port}", queue="shop")
        succeeded(await runner(new_call(target)))
    outcomes = await asyncio.gather(*(runner(new_call(target)) for _ in range(5)))
    await runner.close()
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds[0] is Failed
    assert NotBegun in kinds and set(kinds) == {Failed, NotBegun}


async def test_an_app_whose_import_exits_fails_the_runs_that_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app_that_exits.py").write_text("raise SystemExit(2)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    runner = CeleryTargetRunner(FixedPolicy(OPERATOR), [("app_that_exits:app", 1)])
    for _ in range(2):
        outcome = failed(await runner(new_call(CeleryTarget("shop.record", app="app_that_exits:app"))))
        assert "SystemExit: 2" in outcome.error
    await runner.close()


async def test_many_runs_with_wrong_credentials_do_not_flood_the_broker(
    runner: CeleryTargetRunner, target: CeleryTarget, running_shop: Shop
) -> None:
    running_shop.store.acl_log_reset()
    for _ in range(100):
        assert not failed(await runner(new_call(refused_target(target)))).retryable
    refused = sum(int(entry["count"]) for entry in running_shop.store.acl_log() if entry["reason"] == "auth")
    assert 1 <= refused < 20


async def test_a_broker_that_is_away_uses_up_so_many_attempts_and_no_more() -> None:
    metrics = Metrics()
    runner = CeleryTargetRunner(FixedPolicy(OPERATOR), breakers=HostBreakers(3, 30.0, metrics))
    target = CeleryTarget("shop.record", broker_url="redis://127.0.0.1:1")
    found = [await runner(new_call(target)) for _ in range(10)]
    await runner.close()
    assert [isinstance(each, Failed) for each in found] == [True] * 3 + [False] * 7
    waiting = found[-1]
    assert isinstance(waiting, NotBegun) and waiting.retry_after > 0
    assert "127.0.0.1:1 does not answer" in waiting.why
    assert metrics.circuits_open == 1


async def test_a_circuit_closes_when_the_broker_has_the_task_and_not_when_the_task_ends(
    redis_server: Server, running_shop: Shop
) -> None:
    metrics = Metrics()
    breakers = HostBreakers(1, 0.0, metrics)
    runner = CeleryTargetRunner(FixedPolicy(OPERATOR), breakers=breakers)
    url = redis_server.url
    slow = CeleryTarget("shop.slow", broker_url=url, result_backend=url, queue="shop", args=[30])
    host = HostKey(1, "127.0.0.1", redis_server.port)
    breakers.failed(host, CallPermit.CALL, Unanswered(Failed("away"), sent=False))
    assert metrics.circuits_open == 1
    running = asyncio.create_task(runner(new_call(slow)))
    await until(lambda: metrics.circuits_open == 0, 20, "the circuit to close")
    assert not running.done()
    running.cancel(INTERRUPTED)
    await asyncio.gather(running, return_exceptions=True)
    await runner.close()


async def test_many_tasks_are_sent_over_one_connection(
    runner: CeleryTargetRunner, target: CeleryTarget, running_shop: Shop
) -> None:
    calls = [new_call(target, [number]) for number in range(100)]
    outcomes = await asyncio.gather(*(runner(call) for call in calls))
    assert all(isinstance(outcome, Succeeded) for outcome in outcomes)
    wanted = {task_id_of(call) for call in calls}
    await until(lambda: wanted <= {each["id"] for each in running_shop.executed()}, 30, "all to be executed")
    assert len(runner._links) == 1


async def test_a_payload_that_is_no_arguments_is_refused(runner: CeleryTargetRunner, target: CeleryTarget) -> None:
    outcome = failed(await runner(new_call(target, "text")))
    assert not outcome.retryable
    assert "object with keyword arguments or a list" in outcome.error


async def test_a_task_that_another_program_revokes_cancels_the_run(
    runner: CeleryTargetRunner, redis_server: Server, running_shop: Shop, importable: None
) -> None:
    import shop  # type: ignore[import-not-found]  # from the folder of the project

    url = redis_server.url
    call = new_call(CeleryTarget("shop.slow", broker_url=url, result_backend=url, queue="shop", args=[30]))
    running = asyncio.create_task(runner(call))
    await until(lambda: executions(running_shop, task_id_of(call)), 20, "the task to start")
    await asyncio.to_thread(shop.app.control.revoke, task_id_of(call), terminate=True)
    outcome = await running
    assert isinstance(outcome, Cancelled)
    assert "revoked" in outcome.reason
