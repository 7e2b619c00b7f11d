"""Who needs a key: everyone, except this machine while the cluster has never had one."""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import asyncpg
import pytest
from multidict import CIMultiDict
from starlette.requests import Request

from detent.api.auth import KeyAuthenticator
from detent.api.failed_lookups import FailedLookups
from detent.api.guard import comes_directly
from detent.api.limits import TenantLimiter
from detent.api.problems import Refusal
from detent.errors import UsageError
from detent.node.database import check_keys
from detent.settings.settings import Settings
from detent.store import Store
from detent.store.jobs import DEFAULT_TENANT
from tests.dashboard.pages import Pages, serving
from tests.security.guessing import bearer
from tests.support.postgres import Postgres
from tests.support.processes import Nodes
from tests.support.waiting import until

JOBS, KEYS = "/api/v1/jobs", "/api/v1/keys"
KEY = re.compile(r"dtn_[a-z2-7]{10}_[a-z2-7]{52}")
DONE = ("succeeded", "dead")
PROXY_HEADERS = (
    *("Forwarded", "Via", "X-Real-IP", "X-Forwarded-For", "x-forwarded-host", "X-Forwarded-Proto"),
    "X-Forwarded-Client-Cert",
)


async def asked(
    session: aiohttp.ClientSession, method: str, url: str, headers: Mapping[str, str] | None = None, json: Any = None
) -> tuple[int, Any]:
    async with session.request(method, url, json=json, headers=headers, allow_redirects=False) as response:
        return response.status, await response.json(content_type=None) if "/api/" in url else await response.text()


