"""A tenant's requests are limited once for the cluster, and wrong keys lock no valid key out."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from starlette.requests import Request

from detent.api.auth import KeyAuthenticator
from detent.api.failed_lookups import KNOWN_SECONDS, FailedLookups
from detent.api.limits import BURST_SECONDS, LEASE_SECONDS, TenantLimiter, bucket_size
from detent.api.problems import Refusal
from detent.runtime.clock import monotonic
from detent.settings.settings import Settings
from detent.store import Store
from detent.store.jobs import DEFAULT_TENANT
from detent.store.request_budgets import GrantedTokens
from tests.api.api_client import ApiClient
from tests.api.api_server import Readiness, serving
from tests.dashboard.pages import Pages
from tests.dashboard.pages import serving as serving_pages
from tests.security.guessing import bearer, wrong_key
from tests.support.processes import Nodes

RATE = 5.0
FAILURES = int(bucket_size(Settings().failed_keys_per_second))


async def statuses(api: ApiClient, keys: list[str]) -> list[int]:
    """One request with each key, all at once."""
    asked = (api.ask("GET", "/api/v1/jobs", headers=bearer(key)) for key in keys)
    return [answer.status for answer in await asyncio.gather(*asked)]


@pytest.fixture
async def two_nodes(database_url: str) -> AsyncIterator[tuple[ApiClient, ApiClient]]:
    readiness = Readiness({})
    settings: dict[str, Any] = {"host": "0.0.0.0", "requests_per_second": RATE}
    async with serving(database_url, readiness, **settings) as one, serving(database_url, readiness, **settings) as two:
        yield one, two


# --- tenants ---


async def test_a_tenant_gets_no_more_than_its_limit_from_two_nodes_and_two_keys(
    two_nodes: tuple[ApiClient, ApiClient],
) -> None:
    keys = [(await two_nodes[0].store.keys.add("read", tenant=DEFAULT_TENANT)).key for _ in range(2)]
    began = monotonic()
    found = await asyncio.gather(*(statuses(node, keys * 15) for node in two_nodes))
    passed = monotonic() - began
    admitted = sum(each.count(200) for each in found)
    assert sum(each.count(429) for each in found) == 60 - admitted
    # The bucket, what it gained meanwhile, and one token that a node held for each of the two.
    assert RATE * BURST_SECONDS <= admitted <= RATE * BURST_SECONDS + RATE * passed + 2


async def test_a_tenant_at_its_limit_takes_nothing_from_another(two_nodes: tuple[ApiClient, ApiClient]) -> None:
    one, two = two_nodes
    await one.store.tenants.add("quiet")
    quiet = await one.store.tenants.number("quiet")
    assert quiet is not None
    loud_key = (await one.store.keys.add("read", tenant=DEFAULT_TENANT)).key
    quiet_key = (await one.store.keys.add("read", tenant=quiet)).key
    assert 429 in await statuses(one, [loud_key] * 30)
    assert await statuses(one, [quiet_key]) == await statuses(two, [quiet_key]) == [200]


class CountedBudgets:
    """The tokens of the database, and how often they were asked for."""

    def __init__(self, store: Store) -> None:
        self._take = store.request_budgets.take
        self.asked = 0
        store.request_budgets.take = self.take  # type: ignore[method-assign]  # to count what reaches the database

    async def take(self, tenant: int, wanted: int, per_second: float, size: float) -> GrantedTokens:
        self.asked += 1
        return await self._take(tenant, wanted, per_second, size)


async def admitted(limiter: TenantLimiter, requests: int) -> int:
    count = 0
    for _ in range(requests):
        try:
            await limiter.take(DEFAULT_TENANT)
            count += 1
        except Refusal:
            pass
    return count


async def test_most_requests_ask_the_database_nothing(store: Store) -> None:
    budgets = CountedBudgets(store)
    limiter = TenantLimiter(store.request_budgets, 1000, now=lambda: 0.0)
    assert await admitted(limiter, 100) == 100
    assert budgets.asked == 1
    assert await asyncio.gather(*(admitted(limiter, 1) for _ in range(100))) == [1] * 100
    assert budgets.asked == 2


async def test_a_tenant_over_its_limit_costs_no_statement_per_request(store: Store) -> None:
    budgets = CountedBudgets(store)
    limiter = TenantLimiter(store.request_budgets, 0.001, now=lambda: 0.0)
    assert await admitted(limiter, 1000) == 1
    assert budgets.asked == 2


async def test_tokens_that_a_node_does_not_use_are_lost(store: Store) -> None:
    """Otherwise many idle nodes could each add theirs to a later burst."""
    now = [0.0]
    budgets = CountedBudgets(store)
    limiter = TenantLimiter(store.request_budgets, 1000, now=lambda: now[0])
    await limiter.take(DEFAULT_TENANT)
    now[0] += LEASE_SECONDS
    await limiter.take(DEFAULT_TENANT)
    assert budgets.asked == 2


async def test_a_node_whose_database_does_not_answer_limits_by_itself(store: Store) -> None:
    now = [0.0]
    budgets = CountedBudgets(store)
    limiter = TenantLimiter(store.request_budgets, RATE, now=lambda: now[0])
    await store.database.close()
    assert await admitted(limiter, 30) == RATE * BURST_SECONDS
    now[0] += 1.0
    assert await admitted(limiter, 30) == RATE
    assert budgets.asked == 1


async def test_a_clock_that_is_set_back_takes_no_tokens_away(store: Store, look: Any) -> None:
    await store.request_budgets.take(DEFAULT_TENANT, 4, RATE, 10.0)
    await look.execute("UPDATE request_budgets SET refilled_at = now() + interval '1 hour'")
    assert (await store.request_budgets.take(DEFAULT_TENANT, 4, RATE, 10.0)).granted == 4
    assert await look.fetchval("SELECT refilled_at <= clock_timestamp() FROM request_budgets")
    await look.execute("UPDATE request_budgets SET refilled_at = now() - interval '1 hour'")
    assert await store.request_budgets.take(DEFAULT_TENANT, 4, RATE, 10.0) == (4, 6.0)


# --- wrong keys ---


async def test_wrong_keys_from_an_address_lock_no_valid_key_out(two_nodes: tuple[ApiClient, ApiClient]) -> None:
    api, _ = two_nodes
    key = await api.store.keys.add("read", tenant=DEFAULT_TENANT)
    wrong = await statuses(
        api, [wrong_key() for _ in range(2 * FAILURES)] + [wrong_key(key.id) for _ in range(FAILURES)]
    )
    assert set(wrong) == {401, 429}
    assert await statuses(api, [key.key]) == [200]


async def test_wrong_logins_from_an_address_lock_no_visitor_out(database_url: str) -> None:
    async with serving_pages(database_url, host="0.0.0.0", requests_per_second=RATE) as pages:
        key = await pages.store.keys.add("read", tenant=DEFAULT_TENANT)
        assert (await pages.post("/login", key=key.key, next="/")).status == 303
        wrong = await asyncio.gather(*(pages.post("/login", key=wrong_key(), next="/") for _ in range(2 * FAILURES)))
        assert {answer.status for answer in wrong} == {401, 429}
        assert (await pages.get("/")).status == 200
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            other = Pages(pages.url, session, pages.store)
            assert (await other.get("/login")).status == 200
            assert (await other.post("/login", key=key.key, next="/")).status == 303


class CountedLookups:
    def __init__(self, store: Store) -> None:
        self._holder, self._digests = store.keys.holder, store.keys.valid_digests
        self.keys = self.lists = 0
        store.keys.holder = self.holder  # type: ignore[method-assign]  # to count what reaches the database
        store.keys.valid_digests = self.valid_digests  # type: ignore[method-assign]  # as above

    async def holder(self, credential: Any) -> Any:
        self.keys += 1
        return await self._holder(credential)

    async def valid_digests(self, limit: int) -> Any:
        self.lists += 1
        return await self._digests(limit)


def request_of(key: str, client: str = "192.0.2.1") -> Request:
    headers = [(b"authorization", f"Bearer {key}".encode())]
    return Request({"type": "http", "headers": headers, "client": (client, 1)})


async def test_a_network_that_guesses_keys_reaches_the_database_ten_times_a_second(store: Store) -> None:
    now = [0.0]
    lookups = CountedLookups(store)
    limiter = TenantLimiter(store.request_budgets, 0)
    failures = FailedLookups(10, now=lambda: now[0])
    authenticator = KeyAuthenticator(store.keys, limiter, failures, keys_required=True, now=lambda: now[0])
    key = await store.keys.add("read", tenant=DEFAULT_TENANT)

    async def guess(count: int, client: str = "192.0.2.1") -> list[int]:
        found = []
        for number in range(count):
            with pytest.raises(Refusal) as refused:
                given = wrong_key(key.id if number % 2 else "")
                await authenticator.authorise(request_of(given, client), "read")
            found.append(refused.value.kind.status)
        return found

    assert await guess(100) == [401] * FAILURES + [429] * (100 - FAILURES)
    assert (lookups.keys, lookups.lists) == (FAILURES, 1)
    assert (await authenticator.authorise(request_of(key.key), "read")).key == key.id
    assert (lookups.keys, lookups.lists) == (FAILURES + 1, 1)
    assert await guess(1, "192.0.2.2") == [401]  # another network
    now[0] += KNOWN_SECONDS
    new = await store.keys.add("read", tenant=DEFAULT_TENANT)
    assert 429 in await guess(100)
    assert (await authenticator.authorise(request_of(new.key), "read")).key == new.id
    assert lookups.lists == 2


async def test_a_valid_key_costs_its_network_nothing_while_all_networks_guess(store: Store) -> None:
    now = [0.0]
    failures = FailedLookups(1, now=lambda: now[0])  # two at once for a network, twenty for all
    authenticator = KeyAuthenticator(
        *(store.keys, TenantLimiter(store.request_budgets, 0), failures), keys_required=True, now=lambda: now[0]
    )
    keys = [await store.keys.add("read", tenant=DEFAULT_TENANT) for _ in range(5)]

    async def guess(client: str) -> int:
        with pytest.raises(Refusal) as refused:
            await authenticator.authorise(request_of(wrong_key(), client), "read")
        return refused.value.kind.status

    assert [await guess(f"198.51.100.{number}") for number in range(21)] == [401] * 20 + [429]
    for key in keys:
        await authenticator.authorise(request_of(key.key), "read")
    now[0] += 1.0
    assert [await guess("192.0.2.1") for _ in range(3)] == [401, 401, 429]


async def test_a_valid_key_costs_its_network_nothing(store: Store) -> None:
    """Also if there are more keys behind one address than failures are allowed."""
    limiter = TenantLimiter(store.request_budgets, 0)
    failures = FailedLookups(10, now=lambda: 0.0)
    authenticator = KeyAuthenticator(store.keys, limiter, failures, keys_required=True, now=lambda: 0.0)
    keys = [await store.keys.add("read", tenant=DEFAULT_TENANT) for _ in range(FAILURES + 5)]
    for key in keys:
        await authenticator.authorise(request_of(key.key), "read")
    with pytest.raises(Refusal) as refused:
        await authenticator.authorise(request_of(wrong_key()), "read")
    assert refused.value.kind.status == 401


# --- with real processes ---


@pytest.mark.long
@pytest.mark.system
async def test_two_processes_together_admit_one_limit(database_url: str, store: Store) -> None:
    rate, seconds = 200.0, 5.0
    key = (await store.keys.add("read", tenant=DEFAULT_TENANT)).key
    with tempfile.TemporaryDirectory(prefix="detent-test-", ignore_cleanup_errors=True) as name:
        variables = {"DETENT_DATABASE_URL": database_url, "DETENT_REQUESTS_PER_SECOND": f"{rate:g}"}
        with closing(Nodes(Path(name), DETENT_DATA_DIR=f"{name}/data", **variables)) as nodes:
            started = [await nodes.start("api", "--host", "0.0.0.0") for _ in range(2)]
            urls = [node.url.replace("0.0.0.0", "127.0.0.1") for node in started]
            count, passed = await _flood(urls, key, seconds)
    assert rate * seconds / 2 <= count <= rate * (BURST_SECONDS + passed) + 2 * rate / 10


async def _flood(urls: list[str], key: str, seconds: float) -> tuple[int, float]:
    """How many requests were admitted, and how long it took."""
    began = monotonic()
    count = 0

    async def send(session: aiohttp.ClientSession, url: str) -> None:
        nonlocal count
        while monotonic() - began < seconds:
            async with session.get(f"{url}/api/v1/jobs", headers=bearer(key)) as response:
                count += response.status == 200

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(send(session, url) for url in urls for _ in range(5)))
    return count, monotonic() - began
