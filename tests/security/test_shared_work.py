"""What serves the requests of all tenants at once is restricted to none of them, and cannot be kept busy by one of
them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

import pytest

from detent.api.pull_waiters import PullWaiters
from detent.domain.identity import RunKey, decode_run_id
from detent.domain.states import RunStatus
from detent.jobs import JobOperations
from detent.jobs.target_check import _RequestReader
from detent.store.db import PoolName
from detent.store.tenant_wall import walled
from detent.targets.policies import ClusterPolicies
from detent.telemetry.metrics import Metrics
from detent.worker.pull import PulledRuns, _by_tenant
from tests.api.api_client import HTTP, Answer, ApiClient
from tests.api.api_server import Readiness, serving
from tests.security.guessing import bearer
from tests.support.postgres import as_runtime_role
from tests.support.tenants import add_tenant
from tests.support.waiting import until

# A check of open requests comes every two seconds, or later on a machine that is busy.
SOON = 30.0
CONNECTIONS = 16


@pytest.fixture
def waiters(monkeypatch: pytest.MonkeyPatch) -> list[PullWaiters]:
    """Those of the servers that are started."""
    made: list[PullWaiters] = []

    class Watched(PullWaiters):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setattr("detent.api.app.PullWaiters", Watched)
    return made


@pytest.fixture
async def api(database_url: str, waiters: list[PullWaiters]) -> AsyncIterator[ApiClient]:
    """A server whose requests the database, too, restricts to the rows of their tenant."""
    url = as_runtime_role(database_url)
    async with serving(url, Readiness({}), host="0.0.0.0", max_connections=CONNECTIONS) as served:
        yield served


class Tenant:
    def __init__(self, api: ApiClient, number: int, key: str) -> None:
        self.api = api
        self.number = number
        self.headers = bearer(key)

    async def add_run(self) -> None:
        job = {"schedule": "@daily", "target": HTTP, "queue": "mail"}
        made = await self.api.good("POST", "/api/v1/jobs", 201, json=job, headers=self.headers)
        await self.api.good("POST", f"/api/v1/jobs/{made['id']}/trigger", 202, headers=self.headers)

    async def claim(self, wait: float = 0.0) -> Answer:
        body = {"worker": "w", "targets": ["http"], "wait_seconds": wait}
        return await self.api.ask("POST", "/api/v1/queues/mail/claim", json=body, headers=self.headers)

    async def claimed(self) -> tuple[RunKey, int]:
        """A run, and its token."""
        await self.add_run()
        (run,) = (await self.claim()).document["runs"]
        key = decode_run_id(UUID(run["run_id"]))
        assert key is not None
        return key, run["token"]


async def tenant(api: ApiClient, name: str) -> Tenant:
    number = await add_tenant(api.store, name)
    return Tenant(api, number, (await api.store.keys.add("write", tenant=number)).key)


def count(waiters: Sequence[PullWaiters]) -> int:
    """How many claims wait."""
    lines = [line for each in waiters for line in each._lines.values()]
    return sum(not waiter.served.done() for line in lines for waiter in line.waiters)


async def waiting(waiters: Sequence[PullWaiters], who: Tenant) -> asyncio.Task[Answer]:
    before = count(waiters)
    task = asyncio.create_task(who.claim(30))
    await until(lambda: count(waiters) > before, what="the claim to wait")
    return task


async def test_a_tenants_waiting_claim_ends_no_claim_of_another(api: ApiClient, waiters: list[PullWaiters]) -> None:
    """The watch over open requests was started by the first claim and saw the keys of that claim's tenant alone: it
    took those of all others for revoked."""
    ours, rival = await tenant(api, "ours"), await tenant(api, "rival")
    first, theirs = await waiting(waiters, ours), await waiting(waiters, rival)
    revoked = await api.store.keys.add("work", tenant=ours.number)
    ended = await waiting(waiters, Tenant(api, ours.number, revoked.key))
    await api.store.keys.revoke(revoked.id, tenant=ours.number)
    async with asyncio.timeout(SOON):
        assert (await ended).status == 401  # so every open request was checked
    await rival.add_run()
    async with asyncio.timeout(SOON):
        answer = await theirs
    assert answer.status == 200, answer.document
    assert len(answer.document["runs"]) == 1
    first.cancel()


async def test_reports_of_two_tenants_that_are_written_together_are_both_written(api: ApiClient) -> None:
    both = [await tenant(api, name) for name in ("ours", "rival")]
    runs = [await each.claimed() for each in both]
    pulled = PulledRuns(api.store, JobOperations(api.store), Metrics())
    tasks = []
    for each, (key, token) in zip(both, runs, strict=True):
        with walled(each.number):  # as the requests are
            tasks.append(asyncio.create_task(pulled.complete(each.number, key, token, None)))
    settled = await asyncio.gather(*tasks, return_exceptions=True)
    assert [getattr(each, "status", each) for each in settled] == [RunStatus.SUCCEEDED] * 2


async def test_each_statement_of_a_batch_is_behind_the_wall_of_its_tenant(api: ApiClient) -> None:
    both = [await tenant(api, name) for name in ("ours", "rival")]
    own = [(await each.claimed())[0].job for each in both]

    async def unfiltered(_tenant: int, items: Sequence[None]) -> list[list[int]]:
        async with api.store.database.connection(PoolName.PULL) as connection:
            rows = await connection.fetch("SELECT job FROM live_runs")
        return [[row["job"] for row in rows] for _ in items]

    seen = await _by_tenant([(each.number, None) for each in both], unfiltered)
    assert seen == [[job] for job in own]


async def test_the_allow_list_of_a_tenant_is_not_hidden_by_a_request_of_another(api: ApiClient) -> None:
    ours, rival = await tenant(api, "ours"), await tenant(api, "rival")
    await api.store.tenants.change("rival", {}, lambda _: ["10.1.2.3:8080"], "test")
    policies = ClusterPolicies(_RequestReader(api.store))
    with walled(ours.number):
        await policies.rules_of(ours.number)
    with walled(rival.number):
        rules = await policies.rules_of(rival.number)
    assert [pattern.text for pattern in rules.patterns] == ["10.1.2.3:8080"]


async def test_a_tenant_keeps_no_more_than_a_quarter_of_the_connections_waiting(
    api: ApiClient, waiters: list[PullWaiters]
) -> None:
    ours, rival = await tenant(api, "ours"), await tenant(api, "rival")
    most = CONNECTIONS // 4
    claims = [await waiting(waiters, ours) for _ in range(most)]
    async with asyncio.timeout(SOON / 2):  # a claim that is not refused waits for longer
        refused = await ours.claim(30)
    assert (refused.status, refused.headers["Retry-After"]) == (429, "2")
    assert f"has {most} claims waiting on this server" in refused.document["detail"]
    assert (await ours.claim()).status == 200  # one that does not wait
    claims.append(await waiting(waiters, rival))
    claims.pop(0).cancel()  # a client that leaves makes room
    await until(lambda: count(waiters) == most, what="the claim to leave")
    claims.append(await waiting(waiters, ours))
    for claim in claims:
        claim.cancel()
