"""Who may report the end of a run: its target with the credential of its call, and keys with the scope work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest

from detent.domain.callbacks import KEY_BYTES, PREFIX, credential_of
from detent.domain.identity import RunKey, decode_run_id, run_id
from detent.domain.job import JobSpec
from detent.jobs import JobOperations
from detent.store import Store
from tests.api.api_client import ApiClient
from tests.api.api_server import Readiness, serving
from tests.support.factories import add_node

NODE = 7
CALLBACK = {"type": "http", "url": "http://127.0.0.1:9/", "callback": {}}
KEY = bytes(range(KEY_BYTES))


class HeldRun(NamedTuple):
    """A run that a node holds, or its target."""

    id: str
    token: int
    key: RunKey

    def credential(self, *, key: bytes = KEY, tenant: int = 1, token: int | None = None, run: str = "") -> str:
        return credential_of(key, run or self.id, tenant, self.token if token is None else token)


@pytest.fixture
async def keyed(database_url: str) -> AsyncIterator[ApiClient]:
    """A cluster with a key."""
    async with serving(database_url, Readiness({"database": True}), require_keys=True, failed_keys_per_second=0) as api:
        await api.store.callback_keys.create(KEY)
        yield api


async def held_run(store: Store, look: Any, **fields: Any) -> HeldRun:
    """A run under a node's hold, as while its target is called."""
    document = {"schedule": "every 1h", "target": CALLBACK, **fields}
    (job,) = await JobOperations(store).registration.add([msgspec.convert(document, JobSpec)])
    await add_node(look, NODE + await look.fetchval("SELECT count(*) FROM nodes"))
    owner = await look.fetchval("SELECT max(node) FROM nodes")
    number = await look.fetchval("SELECT job FROM jobs WHERE id = $1", job.id)
    row = await look.fetchrow(
        "INSERT INTO live_runs (job, lane, scheduled_at, token, owner, not_before, queue, revision, priority)"
        " SELECT job, 0, date_trunc('second', now()), 4194305, $2, now(), queue, 1, 5 FROM cursors WHERE job = $1"
        " RETURNING job, scheduled_at, serial, token",
        number,
        owner,
    )
    key = RunKey(row["job"], row["scheduled_at"], row["serial"])
    return HeldRun(str(run_id(key)), row["token"], key)


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


async def report(api: ApiClient, run: HeldRun, verb: str, status: int, credential: str | None, **body: Any) -> Any:
    headers = {} if credential is None else bearer(credential)
    ask = api.good if status == 200 else api.problem
    given = {"token": run.token, **({"error": "broken"} if verb == "fail" else {}), **body}
    return await ask("POST", f"/api/v1/runs/{run.id}/{verb}", status, json=given, headers=headers)


async def test_the_credential_of_a_call_is_enough_for_its_three_reports(keyed: ApiClient, look: Any) -> None:
    run = await held_run(keyed.store, look)
    assert (await report(keyed, run, "heartbeat", 200, run.credential()))["cancel"] is False
    assert (await report(keyed, run, "complete", 200, run.credential()))["status"] == "succeeded"
    other = await held_run(keyed.store, look, max_retries=0)
    assert (await report(keyed, other, "fail", 200, other.credential()))["status"] == "dead"


@pytest.mark.parametrize("verb", ["heartbeat", "complete", "fail"])
async def test_forged_credentials_are_refused_and_change_nothing(keyed: ApiClient, look: Any, verb: str) -> None:
    run, other = [await held_run(keyed.store, look) for _ in range(2)]
    genuine = run.credential()
    forged = [
        run.credential(key=bytes(KEY_BYTES)),
        other.credential(),
        run.credential(tenant=2)[:-4] + genuine[-4:],
        genuine[:-1] + ("A" if genuine[-1] != "A" else "B"),
        genuine[:-6],
        PREFIX,
    ]
    for text in forged:
        problem = await report(keyed, run, verb, 403, text)
        assert problem["type"] == "/problems/not-authorised"
    assert await look.fetchval("SELECT count(*) FROM live_runs WHERE owner > 0") == 2
    await report(keyed, run, verb, 401, None)


async def test_a_credential_is_for_the_token_of_its_call(keyed: ApiClient, look: Any) -> None:
    run = await held_run(keyed.store, look)
    problem = await report(keyed, run, "complete", 403, run.credential(), token=run.token + 1)
    assert "another attempt" in problem["detail"]
    old = run.credential(token=run.token - 1)
    problem = await report(keyed, run, "complete", 409, old, token=run.token - 1)
    assert problem["type"] == "/problems/stale"
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 1


async def test_a_credential_is_worth_nothing_elsewhere(keyed: ApiClient, look: Any) -> None:
    run = await held_run(keyed.store, look)
    headers = bearer(run.credential())
    await keyed.problem("GET", f"/api/v1/runs/{run.id}", 401, headers=headers)
    await keyed.problem("POST", f"/api/v1/runs/{run.id}/cancel", 401, headers=headers)
    lines = {"token": run.token, "lines": [{"message": "x"}]}
    await keyed.problem("POST", f"/api/v1/runs/{run.id}/logs", 401, json=lines, headers=headers)
    claim = {"worker": "w", "targets": ["http"]}
    await keyed.problem("POST", "/api/v1/queues/default/claim", 401, json=claim, headers=headers)


