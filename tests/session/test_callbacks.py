"""Targets that answer 202 and report the end of their runs later: from the call to the one end of the run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest
from aiohttp import web

from detent.domain.sensitive import MASKED
from detent.domain.target_access import PRIVATE_TOO
from detent.jobs import JobOperations
from detent.node.session import Session
from detent.runtime import failpoints
from detent.store import Store
from detent.targets.http import HttpTargetRunner
from detent.targets.policies import FixedPolicy
from detent.telemetry.metrics import Metrics
from detent.worker.pull import sweep
from tests.api.api_client import ApiClient
from tests.api.api_server import Readiness, serving
from tests.support.callback_target import AcceptedCall, CallbackTarget
from tests.support.sessions import StartSession
from tests.support.waiting import until

Begin = Callable[..., Awaitable[Any]]


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[ApiClient]:
    async with serving(database_url, Readiness({"database": True})) as client:
        yield client


@pytest.fixture
async def target() -> AsyncIterator[CallbackTarget]:
    async with CallbackTarget() as made:
        yield made


@pytest.fixture
async def begin(start: StartSession, api: ApiClient) -> AsyncIterator[Begin]:
    """Start a node whose targets reach the API."""
    opened: list[tuple[Session, HttpTargetRunner]] = []

    async def node(**settings: Any) -> Any:
        runner = HttpTargetRunner(FixedPolicy(PRIVATE_TOO), max_result_bytes=1000)
        session = await start(runner, **{"public_url": api.url, **settings})
        opened.append((session, runner))
        return session

    yield node
    for session, runner in opened:
        if not session.closed:
            await session.close(0)
        await runner.close()


async def triggered(api: ApiClient, target: CallbackTarget, *, lease: float = 60, **fields: Any) -> str:
    """The id of a run that was asked for now."""
    given = {"retry_base_seconds": 0, "retry_max_seconds": 0, **fields}
    job = await api.create(target=target.target(lease_seconds=lease), **given)
    return str((await api.good("POST", f"/api/v1/jobs/{job['id']}/trigger", 202))["id"])


async def shown(api: ApiClient, run: str) -> Any:
    return await api.good("GET", f"/api/v1/runs/{run}")


async def waiting(api: ApiClient, run: str) -> Any:
    async def held() -> Any:
        found = await shown(api, run)
        return found if (found["node"] or "").startswith("callback:") else None

    return await until(held)


async def ended(api: ApiClient, run: str) -> Any:
    async def over() -> Any:
        found = await shown(api, run)
        return found if found["finished_at"] else None

    return await until(over)


async def swept(store: Store) -> int:
    return await sweep(store, JobOperations(store), Metrics())


async def let_lease_end(look: Any) -> None:
    await look.execute("UPDATE pull_leases SET lease_until = now() - interval '1 second'")


async def test_a_run_whose_target_answers_202_ends_with_its_callback(
    api: ApiClient, target: CallbackTarget, begin: Begin, look: Any
) -> None:
    session = await begin()
    run = await triggered(api, target)
    found = await waiting(api, run)
    call = await target.first_call()
    assert (found["status"], found["finished_at"]) == ("running", None)
    assert call.url == f"{api.url}/api/v1/runs/{run}"
    assert session.worker.load()["running"] == 0
    assert await look.fetchval("SELECT count(*) FROM live_runs WHERE owner < 0") == 1
    answer = await target.succeeds(call, {"rows": 3})
    assert answer == (200, {"id": run, "status": "succeeded", "retry_in_seconds": None})
    over = await ended(api, run)
    assert (over["status"], over["result"], over["attempt"]) == ("succeeded", {"rows": 3}, 1)
    assert await look.fetchval("SELECT count(*) FROM pull_leases") == 0


async def test_a_run_that_waits_for_its_callback_says_so(api: ApiClient, target: CallbackTarget, begin: Begin) -> None:
    await begin()
    run = await triggered(api, target, timeout_seconds=600)
    found = await waiting(api, run)
    assert found["waiting_for"].startswith("Its target accepted it ")
    assert "callback" in found["waiting_for"]
    story = await api.good("GET", f"/api/v1/runs/{run}/explain")
    assert story["sentences"][-1].startswith("Its target accepted it ")


async def test_a_failed_callback_is_retried_as_the_job_says(
    api: ApiClient, target: CallbackTarget, begin: Begin
) -> None:
    await begin()
    run = await triggered(api, target, max_retries=1)
    await waiting(api, run)
    assert (await target.fails(target.calls[0], "no paper")).document["status"] == "retrying"
    await until(lambda: len(target.calls) == 2)
    await waiting(api, run)
    assert (await target.fails(target.calls[1], "no ink")).document["status"] == "dead"
    over = await ended(api, run)
    assert [(each["outcome"], each["error"]) for each in over["attempts"]] == [
        ("failed", "no paper"),
        ("failed", "no ink"),
    ]


async def test_another_answer_than_202_ends_the_run_at_once(
    api: ApiClient, target: CallbackTarget, begin: Begin
) -> None:
    async def respond(_call: AcceptedCall) -> web.Response:
        return web.Response(text="done")

    target.respond = respond
    await begin()
    over = await ended(api, await triggered(api, target))
    assert (over["status"], over["result"]) == ("succeeded", {"status": 200, "body": "done"})
    assert (await target.succeeds(target.calls[0])).status == 200
    assert (await target.fails(target.calls[0])).status == 409


async def test_without_callback_202_is_a_success(api: ApiClient, target: CallbackTarget, begin: Begin) -> None:
    await begin()
    job = await api.create(target={"type": "http", "url": target.url})
    run = (await api.good("POST", f"/api/v1/jobs/{job['id']}/trigger", 202))["id"]
    over = await ended(api, run)
    assert (over["status"], over["result"]["status"]) == ("succeeded", 202)
    assert target.calls[0].credential == ""


async def test_a_callback_that_overtakes_its_answer_counts(
    api: ApiClient, target: CallbackTarget, begin: Begin, look: Any
) -> None:
    metrics = Metrics()

    async def respond(call: AcceptedCall) -> web.Response:
        assert (await target.report(call, "heartbeat")).status == 200
        assert (await target.succeeds(call, "early")).status == 200
        return web.Response(status=202)

    target.respond = respond
    session = await begin(metrics=metrics)
    over = await ended(api, await triggered(api, target))
    assert (over["status"], over["result"]) == ("succeeded", "early")
    await until(lambda: not session.worker.busy)
    assert metrics.refused_settles == 0
    assert await look.fetchval("SELECT count(*) FROM attempts") == 0
    assert await look.fetchval("SELECT count(*) FROM pull_leases") == 0


async def test_a_heartbeat_that_overtakes_its_answer_promises_no_longer_lease_than_the_answer_begins(
    api: ApiClient, target: CallbackTarget, begin: Begin, look: Any
) -> None:
    promised: list[str] = []

    async def respond(call: AcceptedCall) -> web.Response:
        beat = await target.report(call, "heartbeat", lease_seconds=3600)
        promised.append(beat.document["lease_until"])
        return web.Response(status=202)

    target.respond = respond
    await begin()
    await waiting(api, await triggered(api, target, timeout_seconds=7200))
    lasts = await look.fetchval("SELECT lease_until FROM pull_leases")
    assert datetime.fromisoformat(promised[0]) <= lasts


async def test_a_failure_that_overtakes_its_answer_is_retried(
    api: ApiClient, target: CallbackTarget, begin: Begin, look: Any
) -> None:
    async def respond(call: AcceptedCall) -> web.Response:
        verb = target.fails if call.attempt == 1 else target.succeeds
        assert (await verb(call)).status == 200
        return web.Response(status=202)

    target.respond = respond
    await begin()
    over = await ended(api, await triggered(api, target))
    assert (over["status"], [each["outcome"] for each in over["attempts"]]) == ("succeeded", ["failed", "succeeded"])
    assert len(target.calls) == 2


async def test_a_target_without_heartbeats_loses_its_attempt_and_its_report_is_stale(
    api: ApiClient, target: CallbackTarget, begin: Begin, look: Any, store: Store
) -> None:
    await begin(roles=("worker",))
    run = await triggered(api, target, max_retries=1)
    await waiting(api, run)
    await let_lease_end(look)
    assert await swept(store) == 1
    await until(lambda: len(target.calls) == 2)
    late = await target.succeeds(target.calls[0])
    assert (late.status, late.document["type"]) == (409, "/problems/stale")
    await waiting(api, run)
    await let_lease_end(look)
    assert await swept(store) == 1
    over = await ended(api, run)
    assert (over["status"], over["reason"]) == ("dead", "retries exhausted")
    assert [(each["outcome"], each["attempt"]) for each in over["attempts"]] == [("stale", 1), ("lost", 2)]
    first, second = (each["error"] for each in over["attempts"])
    assert "neither a heartbeat nor the end" in second
    assert first == f"{second} refused: succeeded"


async def test_a_run_that_cannot_be_ended_does_not_keep_others_open(
    api: ApiClient, target: CallbackTarget, begin: Begin, look: Any, store: Store
) -> None:
    await begin(roles=("worker",))
    bad, good = [await triggered(api, target, name=name, max_retries=0) for name in ("first", "second")]
    for run in (bad, good):
        await waiting(api, run)
    await look.execute(  # history has the first one already
        "INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt,"
        " status) SELECT job, scheduled_at, token - 1, 1, now(), now(), serial, revision, attempt, 1 FROM live_runs"
        " WHERE job = (SELECT min(job) FROM live_runs)"
    )
    await let_lease_end(look)
    assert await swept(store) == 1
    assert (await ended(api, good))["status"] == "dead"
    assert await look.fetchval("SELECT count(*) FROM pull_leases") == 1


async def test_a_heartbeat_extends_the_lease_by_that_of_the_job_and_says_whether_to_stop(
    api: ApiClient, target: CallbackTarget, begin: Begin, look: Any, store: Store
) -> None:
    await begin(roles=("worker",))
    run = await triggered(api, target, lease=120)
    await waiting(api, run)
    await let_lease_end(look)
    call = target.calls[0]
    assert (await target.report(call, "heartbeat")).document["cancel"] is False
    assert await look.fetchval("SELECT lease_until > now() + interval '110 seconds' FROM pull_leases")
    assert await swept(store) == 0
    await api.good("POST", f"/api/v1/runs/{run}/cancel", 202)
    assert (await target.report(call, "heartbeat")).document["cancel"] is True
    assert (await target.fails(call, "stopped")).document["status"] == "cancelled"
    assert (await ended(api, run))["status"] == "cancelled"


async def test_the_timeout_of_the_job_ends_the_wait_whatever_the_heartbeats(
    api: ApiClient, target: CallbackTarget, begin: Begin, look: Any, store: Store
) -> None:
    await begin(roles=("worker",))
    run = await triggered(api, target, max_retries=0, timeout_seconds=30)
    await waiting(api, run)
    await look.execute("UPDATE pull_leases SET ends_at = now() - interval '1 ms', lease_until = now() - interval '1 s'")
    assert (await target.report(target.calls[0], "heartbeat")).status == 409
    assert await swept(store) == 1
    over = await ended(api, run)
    assert (over["status"], over["attempts"][0]["outcome"]) == ("dead", "timeout")
    assert (await target.succeeds(target.calls[0])).status == 409


async def test_a_run_of_at_most_once_is_not_called_again(
    api: ApiClient, target: CallbackTarget, begin: Begin, look: Any, store: Store
) -> None:
    await begin(roles=("worker",))
    run = await triggered(api, target, delivery="at_most_once")
    await waiting(api, run)
    await let_lease_end(look)
    await swept(store)
    over = await ended(api, run)
    assert (over["status"], len(target.calls)) == ("dead", 1)


async def test_a_repeated_report_gets_the_answer_of_the_first(
    api: ApiClient, target: CallbackTarget, begin: Begin
) -> None:
    await begin()
    await waiting(api, await triggered(api, target))
    call = target.calls[0]
    assert await target.succeeds(call) == await target.succeeds(call)
    assert (await target.fails(call)).status == 409


async def test_a_node_that_leaves_leaves_accepted_runs_alone(
    api: ApiClient, target: CallbackTarget, begin: Begin, look: Any
) -> None:
    first = await begin()
    run = await triggered(api, target)
    await waiting(api, run)
    await begin()
    await first.close(5)
    assert (await waiting(api, run))["attempts"] == []
    assert (await target.succeeds(target.calls[0])).status == 200
    assert (await ended(api, run))["attempt"] == 1


async def test_a_run_that_waits_for_its_callback_occupies_its_lane(
    api: ApiClient, target: CallbackTarget, begin: Begin
) -> None:
    await begin()
    job = await api.create(target=target.target(), concurrent_policy="QUEUE", schedule="every 1s")
    first = await until(lambda: target.calls and target.calls[0])
    await waiting(api, first.run_id)
    runs = await until(lambda: queued(api, job["id"]))
    assert len(target.calls) == 1
    await target.succeeds(first)
    await until(lambda: len(target.calls) == 2)
    assert target.calls[1].run_id in runs


async def queued(api: ApiClient, job: str) -> list[str]:
    page = await api.good("GET", f"/api/v1/jobs/{job}/runs?status=pending")
    return [each["id"] for each in page["items"]]


async def test_on_demand_runs_with_a_concurrency_key_wait_for_the_callback(
    api: ApiClient, target: CallbackTarget, begin: Begin
) -> None:
    await begin()
    fields = {"concurrency_key": "{{payload.customer}}", "concurrency_limit": 1}
    task = await api.create(schedule=None, target=target.target(), **fields)
    path = f"/api/v1/tasks/{task['id']}/runs"
    for number in range(2):
        await api.good("POST", path, 201, json={"payload": {"customer": "a", "number": number}})
    call = await target.first_call()
    await waiting(api, call.run_id)
    assert len(target.calls) == 1
    assert (await target.succeeds(call)).status == 200
    await until(lambda: len(target.calls) == 2)
    assert target.calls[1].run_id != call.run_id


async def test_the_callback_of_a_tick_is_explained(api: ApiClient, target: CallbackTarget, begin: Begin) -> None:
    await begin()
    job = await api.create(target=target.target(), schedule="every 1s", concurrent_policy="SKIP")
    call = await target.first_call()
    found = await waiting(api, call.run_id)
    story = await api.good("GET", f"/api/v1/jobs/{job['id']}/explain?at={found['scheduled_at']}")
    assert any("waits for its callback" in sentence for sentence in story["sentences"]), story
    assert (await target.succeeds(call)).status == 200


async def test_a_credential_that_a_target_sends_back_is_masked(
    api: ApiClient, target: CallbackTarget, begin: Begin
) -> None:
    async def respond(call: AcceptedCall) -> web.Response:
        return web.Response(text=f"got {call.credential}")

    target.respond = respond
    await begin()
    over = await ended(api, await triggered(api, target))
    assert over["result"]["body"] == f"got {MASKED}"


async def test_the_reply_to_an_acceptance_may_be_lost(
    api: ApiClient, target: CallbackTarget, begin: Begin, look: Any
) -> None:
    metrics = Metrics()
    session = await begin(metrics=metrics)
    failpoints.arm("W7=drop")
    try:
        run = await triggered(api, target)
        await waiting(api, run)
        await until(lambda: not session.worker.busy)
    finally:
        failpoints.arm("")
    assert metrics.refused_settles == 0
    assert (await target.succeeds(target.calls[0])).status == 200
    assert (await ended(api, run))["attempt"] == 1
    assert await look.fetchval("SELECT count(*) FROM attempts") == 0


async def test_a_server_for_others_warns_that_it_knows_no_public_address(database_url: str) -> None:
    readiness = Readiness({"database": True})
    target = {"type": "http", "url": "https://example.com/", "callback": {}}
    async with serving(database_url, readiness, host="0.0.0.0") as api:
        job = await api.create(target=target)
        assert any("DETENT_PUBLIC_URL is not set" in warning for warning in job["warnings"])
    async with serving(database_url, readiness, host="0.0.0.0", public_url="https://detent.example.com") as api:
        job = await api.create(target=target)
        assert not any("DETENT_PUBLIC_URL" in warning for warning in job["warnings"])


async def test_without_an_address_the_attempt_fails_and_says_what_to_set(
    api: ApiClient, target: CallbackTarget, begin: Begin
) -> None:
    await begin(public_url=None)
    over = await ended(api, await triggered(api, target, max_retries=0))
    assert (over["status"], target.calls) == ("dead", [])
    assert "Set DETENT_PUBLIC_URL" in over["error"]
