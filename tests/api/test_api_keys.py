"""Keys and tenants over HTTP: made once, listed without secrets, refused within seconds."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import structlog

from detent.api import problems
from detent.api.auth import CACHED_SECONDS, KeyAuthenticator
from detent.api.failed_lookups import FailedLookups
from detent.api.limits import MAX_CALLERS, Limiter, TenantLimiter, network_of
from detent.api.problems import Refusal
from detent.store.jobs import DEFAULT_TENANT
from detent.telemetry import log
from detent.telemetry.log import configure
from tests.api.api_client import HTTP, ApiClient
from tests.api.api_server import Readiness, serving
from tests.support.waiting import until

JOB = {"schedule": "@daily", "target": HTTP}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
async def wide(database_url: str, readiness: Readiness) -> AsyncIterator[ApiClient]:
    """A server that requires keys."""
    async with serving(database_url, readiness, require_keys=True) as client:
        yield client


@pytest.fixture
async def admin(wide: ApiClient) -> dict[str, str]:
    return bearer((await wide.store.keys.add("admin", tenant=DEFAULT_TENANT)).key)


# --- made, listed, revoked ---


async def test_a_key_is_reported_once(wide: ApiClient, admin: dict[str, str]) -> None:
    wanted = {"scope": "operate", "name": "deploys", "expires_in_seconds": 3600}
    made = await wide.good("POST", "/api/v1/keys", 201, json=wanted, headers=admin)
    assert (made["scope"], made["name"], made["tenant"], made["status"]) == ("operate", "deploys", "default", "active")
    listed = await wide.good("GET", "/api/v1/keys", headers=admin)
    assert [key["id"] for key in listed["items"]][1:] == [made["id"]]
    assert made["created_by"] == listed["items"][0]["id"]
    assert made["key"].rpartition("_")[2] not in json.dumps(listed)
    assert "digest" not in listed["items"][0] and "key" not in listed["items"][0]
    await wide.good("GET", "/api/v1/jobs", headers=bearer(made["key"]))


async def test_a_new_key_is_not_kept_with_the_answers_to_requests(
    wide: ApiClient, admin: dict[str, str], sql: Any
) -> None:
    made = await wide.good(
        "POST", "/api/v1/keys", 201, json={"scope": "read"}, headers=admin | {"Idempotency-Key": "once"}
    )
    tables = await sql.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'detent'")
    for table in tables:
        for row in await sql.fetch(f'SELECT t.*::text AS row FROM "{table["tablename"]}" t'):
            assert made["key"].rpartition("_")[2] not in row["row"]
            assert made["key"].encode().hex() not in row["row"]


async def test_the_case_of_the_scheme_does_not_matter(wide: ApiClient, admin: dict[str, str]) -> None:
    key = admin["Authorization"].removeprefix("Bearer ")
    for text in (f"bearer {key}", f"BEARER  {key}"):
        await wide.good("GET", "/api/v1/jobs", headers={"Authorization": text})


async def test_a_revoked_key_is_refused_at_once_here_and_within_seconds_elsewhere(
    wide: ApiClient, admin: dict[str, str], database_url: str, readiness: Readiness
) -> None:
    made = await wide.good("POST", "/api/v1/keys", 201, json={"scope": "read"}, headers=admin)
    async with serving(database_url, readiness, require_keys=True) as other:
        for server in (wide, other):
            await server.good("GET", "/api/v1/jobs", headers=bearer(made["key"]))
        await wide.good("DELETE", f"/api/v1/keys/{made['id']}", 204, headers=admin)
        await wide.problem("GET", "/api/v1/jobs", 401, headers=bearer(made["key"]))

        async def refused() -> bool:
            return (await other.ask("GET", "/api/v1/jobs", headers=bearer(made["key"]))).status == 401

        await until(refused, what="the other server to refuse the key")
        await wide.good("DELETE", f"/api/v1/keys/{made['id']}", 204, headers=admin)


async def test_a_key_is_looked_up_once_in_a_while(wide: ApiClient) -> None:
    """How long a server goes by what it knows of a key, on a clock of the test's own."""
    made = await wide.store.keys.add("read", tenant=DEFAULT_TENANT)
    now = [100.0]
    authenticator = KeyAuthenticator(
        wide.store.keys,
        TenantLimiter(wide.store.request_budgets, 0),
        FailedLookups(0),
        keys_required=True,
        now=lambda: now[0],
    )
    looked = []
    holder = wide.store.keys.holder

    async def counted(credential: Any) -> Any:
        looked.append(credential)
        return await holder(credential)

    wide.store.keys.holder = counted  # type: ignore[method-assign]  # to count what reaches the database
    for step in (0, 0, CACHED_SECONDS / 2, CACHED_SECONDS / 2 - 0.01):
        now[0] += step
        assert (await authenticator.authorise(request_with(made.key), "read")).key == made.id
    assert len(looked) == 1
    now[0] += 0.01
    await wide.store.keys.revoke(made.id, tenant=DEFAULT_TENANT)
    with pytest.raises(Refusal):
        await authenticator.authorise(request_with(made.key), "read")
    assert len(looked) == 2