async def status(node: Pages, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> int:
    return (await asked(node.session, method, node.url + path, headers))[0]


async def first_key(store: Store) -> dict[str, str]:
    return bearer((await store.keys.add("admin", tenant=DEFAULT_TENANT)).key)


@pytest.fixture
async def node(database_url: str) -> AsyncIterator[Pages]:
    """A server on loopback with API and dashboard."""
    async with serving(database_url) as served:
        yield served


@pytest.fixture
async def other(database_url: str) -> AsyncIterator[Pages]:
    """Another one on the same database, which shares nothing else with it."""
    async with serving(database_url) as served:
        yield served


@pytest.fixture
def processes(database_url: str) -> Iterator[Nodes]:
    with (
        tempfile.TemporaryDirectory(prefix="detent-test-", ignore_cleanup_errors=True) as name,
        closing(Nodes(Path(name), DETENT_DATA_DIR=f"{name}/data", DETENT_DATABASE_URL=database_url)) as started,
    ):
        yield started


# --- the attack ---


async def test_a_tenants_job_reads_no_key_from_another_node(processes: Nodes, store: Store, sql: Any) -> None:
    """A tenant with a `write` key lets a job call the other node of the cluster, which listens on loopback, for a key
    of the administrator."""
    await store.tenants.add("acme")
    tenant = await store.tenants.number("acme")
    assert tenant is not None
    writer = bearer((await store.keys.add("write", tenant=tenant)).key)
    keyed, plain = processes.begin("api", host="0.0.0.0"), processes.begin("serve")
    api = f"http://127.0.0.1:{urlsplit((await keyed.ready()).url).port}/api/v1"
    target = {"type": "http", "url": f"{(await plain.ready()).url}{KEYS}", "method": "POST"}
    job = {"name": "steal", "schedule": "@yearly", "target": target, "payload": {"scope": "admin"}, "max_retries": 0}
    async with aiohttp.ClientSession() as session:
        assert (await asked(session, "POST", f"{api}/jobs", writer, job))[0] == 201
        _, run = await asked(session, "POST", f"{api}/jobs/steal/trigger", writer)

        async def finished() -> Any:
            _, found = await asked(session, "GET", f"{api}/runs/{run['id']}", writer)
            return found if found["status"] in DONE else None

        found = await until(finished, 30, "the run to finish")
    assert not KEY.search(str(found)), f"the run's result has a key of the administrator: {found['result']}"
    assert found["status"] == "dead"
    assert await sql.fetchval("SELECT count(*) FROM api_keys") == 1


# --- the first key ---


async def test_the_first_key_ends_keyless_access_on_every_node_at_once(node: Pages, other: Pages) -> None:
    assert [await status(each, path) for each in (node, other) for path in (JOBS, "/jobs")] == [200] * 4
    code, made = await asked(node.session, "POST", node.url + KEYS, json={"scope": "admin"})
    assert (code, made["created_by"]) == (201, None)
    for each in (other, node):
        refused, problem = await asked(each.session, "GET", each.url + JOBS)
        assert refused == 401 and "DETENT_API_KEY" in problem["detail"]
        assert (await asked(each.session, "POST", each.url + KEYS, json={"scope": "admin"}))[0] == 401
        assert await status(each, "/jobs") == 303  # to the login
        assert await status(each, JOBS, bearer(made["key"])) == 200


async def test_a_cluster_whose_keys_are_all_revoked_or_expired_stays_closed(
    node: Pages, other: Pages, store: Store, sql: Any
) -> None:
    revoked = await store.keys.add("admin", tenant=DEFAULT_TENANT)
    await store.keys.revoke(revoked.id, tenant=DEFAULT_TENANT)
    assert [await status(node, JOBS), await status(node, "/jobs")] == [401, 303]
    await sql.execute("UPDATE api_keys SET revoked_at = NULL, expires_at = now()")
    assert [await status(other, JOBS), await status(other, "/jobs")] == [401, 303]


async def test_a_first_key_that_would_lock_everyone_out_is_refused(node: Pages, store: Store) -> None:
    await store.tenants.add("acme")
    for body, pointer in (({"scope": "work"}, "/scope"), ({"scope": "admin", "tenant": "acme"}, "/tenant")):
        code, problem = await asked(node.session, "POST", node.url + KEYS, json=body)
        assert (code, problem["pointer"]) == (422, pointer) and "first key" in problem["detail"]
    assert not await store.keys.cluster_is_keyed()


async def test_a_form_of_a_page_opened_without_a_key_changes_nothing_after_the_first_one(
    node: Pages, store: Store
) -> None:
    token = (await node.get("/jobs/new")).csrf
    await first_key(store)
    sent = {"name": "report", "kind": "every", "every": "1h", "target": "http", "url": "http://127.0.0.1:9/"}
    assert (await node.post("/jobs", csrf=token, **sent)).status == 401
    assert (await store.jobs.list())[0] == []


async def test_a_visitor_of_a_loopback_server_logs_in_once_there_is_a_key(node: Pages, store: Store) -> None:
    key = await store.keys.add("read", tenant=DEFAULT_TENANT)
    await store.keys.add("admin", tenant=DEFAULT_TENANT)
    assert (await node.post("/login", key=key.key, next="/jobs")).status == 303
    assert (await node.get("/jobs")).status == 200
    assert (await node.post("/jobs", csrf=(await node.get("/jobs")).csrf)).status == 403  # with the rights of this key


# --- who is this machine ---


async def test_a_request_that_came_through_a_proxy_needs_a_key(node: Pages) -> None:
    for header in PROXY_HEADERS:
        for text in ("127.0.0.1", ""):
            assert await status(node, JOBS, {header: text}) == 401, header
            assert await status(node, KEYS, {header: text}, "POST") == 401, header
        assert await status(node, "/jobs", {header: "127.0.0.1"}) == 303, header
        assert await status(node, "/livez", {header: "127.0.0.1"}) == 200, header
    assert await status(node, JOBS) == 200


async def test_a_peer_that_is_not_this_machine_needs_a_key(store: Store) -> None:
    """Whatever the request says of itself: the peer is the socket's."""
    authenticator = KeyAuthenticator(
        store.keys, TenantLimiter(store.request_budgets, 0), FailedLookups(0), keys_required=False
    )
    for peer in ("127.0.0.1", "127.8.9.1", "::1"):
        assert (await authenticator.authorise(request_of(peer), "admin")).tenant == DEFAULT_TENANT
    for remote in ("192.0.2.1", "10.0.0.1", "::2", "fe80::1", "::ffff:192.0.2.1", "", None):
        with pytest.raises(Refusal, match="needs a key"):
            await authenticator.authorise(request_of(remote), "read")


def request_of(peer: str | None) -> Request:
    client = None if peer is None else (peer, 40_000)
    return Request({"type": "http", "headers": [(b"host", b"127.0.0.1:8787")], "client": client})


async def test_a_web_page_that_rebinds_its_name_gets_nothing_without_a_key(node: Pages, store: Store) -> None:
    rebound = {"Host": "evil.example"}
    for extra in ({}, {"X-Forwarded-For": "127.0.0.1"}, bearer("guessed")):
        for path in (JOBS, "/jobs", "/metrics", "/livez"):
            assert await status(node, path, rebound | extra) == 421
    key = await first_key(store)
    assert await status(node, JOBS, rebound) == 401
    assert await status(node, JOBS, rebound | key) == 200  # a name that a proxy passes on
    assert await status(node, "/livez", rebound) == 200


async def test_a_web_page_of_another_origin_changes_nothing_even_with_a_key(node: Pages, store: Store) -> None:
    from_page = {"Origin": "https://evil.example"}
    assert await status(node, f"{JOBS}/x/trigger", from_page, "POST") == 403
    key = await first_key(store)
    assert await status(node, f"{JOBS}/x/trigger", from_page | key, "POST") == 403
    assert await status(node, f"{JOBS}/x/trigger", key, "POST") == 404


# --- required from the start ---


@pytest.mark.parametrize("setting", [{"require_keys": True}, {"allow_shell": ("default",)}])
async def test_where_keys_are_required_this_machine_needs_one_too(database_url: str, setting: dict[str, Any]) -> None:
    async with serving(database_url, **setting) as closed:
        assert [await status(closed, path) for path in (JOBS, "/jobs", "/livez")] == [401, 303, 200]
        assert await status(closed, JOBS, await first_key(closed.store)) == 200


@pytest.mark.parametrize(
    ("setting", "serves_api"),
    [
        ({"host": "0.0.0.0"}, True),
        ({"require_keys": True}, True),
        ({"require_keys": True}, False),
        ({"allow_shell": ("default",)}, False),
    ],
)
async def test_a_node_that_requires_keys_does_not_start_without_one(
    store: Store, setting: dict[str, Any], serves_api: bool
) -> None:
    with pytest.raises(UsageError, match="detent key create --local --scope admin"):
        await check_keys(Settings(**setting), store, serves_api=serves_api)
    await first_key(store)
    await check_keys(Settings(**setting), store, serves_api=serves_api)


# --- without the database ---


@pytest.mark.long
async def test_without_its_database_a_node_answers_nothing_to_a_request_without_a_key(
    node: Pages, postgres: Postgres, database_url: str
) -> None:
    assert await status(node, JOBS) == 200
    name = urlsplit(database_url).path.lstrip("/")
    connection = await asyncpg.connect(postgres.server.url)
    await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    await connection.fetch("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
    await connection.close()
    assert await status(node, KEYS, method="POST") == 503
    assert await status(node, "/livez") == 200


# --- the host that a request names ---


@pytest.mark.parametrize("host", ["localhost", "localhost:8787", "127.0.0.1:8787", "127.0.0.1:", "[::1]", "[::1]:8787"])
def test_this_machine_is_recognised(host: str) -> None:
    assert comes_directly(local_request(host))


@pytest.mark.parametrize(
    "hosts",
    [
        *(("evil.example",), ("127.0.0.1", "evil.example"), ("evil.example", "127.0.0.1"), ("127.0.0.1", "127.0.0.1")),
        *(("[::1]evil.example",), ("localhost:80@evil.example",), ("127.0.0.1:evil",), ("127.0.0.1.evil.example",)),
        *(("0.0.0.0",), ("[::]",), ("2130706433",), ("",), ()),
    ],
    ids=str,
)
def test_a_host_that_two_programs_may_read_differently_is_not_this_machine(hosts: tuple[str, ...]) -> None:
    assert not comes_directly(local_request(*hosts))


def local_request(*hosts: str) -> Request:
    headers = [(b"host", host.encode()) for host in hosts]
    return Request({"type": "http", "client": ("127.0.0.1", 50_000), "headers": headers})


async def test_a_change_is_refused_if_any_of_its_origins_is_another(node: Pages) -> None:
    own = {"Origin": node.url}
    assert (await asked(node.session, "POST", node.url + KEYS, own, json={"scope": "read"}))[0] == 422  # let through
    headers = CIMultiDict([("Origin", node.url), ("Origin", "http://evil.example")])
    code, problem = await asked(node.session, "POST", node.url + KEYS, headers, json={"scope": "admin"})
    assert (code, problem["type"]) == (403, "/problems/cross-origin")
    assert not await node.store.keys.cluster_is_keyed()
