"""A session, a key and a logout end what is open at the time; live pages are limited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest

from detent.contract.role_binding import RoleBindingSpec
from detent.dashboard.live import Hub
from detent.dashboard.stream_limits import PER_SESSION
from detent.store import Store
from detent.store.jobs import DEFAULT_TENANT
from detent.store.web_sessions import LASTS, session_digest
from tests.api.api_client import HTTP, ApiClient
from tests.api.api_server import Readiness, serving
from tests.dashboard.pages import Pages
from tests.dashboard.pages import serving as serving_pages
from tests.security.guessing import bearer
from tests.security.wire import request, whole_server, wire
from tests.support.sessions import StartSession, looking_often, start
from tests.support.waiting import until

__all__ = ["looking_often", "start"]

# A stream that was not ended lasted for 75 seconds; one that is, for two, or ten on a machine that is busy.
SOON = 10.0


@pytest.fixture
async def pages(database_url: str) -> AsyncIterator[Pages]:
    async with serving_pages(database_url, host="0.0.0.0", max_live_streams=PER_SESSION + 2) as served:
        yield served


@asynccontextmanager
async def visitor(pages: Pages, key: str = "", tenant: int = DEFAULT_TENANT) -> AsyncIterator[Pages]:
    """Another browser, logged in."""
    text = key or (await pages.store.keys.add("read", tenant=tenant)).key
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar, read_bufsize=1 << 20) as session:
        browser = Pages(pages.url, session, pages.store)
        assert (await browser.post("/login", key=text, next="/")).status == 303
        yield browser


async def opened(stack: AsyncExitStack, pages: Pages, path: str = "/live/jobs") -> aiohttp.ClientResponse:
    """A stream of which the first message has arrived, if it is one."""
    response = await stack.enter_async_context(pages.session.get(pages.url + path, allow_redirects=False))
    if response.status == 200:
        await response.content.readuntil(b"\n\n")
    return response


async def rest_of(response: aiohttp.ClientResponse) -> str:
    """All that comes until the server ends the stream."""
    async with asyncio.timeout(SOON):
        return (await response.content.read()).decode()


# --- streams end with what they came in with ---


async def test_an_ended_session_keeps_no_live_stream(pages: Pages, sql: Any) -> None:
    keys = [await pages.store.keys.add("read", tenant=DEFAULT_TENANT) for _ in range(4)]
    async with AsyncExitStack() as stack:
        browsers = [await stack.enter_async_context(visitor(pages, key.key)) for key in keys]
        streams = [await opened(stack, browser) for browser in browsers]
        # As another node would: with nothing but the database in between.
        await pages.store.keys.revoke(keys[0].id, tenant=DEFAULT_TENANT)
        await sql.execute("UPDATE api_keys SET expires_at = now() WHERE id = $1", keys[1].id)
        await sql.execute("UPDATE sessions SET expires_at = now() WHERE key = $1", keys[2].id)
        for stream in streams[:3]:
            assert "event: ended\ndata: Your session has ended: log in again.\n\n" in await rest_of(stream)
        for browser in browsers[:3]:
            assert (await browser.get("/live/jobs")).status == 303
        await streams[3].content.readuntil(b"event: beat")


async def test_a_logout_ends_the_pages_of_its_session_and_no_others(pages: Pages) -> None:
    key = (await pages.store.keys.add("read", tenant=DEFAULT_TENANT)).key
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(visitor(pages, key)) for _ in range(2)]
        left, stays = [await opened(stack, browser) for browser in (one, two)]
        token = (await one.get("/")).csrf
        await one.post("/logout", csrf=token)
        assert "event: ended" in await rest_of(left)
        await stays.content.readuntil(b"event: beat")


async def test_a_role_that_is_taken_away_keeps_no_live_stream(pages: Pages) -> None:
    keys = [await pages.store.keys.add("bound", tenant=DEFAULT_TENANT) for _ in range(2)]
    bound = [
        await pages.store.role_bindings.add(
            RoleBindingSpec(subject_kind="key", subject=key.id, role="viewer"), tenant=DEFAULT_TENANT, by="test"
        )
        for key in keys
    ]
    async with AsyncExitStack() as stack:
        browsers = [await stack.enter_async_context(visitor(pages, key.key)) for key in keys]
        left, stays = [await opened(stack, browser) for browser in browsers]
        # As another node would.
        await pages.store.role_bindings.remove(bound[0].id, tenant=DEFAULT_TENANT)
        assert "event: ended" in await rest_of(left)
        assert (await browsers[0].get("/live/jobs")).status == 403
        await stays.content.readuntil(b"event: beat")


async def test_the_first_key_ends_the_pages_of_visitors_without_one(database_url: str) -> None:
    async with serving_pages(database_url) as local, AsyncExitStack() as stack:
        stream = await opened(stack, local)
        await local.store.keys.add("admin", tenant=DEFAULT_TENANT)
        assert "event: ended" in await rest_of(stream)
        assert (await local.get("/live/jobs")).status == 303


async def test_a_claim_that_waits_gets_no_run_once_its_key_is_revoked(database_url: str) -> None:
    async with serving(database_url, Readiness({}), host="0.0.0.0") as api:
        admin = bearer((await api.store.keys.add("admin", tenant=DEFAULT_TENANT)).key)
        worker = await api.store.keys.add("work", tenant=DEFAULT_TENANT)
        body = {"worker": "w", "targets": ["http"], "wait_seconds": 30}
        waiting = asyncio.create_task(_claim(api, worker.key, body))
        await until(lambda: _waits(api, worker.id), what="the claim to be accepted")
        await api.store.keys.revoke(worker.id, tenant=DEFAULT_TENANT)
        async with asyncio.timeout(SOON):
            assert (await waiting)["status"] == 401
        job = {"schedule": "@daily", "target": HTTP, "queue": "mail"}
        job_id = (await api.good("POST", "/api/v1/jobs", 201, json=job, headers=admin))["id"]
        await api.good("POST", f"/api/v1/jobs/{job_id}/trigger", 202, headers=admin)
        other = bearer((await api.store.keys.add("work", tenant=DEFAULT_TENANT)).key)
        claimed = await api.good("POST", "/api/v1/queues/mail/claim", json=body, headers=other)
        assert len(claimed["runs"]) == 1


async def test_a_claim_without_a_key_that_waits_ends_with_the_first_key(database_url: str) -> None:
    async with whole_server(database_url) as (server, store), wire(server.url) as client:
        body = b'{"worker": "w", "targets": ["http"], "wait_seconds": 30}'
        await client.send(request("POST", "/api/v1/queues/mail/claim", "Content-Type: application/json", body=body))
        await until(lambda: server.app.state.api.access._open)
        await store.keys.add("admin", tenant=DEFAULT_TENANT)
        refused = await client.answer()
        assert (refused.status, b"needs a key" in refused.body) == (401, True)


async def _claim(api: ApiClient, key: str, body: dict[str, Any]) -> Any:
    return (await api.ask("POST", "/api/v1/queues/mail/claim", json=body, headers=bearer(key))).document


async def _waits(api: ApiClient, key_id: str) -> bool:
    keys, _ = await api.store.keys.list(tenant=DEFAULT_TENANT)
    return next(key for key in keys if key.id == key_id).last_used_at is not None


async def test_nothing_is_sent_while_it_is_unknown_who_may_see_it() -> None:
    known = True
    hub = Hub(may_send=lambda: known)
    page = {"part": "first"}

    async def render() -> dict[str, str]:
        return dict(page)

    with hub.stream("jobs", render) as stream:
        assert b"first" in (await stream.next() or b"")
        known = False
        page["part"] = "second"
        await hub.tick()
        assert stream._waiting.empty()
        known = True
        await hub.tick()
        assert b"second" in (await stream.next() or b"")
    await hub.close()


# --- sessions in the database ---


async def test_a_session_lasts_no_longer_than_its_key(store: Store, sql: Any) -> None:
    key = await store.keys.add("read", tenant=DEFAULT_TENANT, expires_in_seconds=60)
    await store.web_sessions.open(key.id, tenant=1)
    assert await sql.fetchval("SELECT s.expires_at = k.expires_at FROM sessions s JOIN api_keys k ON k.id = s.key")
    longer = await store.keys.add("read", tenant=DEFAULT_TENANT)
    digest = session_digest(await store.web_sessions.open(longer.id, tenant=1))
    assert await sql.fetchval("SELECT expires_at - created_at FROM sessions WHERE digest = $1", digest) == LASTS


async def test_a_revoked_key_leaves_no_session(store: Store, sql: Any) -> None:
    keys = [await store.keys.add("read", tenant=DEFAULT_TENANT) for _ in range(2)]
    for key in keys:
        await store.web_sessions.open(key.id, tenant=1)
    await store.keys.revoke(keys[0].id, tenant=DEFAULT_TENANT)
    assert [row["key"] for row in await sql.fetch("SELECT key FROM sessions")] == [keys[1].id]


async def test_a_node_removes_sessions_that_have_ended(store: Store, sql: Any, start: StartSession) -> None:
    key = await store.keys.add("read", tenant=DEFAULT_TENANT)
    for _ in range(3):
        await store.web_sessions.open(key.id, tenant=1)
    await sql.execute(
        "UPDATE sessions SET expires_at = now() WHERE digest IN (SELECT digest FROM sessions ORDER BY digest LIMIT 2)"
    )
    await start()
    await until(_sessions_are(sql, 1), what="two sessions to be removed")


def _sessions_are(sql: Any, count: int) -> Any:
    async def check() -> bool:
        return bool(await sql.fetchval("SELECT count(*) FROM sessions") == count)

    return check


# --- how many ---


async def test_a_session_and_a_tenant_open_a_limited_number_of_live_pages(pages: Pages) -> None:
    await pages.store.tenants.add("acme")
    acme = await pages.store.tenants.number("acme")
    assert acme is not None
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(visitor(pages)) for _ in range(2)]
        other = await stack.enter_async_context(visitor(pages, tenant=acme))
        first = await asyncio.gather(*(opened(stack, one) for _ in range(PER_SESSION)))
        assert {response.status for response in first} == {200}
        refused = await one.get("/live/jobs")
        assert refused.status == 429
        assert "This session has 10 pages open" in refused.text
        assert [(await opened(stack, two)).status for _ in range(2)] == [200, 200]
        refused = await two.get("/live/jobs")
        assert refused.status == 429
        assert "Your tenant has 12 pages open on this server" in refused.text
        assert (await opened(stack, other)).status == 200
        first[0].close()  # a browser that is gone

        async def has_capacity() -> bool:
            return (await opened(stack, two)).status == 200

        await until(has_capacity, what="the capacity of a closed page")


async def test_many_streams_that_are_opened_at_once_are_counted(pages: Pages) -> None:
    async with visitor(pages) as browser, AsyncExitStack() as stack:
        found = await asyncio.gather(*(opened(stack, browser) for _ in range(2 * PER_SESSION)))
        assert sorted(response.status for response in found) == [200] * PER_SESSION + [429] * PER_SESSION