def request_with(key: str) -> Any:
    from starlette.requests import Request

    headers = [(b"authorization", f"Bearer {key}".encode())]
    return Request({"type": "http", "headers": headers, "client": ("192.0.2.1", 1)})


async def test_keys_are_listed_in_pages(wide: ApiClient, admin: dict[str, str]) -> None:
    for _ in range(4):
        await wide.good("POST", "/api/v1/keys", 201, json={"scope": "read"}, headers=admin)
    seen, cursor = [], ""
    while cursor is not None:
        page = await wide.good("GET", f"/api/v1/keys?limit=2&cursor={cursor}", headers=admin)
        seen += [key["id"] for key in page["items"]]
        cursor = page["next_cursor"]
    assert len(seen) == len(set(seen)) == 5


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/scope"),
        ({"scope": "all"}, "/scope"),
        ({"scope": "read", "expires_in_seconds": 0}, "/expires_in_seconds"),
        ({"scope": "read", "name": "\0"}, "/name"),
        ({"scope": "read", "tenant": "nobody"}, "/tenant"),
        ({"scope": "read", "tenant": "NOT A NAME"}, "/tenant"),
        ({"scope": "read", "key": "dtn_mine"}, "/key"),
    ],
)
async def test_a_bad_key_is_not_made(wide: ApiClient, admin: dict[str, str], body: Any, pointer: str) -> None:
    problem = await wide.problem("POST", "/api/v1/keys", 422, json=body, headers=admin)
    assert problem["pointer"] == pointer


# --- tenants ---


async def test_an_admin_of_the_default_tenant_manages_all_tenants(wide: ApiClient, admin: dict[str, str]) -> None:
    await wide.good("POST", "/api/v1/tenants", 201, json={"name": "acme"}, headers=admin)
    await wide.problem("POST", "/api/v1/tenants", 409, json={"name": "acme"}, headers=admin)
    tenants = (await wide.good("GET", "/api/v1/tenants", headers=admin))["items"]
    assert [tenant["name"] for tenant in tenants] == ["default", "acme"]
    made = await wide.good("POST", "/api/v1/keys", 201, json={"scope": "admin", "tenant": "acme"}, headers=admin)
    assert made["tenant"] == "acme"
    (listed,) = (await wide.good("GET", "/api/v1/keys?tenant=acme", headers=admin))["items"]
    assert listed["id"] == made["id"]
    await wide.problem("DELETE", f"/api/v1/keys/{made['id']}", 404, headers=admin)
    await wide.good("DELETE", f"/api/v1/keys/{made['id']}?tenant=acme", 204, headers=admin)
    await wide.problem("GET", "/api/v1/keys", 401, headers=bearer(made["key"]))


