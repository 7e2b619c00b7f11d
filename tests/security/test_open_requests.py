"""Requests that stay open: streams that are not read, and requests that wait behind another on their connection."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

import pytest

from detent.dashboard import live
from detent.domain.run import Claim
from detent.domain.states import RunStatus
from detent.jobs import JobOperations
from detent.node import connections, protocol
from detent.node.server import ApiServer
from detent.runtime.clock import monotonic
from detent.store import Database, Store
from detent.store.jobs import DEFAULT_TENANT
from detent.store.tenant_wall import walled
from detent.telemetry.metrics import Metrics
from detent.worker.pull import PulledRuns
from tests.security.wire import request, whole_server, wire
from tests.store.test_pull import EVERYTHING, MINUTE, add_run
from tests.support.postgres import as_runtime_role
from tests.support.waiting import until

JSON = "Content-Type: application/json"
STREAM = request("GET", "/live/jobs")
HALF_A_BODY = request("POST", "/api/v1/jobs", JSON, "Content-Length: 2") + b"{"


def waiting_claim(*headers: str) -> bytes:
    body = b'{"worker": "w", "wait_seconds": 20, "targets": ["http"]}'
    return request("POST", "/api/v1/queues/default/claim", JSON, *headers, body=body)


def open_of(server: ApiServer) -> list[Any]:
    return list(server.connections.connections)


def has_pipeline(server: ApiServer) -> bool:
    return any(each.pipeline for each in open_of(server))


def has_ended(server: ApiServer) -> bool:
    return not server.connections.tasks


# --- streams ---


async def test_a_live_page_that_is_not_read_waits_in_a_bounded_buffer_and_then_ends(database_url: str) -> None:
    """The page changes all the time. What does not fit is dropped: the next message that is read has the whole page."""
    size, passes = 200_000, count()

    async def render() -> dict[str, str]:
        return {"jobs": f"{next(passes)}" + "x" * size}

    async with whole_server(database_url) as (server, _), wire(server.url, receives=4096) as client:
        dashboard, access = server.app.state.dashboard, server.app.state.api.access
        assert (await client.ask(STREAM)).status == 200
        await until(lambda: dashboard.hub.streams == 1)
        (topic,) = dashboard.hub._topics.values()
        (stream,) = topic.streams
        topic._render = render

        async def stuck() -> Any:
            await dashboard.hub.tick()
            return next((each for each in open_of(server) if each.unread_bytes()), None)

        connection = await until(stuck)
        for _ in range(3 * live.MAX_WAITING):
            await dashboard.hub.tick()
            assert stream._waiting.qsize() <= live.MAX_WAITING
        assert connection.unread_bytes() < 2 * size
        now = monotonic()
        server.connections.sweep(now)
        server.connections.sweep(now + protocol.SEND_SECONDS - 1)
        assert connection in server.connections.connections
        server.connections.sweep(now + protocol.SEND_SECONDS + 1)
        await until(lambda: has_ended(server))
        assert (dashboard.hub.streams, dashboard._limits.open, access._open) == (0, 0, {})


async def test_a_stream_ends_when_its_client_leaves_although_a_request_waits_behind_it(database_url: str) -> None:
    async with whole_server(database_url) as (server, _):
        async with wire(server.url) as client:
            assert (await client.ask(STREAM)).status == 200
            await client.send(request("GET", "/livez"))
            await until(lambda: has_pipeline(server))
        await until(lambda: has_ended(server))
        assert server.app.state.dashboard.hub.streams == 0


async def test_a_stream_whose_request_has_no_end_is_closed_and_nothing_is_logged(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with whole_server(database_url) as (server, _), wire(server.url) as client:
        assert (await client.ask(request("GET", "/live/jobs", "Content-Length: 5"))).status == 200
        server.connections.sweep(monotonic() + 31)
        await client.ended()
        await until(lambda: has_ended(server))
    assert [record.getMessage() for record in caplog.records] == []


# --- requests behind another ---


async def test_a_slow_body_does_not_cost_the_request_before_it_its_answer(database_url: str) -> None:
    async with whole_server(database_url) as (server, _), wire(server.url) as client:
        await client.send(waiting_claim() + HALF_A_BODY)
        await until(lambda: has_pipeline(server))
        server.connections.sweep(monotonic() + 31)
        await server.app.state.api.waiters.close()  # answers the claim
        assert (await client.answer()).status == 200
        assert await client.ended() == b""


async def test_bodies_that_wait_behind_another_request_are_counted_however_small(database_url: str) -> None:
    async with whole_server(database_url) as (server, _):
        async with wire(server.url) as client:
            await client.send(waiting_claim() + request("POST", "/api/v1/jobs", JSON, body=b" " * 10_000))
            await until(lambda: server.connections.held == 10_000)
        await until(lambda: server.connections.held == 0)


async def test_a_client_that_sends_one_body_after_the_other_protects_no_slower_one(database_url: str) -> None:
    async with (
        whole_server(database_url, max_connections=2) as (server, _),
        wire(server.url, "127.0.0.2") as busy,
        wire(server.url, "127.0.0.3") as slow,
    ):
        bodies = server.connections.bodies
        for number, client in enumerate((busy, slow), start=1):
            await client.send(HALF_A_BODY)
            await until(lambda number=number: len(bodies) == number)
        slowest = list(bodies)[-1]
        slowest.since -= 2 * connections.SLOW_BODY_SECONDS
        await busy.send(b"}" + HALF_A_BODY)
        assert (await busy.answer()).status == 422
        async with wire(server.url) as other:
            assert (await other.ask(request("GET", "/version"))).status == 200
        assert await slow.ended() == b""


# --- behind the second wall between tenants ---


async def test_an_open_request_of_one_tenant_ends_none_of_another_behind_the_wall(database_url: str) -> None:
    """A request of one tenant starts the loop that checks the keys of all."""
    async with whole_server(as_runtime_role(database_url)) as (server, store), AsyncExitStack() as stack:
        acme = await other_tenant(store)
        keys = [await store.keys.add("work", tenant=tenant) for tenant in (acme, DEFAULT_TENANT, acme)]
        api, workers = server.app.state.api, []
        for number, key in enumerate(keys, start=1):
            workers.append(await stack.enter_async_context(wire(server.url)))
            await workers[-1].send(waiting_claim(f"Authorization: Bearer {key.key}"))
            await until(lambda number=number: len(api.access._open) == number)
        await store.keys.revoke(keys[2].id, tenant=acme)
        assert (await workers[2].answer()).status == 401
        await api.waiters.close()  # answers the others
        assert [(await worker.answer()).status for worker in workers[:2]] == [200, 200]


async def test_reports_of_two_tenants_that_come_together_are_both_stored_behind_the_wall(
    database_url: str, look: Any
) -> None:
    database = Database(as_runtime_role(database_url))
    await database.open()
    store = Store(database)
    pulled = PulledRuns(store, JobOperations(store), Metrics())

    async def claimed(tenant: int) -> Claim:
        await add_run(look, tenant=tenant)
        (run,) = await store.pull.claim(tenant, await store.pull.worker(tenant, "w"), EVERYTHING, 1, MINUTE)
        return run.claim

    async def report(tenant: int, run: Claim) -> RunStatus:
        with walled(tenant):
            return (await pulled.complete(tenant, run.key, run.token, None)).status

    runs = {tenant: await claimed(tenant) for tenant in (DEFAULT_TENANT, await other_tenant(store))}
    assert await asyncio.gather(*(report(*each) for each in runs.items())) == [RunStatus.SUCCEEDED] * 2
    await database.close()


async def other_tenant(store: Store) -> int:
    await store.tenants.add("acme")
    number = await store.tenants.number("acme")
    assert number is not None
    return number
