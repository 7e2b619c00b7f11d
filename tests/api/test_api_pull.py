"""The pull protocol over HTTP: claim, wait, heartbeat, complete, fail; and the answers to a worker that is too late."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import aiohttp
import pytest

from detent.api import pull_waiters
from detent.domain import identity
from detent.errors import Unavailable
from detent.jobs import JobOperations
from detent.store import Store
from detent.store.db import Rejected
from detent.store.pull import Wanted
from detent.telemetry.metrics import Metrics
from detent.worker.pull import sweep
from tests.api.api_client import ApiClient
from tests.api.api_server import Readiness, serving
from tests.support.factories import add_node
from tests.support.waiting import until

FUNCTION = {"type": "python", "function": "send"}
CONTRACT = {
    *("run_id", "job_id", "job", "scheduled_at", "attempt", "token", "idempotency_key", "payload", "target"),
    *("timeout_seconds", "lease_until", "window_start", "window_end"),
}


WATCHED: list[pull_waiters.PullWaiters] = []


class WatchedWaiters(pull_waiters.PullWaiters):
    """The waiters, where the tests can inspect them."""

    def __init__(self, store: Store, max_waiting: int) -> None:
        super().__init__(store, max_waiting)
        WATCHED.append(self)


@pytest.fixture(autouse=True)
def watched_waiters(monkeypatch: pytest.MonkeyPatch) -> None:
    WATCHED.clear()
    monkeypatch.setattr("detent.api.app.PullWaiters", WatchedWaiters)


async def ready(api: ApiClient, count: int = 1, **fields: Any) -> list[str]:
    """The ids of some runs that wait on the queue `mail`."""
    ids = []
    for _ in range(count):
        job = await api.create(**{"queue": "mail", "target": FUNCTION, "payload": {"n": 1}, **fields})
        ids.append((await api.good("POST", f"/api/v1/jobs/{job['id']}/trigger", 202))["id"])
    return ids


async def claim(api: ApiClient, queue: str = "mail", **fields: Any) -> list[Any]:
    body = {"worker": "js-1", **fields}
    runs: list[Any] = (await api.good("POST", f"/api/v1/queues/{queue}/claim", json=body))["runs"]
    return runs


async def claimed(api: ApiClient, **fields: Any) -> Any:
    await ready(api, **fields)
    (run,) = await claim(api)
    return run


async def say(api: ApiClient, run: Any, verb: str, status: int = 200, **body: Any) -> Any:
    path = f"/api/v1/runs/{run['run_id']}/{verb}"
    body = {"token": run["token"], **body}
    ask = api.good if status == 200 else api.problem
    return await ask("POST", path, status, json=body)


async def look_at(api: ApiClient, run: Any) -> Any:
    return await api.good("GET", f"/api/v1/runs/{run['run_id']}")


async def run_out(sql: Any) -> None:
    await sql.execute("UPDATE pull_leases SET lease_until = now() - interval '1 second'")


async def test_a_claimed_run_contains_all_that_a_worker_needs(api: ApiClient) -> None:
    (run_id,) = await ready(api, name="hello", timeout_seconds=120)
    (run,) = await claim(api, lease_seconds=30)
    assert set(run) == CONTRACT
    assert (run["run_id"], run["job"], run["attempt"], run["payload"]) == (run_id, "hello", 1, {"n": 1})
    assert (run["target"], run["timeout_seconds"]) == (FUNCTION, 120)
    assert run["window_end"] == run["scheduled_at"]
    assert run["window_start"] is not None and run["window_start"] < run["window_end"]
    shown = await look_at(api, run)
    assert (shown["status"], shown["token"], shown["node"]) == ("running", run["token"], "pull:js-1")
    assert run["idempotency_key"] == shown["idempotency_key"]
    assert await claim(api) == []


async def test_a_completed_run_has_succeeded_with_its_result(api: ApiClient) -> None:
    run = await claimed(api)
    answer = await say(api, run, "complete", result={"sent": [1, 2], "to": "ü"})
    assert answer == {"id": run["run_id"], "status": "succeeded", "retry_in_seconds": None}
    done = await look_at(api, run)
    assert (done["status"], done["result"], done["node"]) == ("succeeded", {"sent": [1, 2], "to": "ü"}, "pull:js-1")
    assert [attempt["outcome"] for attempt in done["attempts"]] == ["succeeded"]


async def test_a_report_that_is_repeated_is_answered_as_the_first(api: ApiClient) -> None:
    done, failed, given_up = await claimed(api), await claimed(api), await claimed(api)
    first = await say(api, done, "complete", result=1)
    assert await say(api, done, "complete", result=1) == first
    assert (await look_at(api, done))["status"] == "succeeded"
    assert (await say(api, failed, "fail", error="no"))["status"] == "retrying"
    assert (await say(api, failed, "fail", error="no"))["status"] == "retrying"
    for _ in range(2):
        assert (await say(api, given_up, "fail", error="no", retryable=False))["status"] == "dead"
    assert len((await look_at(api, given_up))["attempts"]) == 1


async def test_the_job_says_whether_a_failed_run_is_tried_again(api: ApiClient) -> None:
    run = await claimed(api, max_retries=1, retry_backoff="fixed", retry_base_seconds=0)
    assert (await say(api, run, "fail", error="not yet"))["status"] == "retrying"
    (again,) = await claim(api)
    assert again["attempt"] == 2
    assert again["token"] > run["token"]
    assert again["idempotency_key"] == run["idempotency_key"]
    answer = await say(api, again, "fail", error="still not")
    assert (answer["status"], answer["retry_in_seconds"]) == ("dead", None)
    shown = await look_at(api, run)
    assert (shown["status"], shown["reason"], shown["error"]) == ("dead", "retries exhausted", "still not")
    assert [(each["outcome"], each["error"]) for each in shown["attempts"]] == [
        ("failed", "not yet"),
        ("failed", "still not"),
    ]


async def test_the_names_of_an_error_decide_as_those_of_an_exception_do(api: ApiClient) -> None:
    fields = {"retry_on": ["Busy", "Timeout"], "retry_delays": {"Busy": 7}, "retry_base_seconds": 3000}
    run = await claimed(api, **fields)
    answer = await say(api, run, "fail", error="busy", kinds=["TooBusy", "Busy"])
    assert (answer["status"], answer["retry_in_seconds"]) == ("retrying", 7)
    other = await claimed(api, **fields)
    answer = await say(api, other, "fail", error="wrong", kinds=["Wrong"])
    assert (answer["status"], (await look_at(api, other))["reason"]) == ("dead", "not retryable")


async def test_a_failed_run_waits_at_least_as_long_as_the_worker_asks(api: ApiClient, sql: Any) -> None:
    run = await claimed(api, retry_base_seconds=0)
    answer = await say(api, run, "fail", error="busy", retry_after=3000)
    assert answer == {"id": run["run_id"], "status": "retrying", "retry_in_seconds": 3000}
    assert await sql.fetchval("SELECT not_before > now() + interval '2900 s' FROM live_runs")


async def test_a_worker_asks_for_no_longer_a_wait_than_the_job_allows(api: ApiClient) -> None:
    run = await claimed(api, retry_base_seconds=0, retry_max_seconds=60)
    assert (await say(api, run, "fail", error="busy", retry_after=3000))["retry_in_seconds"] == 60


async def test_a_heartbeat_extends_the_lease_and_reports_a_cancel(api: ApiClient) -> None:
    run = await claimed(api, timeout_seconds=3600)
    lease = await say(api, run, "heartbeat", lease_seconds=600)
    assert lease["lease_until"] > run["lease_until"]
    assert lease["cancel"] is False
    await api.good("POST", f"/api/v1/runs/{run['run_id']}/cancel", 202)
    assert (await say(api, run, "heartbeat"))["cancel"] is True
    assert (await say(api, run, "fail", error="stopped"))["status"] == "cancelled"
    assert (await look_at(api, run))["status"] == "cancelled"


async def test_a_completion_under_an_old_token_is_refused_and_kept_as_stale(api: ApiClient, sql: Any) -> None:
    run = await claimed(api)
    await run_out(sql)
    assert await sweep(api.store, JobOperations(api.store), Metrics()) == 1
    (again,) = await claim(api, worker="js-2")
    assert again["token"] > run["token"]
    for verb, fields in (("heartbeat", {}), ("complete", {"result": "late"}), ("fail", {"error": "late"})):
        problem = await say(api, run, verb, 409, **fields)
        assert problem["type"] == "/problems/stale"
    shown = await look_at(api, run)
    assert (shown["status"], shown["token"]) == ("running", again["token"])
    assert [(each["outcome"], each["token"]) for each in shown["attempts"]] == [("stale", run["token"])]
    await say(api, again, "complete", result="right")
    await say(api, run, "complete", 409, result="very late")
    done = await look_at(api, run)
    assert (done["status"], done["result"], done["node"]) == ("succeeded", "right", "pull:js-2")


async def test_a_run_that_failed_cannot_be_completed_under_the_same_token(api: ApiClient) -> None:
    run = await claimed(api)
    await say(api, run, "fail", error="no")
    problem = await say(api, run, "complete", 409)
    assert problem["type"] == "/problems/stale"
    shown = await look_at(api, run)
    assert (shown["status"], [each["outcome"] for each in shown["attempts"]]) == ("retrying", ["failed"])


async def test_a_run_over_its_time_limit_ends_although_its_worker_beats(api: ApiClient, sql: Any) -> None:
    run = await claimed(api, timeout_seconds=5, max_retries=0)
    await say(api, run, "heartbeat", lease_seconds=3600)
    await sql.execute("UPDATE pull_leases SET ends_at = now(), lease_until = now()")
    assert await sweep(api.store, JobOperations(api.store), Metrics()) == 1
    shown = await look_at(api, run)
    assert (shown["status"], shown["error"]) == ("dead", "No answer within 5 s.")
    assert [each["outcome"] for each in shown["attempts"]] == ["timeout"]
    await say(api, run, "heartbeat", 409)
    await say(api, run, "complete", 409)
    assert "refused: succeeded" in (await look_at(api, run))["attempts"][0]["error"]


async def test_a_timeout_is_tried_again_as_the_job_says(api: ApiClient, sql: Any) -> None:
    run = await claimed(api, timeout_seconds=5, retry_base_seconds=0)
    await sql.execute("UPDATE pull_leases SET ends_at = now(), lease_until = now()")
    assert await sweep(api.store, JobOperations(api.store), Metrics()) == 1
    (again,) = await claim(api)
    assert (again["attempt"], again["run_id"]) == (2, run["run_id"])


async def test_targets_of_other_kinds_are_pulled_only_when_asked_for(api: ApiClient) -> None:
    http = {"type": "http", "url": "http://127.0.0.1:9/"}
    runs = {
        (await ready(api, target=target))[0]: name
        for name, target in (
            ("send", FUNCTION),
            ("other", {"type": "python", "function": "other"}),
            ("apart", {"type": "python", "function": "send", "isolate": "process"}),
            ("other apart", {"type": "python", "function": "other", "isolate": "process"}),
            ("http", http),
            ("shell", {"type": "shell", "command": "true"}),
        )
    }

    async def take(**fields: Any) -> set[str]:
        return {runs[run["run_id"]] for run in await claim(api, limit=100, **fields)}

    assert await take(functions=["send", "unknown"]) == {"send", "apart"}
    assert await take() == {"other", "other apart"}
    assert await take(targets=["shell"]) == {"shell"}
    assert await take(targets=["http", "python"]) == {"http"}


async def test_a_worker_claims_exactly_the_runs_that_it_names(api: ApiClient) -> None:
    first, second, third = await ready(api, 3)
    (elsewhere,) = await ready(api, queue="other")
    runs = await claim(api, runs=[third, first, first, elsewhere])
    assert {run["run_id"] for run in runs} == {first, third}
    assert await claim(api, runs=[first, third]) == []
    assert await claim(api, runs=[second], targets=["http"]) == []
    (run,) = await claim(api)
    assert run["run_id"] == second
    assert (await api.good("POST", f"/api/v1/runs/{third}/complete", json={"token": runs[0]["token"]}))["status"]


async def test_a_named_run_under_a_reached_limit_is_not_claimed(api: ApiClient) -> None:
    first, second = await ready(api, 2)
    await api.good("PUT", "/api/v1/queues/mail", json={"max_concurrent": 1})
    assert len(await claim(api, runs=[first, second])) == 1
    assert await claim(api, runs=[first, second]) == []


async def test_a_waiting_worker_is_served_when_a_run_is_triggered(api: ApiClient) -> None:
    waiting = asyncio.create_task(claim(api, wait_seconds=30))
    await standing(1)
    (run_id,) = await ready(api)
    (run,) = await asyncio.wait_for(waiting, 20)
    assert run["run_id"] == run_id


async def test_a_waiting_worker_is_served_by_polling_when_no_notification_comes(
    api: ApiClient, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_waiters, "POLL_EVERY", 0.1)
    monkeypatch.setattr(WatchedWaiters, "wake", lambda self: None)
    waiting = asyncio.create_task(claim(api, wait_seconds=30))
    await standing(1)
    await ready(api)
    assert len(await asyncio.wait_for(waiting, 20)) == 1


async def test_a_wait_ends_with_nothing(api: ApiClient) -> None:
    assert await claim(api, wait_seconds=0.05) == []


async def test_those_who_wait_are_served_one_after_another_and_no_run_twice(api: ApiClient, sql: Any) -> None:
    waiting = [asyncio.create_task(claim(api, worker=f"w{n}", wait_seconds=30)) for n in range(20)]
    await standing(20)
    ids = await ready(api, 20)
    runs = [run for batch in await asyncio.wait_for(asyncio.gather(*waiting), 30) for run in batch]
    assert sorted(run["run_id"] for run in runs) == sorted(ids)


async def test_many_who_wait_hold_no_connection_to_the_database(api: ApiClient, sql: Any) -> None:
    async def connections() -> int:
        count: int = await sql.fetchval("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return count

    first = asyncio.create_task(claim(api, wait_seconds=30))
    await standing(1)
    await until(lambda: listening(sql))
    before = await connections()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        many = ApiClient(api.url, session, api.store)
        waiting = [asyncio.create_task(claim(many, wait_seconds=30)) for _ in range(200)]
        await standing(201)
        assert await connections() - before <= 3, "the pool may have grown, and no more"
        await ready(api, 3)
        await until(lambda: sum(task.done() for task in (first, *waiting)) == 3, 20)
        for task in (first, *waiting):
            task.cancel()
        await asyncio.gather(first, *waiting, return_exceptions=True)


async def test_a_worker_that_hangs_up_takes_no_run_with_it(api: ApiClient, sql: Any) -> None:
    gone = asyncio.create_task(claim(api, worker="gone", wait_seconds=30))
    await standing(1)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    await standing(0)
    (run_id,) = await ready(api)
    (run,) = await claim(api)
    assert run["run_id"] == run_id
    assert await sql.fetchval("SELECT crashes FROM live_runs") == 0


async def test_a_server_that_stops_answers_those_who_wait(database_url: str, readiness: Readiness) -> None:
    async with aiohttp.ClientSession() as session:
        async with serving(database_url, readiness) as stopping:
            outside = ApiClient(stopping.url, session, stopping.store)
            waiting = asyncio.create_task(claim(outside, wait_seconds=30))
            await standing(1)
        assert waiting.done(), "it was answered before the server was gone"
        assert await waiting == []


async def test_embedded_and_pulling_workers_share_a_queue(api: ApiClient, sql: Any) -> None:
    await add_node(sql, 7)
    http = {"type": "http", "url": "http://127.0.0.1:9/"}
    await ready(api, 2, queue="default", target=http)
    (pulled,) = await claim(api, "default", targets=["http"], limit=1)
    queues = [row.queue for row in await api.store.queues.rows()]
    (embedded,) = await api.store.live_runs.claim(7, 1, queues, 10)
    assert str(embedded.run_id) != pulled["run_id"]
    await say(api, pulled, "complete")
    assert [claim.identity for claim in await api.store.live_runs.reconcile(7)] == [embedded.identity]
    await api.problem("POST", f"/api/v1/runs/{embedded.run_id}/complete", 409, json={"token": embedded.token})


async def test_a_run_whose_definition_is_gone_ends_and_is_not_handed_out(api: ApiClient, sql: Any) -> None:
    await ready(api)
    await sql.execute("UPDATE jobs SET revision = 5")
    assert await claim(api) == []
    assert await sql.fetchval("SELECT status FROM run_history") == 2
    assert await sql.fetchval("SELECT count(*) FROM live_runs") == 0


TOO_DEEP = "[" * 2000 + "]" * 2000


def job_of(run: str) -> int:
    key = identity.decode_run_id(UUID(run))
    assert key is not None
    return key.job


async def spoil(sql: Any, run: str, how: str) -> str:
    """Make one run of those that wait impossible to hand out; its error begins so."""
    job = job_of(run)
    change = "UPDATE jobs SET definition = jsonb_set(definition, $2, $3::text::jsonb) WHERE job = $1"
    if how == "payload":
        await sql.execute("UPDATE live_runs SET payload = $2::text::jsonb WHERE job = $1", job, TOO_DEEP)
        return "This run cannot be handed to a worker: RecursionError: "
    if how == "definition":
        await sql.execute(change, job, ["payload"], TOO_DEEP)
        return "The job's definition is gone, or this version cannot read it."
    await sql.execute(change, job, ["idempotency_key_template"], '"{{nothing}}"')
    await sql.execute("UPDATE live_runs SET serial = 0 WHERE job = $1", job)  # only ticks use the template
    return "This run cannot be handed to a worker: KeyError: 'nothing'"


@pytest.mark.parametrize("how", ["payload", "definition", "call"])
async def test_a_run_that_cannot_be_handed_out_has_failed_and_its_neighbours_are_delivered(
    api: ApiClient, sql: Any, how: str
) -> None:
    bad, *good = await ready(api, 3)
    error = await spoil(sql, bad, how)
    assert {run["run_id"] for run in await claim(api, limit=10)} == set(good)
    assert await sql.fetchval("SELECT count(*) FROM pull_leases") == 2
    assert await sql.fetchrow("SELECT status, reason FROM run_history") == (2, "not retryable")
    assert (await sql.fetchval("SELECT error FROM attempts")).startswith(error)
    assert await claim(api) == []


async def test_runs_that_cannot_be_read_while_the_database_is_away_are_given_back(
    api: ApiClient, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (by_hand,) = await ready(api)
    (tick,) = await ready(api)
    await sql.execute("UPDATE live_runs SET serial = 0 WHERE job = $1", job_of(tick))
    # The payloads of triggers of the version before are in a table of their own.
    await sql.execute("UPDATE live_runs SET serial = $2 WHERE job = $1", job_of(by_hand), identity.MANUAL)

    async def away(_key: Any, **_where: Any) -> str | None:
        raise Unavailable("The database has no free connection.")

    with monkeypatch.context() as broken:
        broken.setattr(api.store.live_runs, "own_payload", away)
        assert len(await claim(api, limit=10)) == 1, "what needs no reading is delivered"
        await api.problem("POST", "/api/v1/queues/mail/claim", 503, json={"worker": "js-1"})
    assert await sql.fetchval("SELECT count(*) FROM pull_leases") == 1
    assert [job_of(run["run_id"]) for run in await claim(api)] == [job_of(by_hand)]
    assert await sql.fetchval("SELECT max(crashes) FROM live_runs") == 0


async def test_a_run_served_to_a_request_that_is_cancelled_goes_back(api: ApiClient, sql: Any) -> None:
    await ready(api)
    (waiters,) = WATCHED
    asking = pull_waiters.ClaimTerms(1, "js-1", Wanted("mail", (), True), 1, timedelta(seconds=60))
    empty = asking._replace(wanted=Wanted("other", (), True))
    hung_up: Any = asyncio.Event().wait
    waiting = asyncio.create_task(waiters.claim(empty, 30, hung_up))
    await standing(1)
    (line,) = waiters._lines.values()
    line.waiters[0].serve(await waiters._claim(asking))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await sql.fetchval("SELECT count(*) FROM pull_leases") == 0
    assert len(await claim(api)) == 1


async def test_one_overdue_run_that_cannot_be_ended_leaves_the_others_no_worse(
    api: ApiClient, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready(api, 3, timeout_seconds=1)
    runs = await claim(api, limit=10)
    await sql.execute("UPDATE pull_leases SET ends_at = now(), lease_until = now()")
    settle, refused = api.store.pull.settle, runs[0]["run_id"]

    async def refusing(tenant: int, reports: Any, *freed: Any) -> Any:
        if str(identity.run_id(reports[0].key)) == refused:
            raise Rejected("duplicate key", None, "23505")
        return await settle(tenant, reports, *freed)

    monkeypatch.setattr(api.store.pull, "settle", refusing)
    await sweep(api.store, JobOperations(api.store), Metrics())
    assert await sql.fetchval("SELECT count(*) FROM attempts WHERE outcome = 'timeout'") == 2


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/worker"),
        ({"worker": ""}, "/worker"),
        ({"worker": "a\x01"}, "/worker"),
        ({"worker": "w", "limit": 101}, "/limit"),
        ({"worker": "w", "limit": 0}, "/limit"),
        ({"worker": "w", "wait_seconds": 31}, "/wait_seconds"),
        ({"worker": "w", "lease_seconds": 0}, "/lease_seconds"),
        ({"worker": "w", "targets": ["topic"]}, "/targets/0"),
        ({"worker": "w", "targets": []}, "/targets"),
        ({"worker": "w", "targets": ["http"], "functions": ["a"]}, "/functions"),
        ({"worker": "w", "more": 1}, "/more"),
        ({"worker": "w", "runs": []}, "/runs"),
        ({"worker": "w", "runs": ["x"]}, "/runs/0"),
        ({"worker": "w", "runs": ["9a6ae5a3-7a1c-4cd6-9d5f-0f2d1e8c0b1a"]}, "/runs/0"),
        (
            {"worker": "w", "runs": ["0190a5a3-7a1c-7000-8000-0000000000ff"], "wait_seconds": 1},
            "/wait_seconds",
        ),
    ],
)
async def test_a_claim_that_cannot_be_is_refused_with_its_place(api: ApiClient, body: Any, pointer: str) -> None:
    problem = await api.problem("POST", "/api/v1/queues/mail/claim", 422, json=body)
    assert problem["pointer"] == pointer


async def test_reports_that_cannot_be_are_refused(api: ApiClient) -> None:
    run = await claimed(api)
    for token in (0, -1, 1 << 63, "1"):
        await api.problem("POST", f"/api/v1/runs/{run['run_id']}/complete", 422, json={"token": token})
    assert (await say(api, run, "complete", 422, result="x" * 20_000))["pointer"] == "/result"
    assert (await say(api, run, "complete", 422, result="\0"))["status"] == 422
    assert (await say(api, run, "fail", 422))["pointer"] == "/error"
    assert (await say(api, run, "fail", 422, error=""))["pointer"] == "/error"
    answer = await say(api, run, "fail", error="e" * 50_000, retryable=False)
    assert answer["status"] == "dead"
    assert len((await look_at(api, run))["error"]) == 8000


async def test_reports_of_runs_that_are_not_there_are_not_found(api: ApiClient) -> None:
    for run_id in ("x", "01980a3e-7c3f-7000-8000-00000000002a", "00000000-0000-0000-0000-000000000000"):
        for verb, body in (("heartbeat", {}), ("complete", {}), ("fail", {"error": "no"})):
            await api.problem("POST", f"/api/v1/runs/{run_id}/{verb}", 404, json={"token": 5, **body})


async def listening(sql: Any) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
    return bool(await sql.fetchval(query))


async def standing(count: int) -> None:
    """Wait until so many stand in line."""
    await until(
        lambda: sum(not w.served.done() for at in WATCHED for line in at._lines.values() for w in line.waiters) == count
    )