async def test_any_other_admin_manages_one_tenant_and_sees_no_other(wide: ApiClient) -> None:
    await wide.store.tenants.add("acme")
    await wide.store.tenants.add("rival")
    tenant = await wide.store.tenants.number("acme")
    assert tenant is not None
    acme = bearer((await wide.store.keys.add("admin", tenant=tenant)).key)
    for body in ({"scope": "read"}, {"scope": "read", "tenant": "acme"}):
        assert (await wide.good("POST", "/api/v1/keys", 201, json=body, headers=acme))["tenant"] == "acme"
    details = set()
    for name in ("rival", "default", "nobody"):
        body = {"scope": "admin", "tenant": name}
        details.add((await wide.problem("POST", "/api/v1/keys", 403, json=body, headers=acme))["detail"])
        details.add((await wide.problem("GET", f"/api/v1/keys?tenant={name}", 403, headers=acme))["detail"])
        path = f"/api/v1/keys/aaaaaaaaaa?tenant={name}"
        details.add((await wide.problem("DELETE", path, 403, headers=acme))["detail"])
    await wide.problem("GET", "/api/v1/tenants", 403, headers=acme)
    await wide.problem("POST", "/api/v1/tenants", 403, json={"name": "mine"}, headers=acme)
    assert len(details) == 1


async def test_two_tenants_may_use_the_same_name(wide: ApiClient, admin: dict[str, str]) -> None:
    await wide.good("POST", "/api/v1/tenants", 201, json={"name": "acme"}, headers=admin)
    made = await wide.good("POST", "/api/v1/keys", 201, json={"scope": "write", "tenant": "acme"}, headers=admin)
    jobs = [
        await wide.good("PUT", "/api/v1/jobs/by-name/report", 201, json=JOB, headers=headers)
        for headers in (admin, bearer(made["key"]))
    ]
    assert jobs[0]["id"] != jobs[1]["id"]
    for headers, job in zip((admin, bearer(made["key"])), jobs, strict=True):
        assert (await wide.good("GET", "/api/v1/jobs/report", headers=headers))["id"] == job["id"]
        assert len((await wide.good("GET", "/api/v1/jobs", headers=headers))["items"]) == 1


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a b", "a" * 64, "ü", "a/b"])
async def test_a_bad_name_of_a_tenant_is_refused(wide: ApiClient, admin: dict[str, str], name: str) -> None:
    problem = await wide.problem("POST", "/api/v1/tenants", 422, json={"name": name}, headers=admin)
    assert problem["pointer"] == "/name"


# --- without a key ---


async def test_the_body_of_a_request_without_a_key_is_not_read(wide: ApiClient) -> None:
    await wide.problem("POST", "/api/v1/jobs", 401, data=b"{ not json")
    await wide.problem("POST", "/api/v1/jobs", 401, data=b"x" * 2_000_000)


async def test_health_and_the_description_need_no_key(wide: ApiClient) -> None:
    for path in ("/livez", "/readyz", "/version", "/openapi.json"):
        await wide.good("GET", path)
        await wide.good("GET", path, headers=bearer("wrong"))


@pytest.fixture
def logs() -> Iterator[None]:
    """Logging as it was, afterwards."""
    before = logging.root.handlers[:], logging.root.level
    of_handlers = logging.getLogger("detent.run")
    levels = log._level, of_handlers.level
    yield
    structlog.reset_defaults()
    log._level = levels[0]  # otherwise all that come later in this process would tell of every run
    of_handlers.setLevel(levels[1])
    vars(problems.log).pop("bind", None)  # it was kept on first use, with an output that is closed now
    logging.root.handlers[:], logging.root.level = before