async def test_a_credential_of_another_tenant_finds_no_run(keyed: ApiClient, look: Any) -> None:
    run = await held_run(keyed.store, look)
    await report(keyed, run, "complete", 404, run.credential(tenant=2))
    assert await look.fetchval("SELECT count(*) FROM live_runs WHERE owner > 0") == 1


async def test_forged_credentials_count_against_the_limit_of_failed_keys_and_valid_ones_do_not(
    database_url: str, look: Any
) -> None:
    readiness = Readiness({"database": True})
    async with serving(database_url, readiness, require_keys=True, failed_keys_per_second=1) as api:
        await api.store.callback_keys.create(KEY)
        run = await held_run(api.store, look)
        forged = run.credential(key=bytes(KEY_BYTES))
        statuses = [
            (await api.ask("POST", f"/api/v1/runs/{run.id}/complete", json={"token": 1}, headers=bearer(forged))).status
            for _ in range(20)
        ]
        assert set(statuses) == {403, 429}
        await report(api, run, "heartbeat", 200, run.credential())


async def test_without_keys_a_wrong_token_is_stale_and_a_forged_credential_is_refused(
    database_url: str, look: Any
) -> None:
    async with serving(database_url, Readiness({"database": True})) as api:
        await api.store.callback_keys.create(KEY)
        run = await held_run(api.store, look)
        await report(api, run, "complete", 409, None, token=run.token + 5)
        await report(api, run, "complete", 403, run.credential(key=bytes(KEY_BYTES)))
        assert (await report(api, run, "complete", 200, None))["status"] == "succeeded"


async def test_a_run_of_a_job_without_callback_is_not_ended_while_its_node_calls_the_target(
    database_url: str, look: Any
) -> None:
    async with serving(database_url, Readiness({"database": True})) as api:
        run = await held_run(api.store, look)
        await look.execute("UPDATE jobs SET definition = definition #- '{target,callback}'")
        for verb in ("heartbeat", "complete", "fail"):
            await report(api, run, verb, 409, None)
        assert await look.fetchval("SELECT count(*) FROM live_runs WHERE owner > 0") == 1


async def test_a_credential_in_the_report_is_masked(keyed: ApiClient, look: Any) -> None:
    run = await held_run(keyed.store, look)
    credential = run.credential()
    await report(keyed, run, "complete", 200, credential, result={"sent": f"with {credential}"})
    stored = await look.fetchval("SELECT result FROM run_history")
    assert (credential in stored, "with ***" in stored) == (False, True)


async def test_all_keys_prove_and_a_deleted_key_proves_nothing(
    keyed: ApiClient, look: Any, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.worker.callbacks.KEPT_SECONDS", 0.0)
    monkeypatch.setattr("detent.worker.callbacks.RENEWED_SECONDS", 0.0)
    run = await held_run(keyed.store, look)
    newer = bytes(reversed(KEY))
    await sql.execute("INSERT INTO callback_keys (number, key) VALUES (2, $1)", newer)
    await report(keyed, run, "heartbeat", 200, run.credential())
    await report(keyed, run, "heartbeat", 200, run.credential(key=newer))
    await sql.execute("DELETE FROM callback_keys WHERE number = 1")
    await report(keyed, run, "heartbeat", 403, run.credential())
    await report(keyed, run, "heartbeat", 200, run.credential(key=newer))


async def test_no_worker_claims_runs_that_wait_for_callbacks_or_uses_their_name(database_url: str, look: Any) -> None:
    async with serving(database_url, Readiness({"database": True})) as api:
        job = await api.create(target=CALLBACK)
        run = await api.good("POST", f"/api/v1/jobs/{job['id']}/trigger", 202)
        assert decode_run_id(UUID(run["id"])) is not None
        claim = {"worker": "w", "targets": ["http", "shell", "python"]}
        assert (await api.good("POST", "/api/v1/queues/default/claim", json=claim))["runs"] == []
        claim["worker"] = "callback:me"
        problem = await api.problem("POST", "/api/v1/queues/default/claim", 422, json=claim)
        assert problem["pointer"] == "/worker"


@pytest.mark.parametrize("callback", [{"lease_seconds": 0}, {"lease_seconds": 100_000}, {"lease": 5}, 60])
async def test_a_callback_that_is_not_one_is_refused(database_url: str, callback: Any) -> None:
    async with serving(database_url, Readiness({"database": True})) as api:
        document = {"schedule": "every 1h", "target": {**CALLBACK, "callback": callback}}
        problem = await api.problem("POST", "/api/v1/jobs", 422, json=document)
        assert problem["pointer"].startswith("/target/callback")