@pytest.mark.usefixtures("logs")
async def test_a_key_is_in_no_problem_and_no_log(
    wide: ApiClient, admin: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = admin["Authorization"].rpartition("_")[2]

    async def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(wide.store.jobs, "list", fail)
    monkeypatch.setattr(wide.store.keys, "add", fail)
    for log_format in ("pretty", "json"):
        configure(log_format, "debug")
        answers = [
            await wide.ask("GET", "/api/v1/jobs", headers=admin),
            await wide.ask("POST", "/api/v1/keys", headers=admin, json={"scope": "read", "name": f"n-{secret}"}),
            await wide.ask("GET", "/api/v1/nothing", headers=admin),
            await wide.ask("POST", "/api/v1/jobs", headers=admin, json={"schedule": 1}),
            await wide.ask("GET", "/api/v1/jobs", headers={"Authorization": admin["Authorization"] + "x"}),
        ]
        assert [answer.status for answer in answers] == [500, 500, 404, 422, 401]
        assert not any(secret in str(answer) for answer in answers)
    seen = capfd.readouterr()
    assert "ZeroDivisionError" in seen.out + seen.err
    assert secret not in seen.out + seen.err


# --- how fast ---


async def test_who_asks_too_fast_is_reported_when_to_come_again(database_url: str, readiness: Readiness) -> None:
    async with serving(database_url, readiness, require_keys=True, requests_per_second=0.01) as api:
        keys = [(await api.store.keys.add("read", tenant=DEFAULT_TENANT)).key for _ in range(2)]
        await api.good("GET", "/api/v1/jobs", headers=bearer(keys[0]))
        answer = await api.ask("GET", "/api/v1/jobs", headers=bearer(keys[0]))
        assert (answer.status, answer.document["type"]) == (429, "/problems/too-many-requests")
        assert 90 <= int(answer.headers["Retry-After"]) <= 100
        assert answer.headers["RateLimit-Policy"] == '"requests";q=1;w=100'
        assert answer.headers["RateLimit"] == f'"requests";r=0;t={answer.headers["Retry-After"]}'
        for key in keys:  # the limit is that of the tenant
            await api.problem("GET", "/api/v1/jobs", 429, headers=bearer(key))
        await api.problem("GET", "/api/v1/jobs", 401)
        for _ in range(5):
            await api.good("GET", "/livez")


async def test_the_own_machine_is_not_held_up(database_url: str, readiness: Readiness) -> None:
    async with serving(database_url, readiness, requests_per_second=0.01) as api:
        for _ in range(5):
            await api.good("GET", "/api/v1/jobs")
        for _ in range(2):
            await api.problem("GET", "/api/v1/jobs", 401, headers=bearer("wrong"))


def test_a_bucket_fills_at_its_rate_and_no_higher_than_its_size() -> None:
    now = [0.0]
    limiter = Limiter(10, now=lambda: now[0])

    def taken() -> int:
        count = 0
        try:
            while True:
                limiter.take("a")
                count += 1
        except Refusal:
            return count

    assert taken() == 20
    for passed, expected in ((0.05, 0), (0.05, 1), (1.0, 10), (1000.0, 20)):
        now[0] += passed
        assert taken() == expected
    limiter.take("b")


def test_no_limit_and_many_callers() -> None:
    unlimited = Limiter(0)
    for _ in range(10_000):
        unlimited.take("a")
    limiter = Limiter(0.001, now=lambda: 0.0)
    limiter.take("first")
    for number in range(MAX_CALLERS):
        limiter.take(str(number))
    limiter.take("first")  # forgotten meanwhile: memory is worth more than the memory of one caller


def test_one_machine_with_many_addresses_is_one_caller() -> None:
    assert network_of("192.0.2.7") == "192.0.2.7"
    assert network_of("2001:db8:1:2:3::4") == network_of("2001:db8:1:2:ffff::1") == "2001:db8:1:2::/64"
    assert network_of("::ffff:192.0.2.7") == "::ffff:192.0.2.7"
    assert network_of("testclient") == "testclient"
