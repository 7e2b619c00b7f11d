"""Tenants over HTTP: suspended, resumed, counted, exported and deleted, and what their own administrators may do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from detent.api.limits import TenantLimiter
from detent.api.problems import Refusal
from detent.api.request_rules import FRESH_SECONDS, VALID_SECONDS, RequestRules
from detent.errors import TenantSuspended, Unavailable
from detent.store.request_budgets import GrantedTokens, RequestBudgetStore
from detent.store.tenants import TenantRule
from detent.upkeep.tenants import TenantUpkeep
from tests.api.api_client import HTTP, ApiClient
from tests.api.api_server import Readiness, serving
from tests.api.test_api_tenants import keyed
from tests.support.waiting import until

API = "/api/v1"
JOB = {"schedule": "every 1h", "target": HTTP}


@pytest.fixture
async def api(database_url: str, readiness: Readiness) -> AsyncIterator[ApiClient]:
    """A server that requires keys, with the tenants acme and rival, and a client of an administrator of all."""
    async with serving(database_url, readiness, require_keys=True) as client:
        client.session.headers.update(await keyed(client, "default"))
        for name in ("acme", "rival"):
            await client.good("POST", f"{API}/tenants", 201, json={"name": name})
        yield client


async def answered(api: ApiClient, status: int, headers: dict[str, str]) -> Any:
    """The first answer with this status: servers obey a change within two seconds."""

    async def asked() -> Any:
        answer = await api.ask("GET", f"{API}/jobs", headers=headers)
        return answer if answer.status == status else None

    return await until(asked, 20, f"status {status}")


async def test_the_requests_of_a_suspended_tenant_are_refused_until_it_is_resumed(api: ApiClient) -> None:
    theirs, rivals = await keyed(api, "acme"), await keyed(api, "rival")
    await api.good("GET", f"{API}/jobs", headers=theirs)
    found = await api.good("POST", f"{API}/tenants/acme/suspend", json={"reason": "unpaid"})
    assert found["suspended_at"] is not None and found["suspended_reason"] == "unpaid"
    await answered(api, 403, theirs)
    for method, path, body in (("GET", "/jobs", None), ("POST", "/jobs", JOB), ("GET", "/tenants/acme", None)):
        options = {} if body is None else {"json": body}
        problem = await api.problem(method, API + path, 403, headers=theirs, **options)
        assert problem["type"] == "/problems/tenant-suspended"
        assert "`detent tenant resume acme`" in problem["detail"]
    await api.good("GET", f"{API}/jobs", headers=rivals)
    assert (await api.good("GET", f"{API}/tenants/acme"))["suspended_by"] is not None
    assert (await api.good("POST", f"{API}/tenants/acme/resume"))["suspended_at"] is None
    await answered(api, 200, theirs)


async def test_a_tenant_is_counted_deleted_when_it_is_suspended_and_gone_at_the_end(api: ApiClient) -> None:
    theirs = await keyed(api, "acme")
    await api.good("POST", f"{API}/jobs", 201, json=JOB, headers=theirs)
    counted = await api.good("GET", f"{API}/tenants/acme/contents")
    assert (counted["rows"]["jobs"], counted["rows"]["api_keys"]) == (1, 1)
    assert counted["total"] == sum(counted["rows"].values())
    problem = await api.problem("POST", f"{API}/tenants/acme/delete", 409)
    assert "`detent tenant suspend acme` first" in problem["detail"]
    await api.good("POST", f"{API}/tenants/acme/suspend")
    first = await api.good("POST", f"{API}/tenants/acme/delete", 202)
    assert first["deletion"]["deleted"] == {}
    assert await api.good("POST", f"{API}/tenants/acme/delete", 202) == first
    assert (await answered(api, 401, theirs)).status == 401  # its keys are revoked at once
    await TenantUpkeep(api.store, 7, timedelta(0)).tick()
    await api.problem("GET", f"{API}/tenants/acme", 404)
    names = [tenant["name"] for tenant in (await api.good("GET", f"{API}/tenants"))["items"]]
    assert names == ["default", "rival"]
    events = await api.good("GET", f"{API}/audit-events?all_tenants=true&object=acme")
    assert [event["action"] for event in events["items"]] == [
        "tenant.deleted", "tenant.delete", "tenant.suspend", "tenant.create",
    ]  # fmt: skip


async def test_an_export_is_read_page_by_page_with_the_cursor_of_its_own_tenant_only(api: ApiClient) -> None:
    await api.good("POST", f"{API}/jobs", 201, json={**JOB, "name": "mine"}, headers=await keyed(api, "acme"))
    rows: list[Any] = []
    cursor: str | None = ""
    first = None
    while cursor is not None:
        page = await api.good("GET", f"{API}/tenants/acme/export" + (f"?cursor={cursor}" if cursor else ""))
        rows, cursor = rows + page["items"], page["next_cursor"]
        first = first or cursor
    assert {row["table"] for row in rows} >= {"tenants", "queues", "jobs", "cursors"}
    (job,) = [row["row"] for row in rows if row["table"] == "jobs"]
    assert (job["name"], job["definition"]["schedule"]) == ("mine", "every 1h")
    assert (await api.problem("GET", f"{API}/tenants/rival/export?cursor={first}", 422))[
        "type"
    ] == "/problems/bad-cursor"


async def test_an_administrator_of_a_tenant_manages_it_and_neither_another_one_nor_the_cluster(
    api: ApiClient,
) -> None:
    theirs = await keyed(api, "acme")
    made = await api.good("POST", f"{API}/keys", 201, json={"scope": "read", "tenant": "acme"}, headers=theirs)
    assert made["tenant"] == "acme"
    listed = (await api.good("GET", f"{API}/keys", headers=theirs))["items"]
    assert {key["tenant"] for key in listed} == {"acme"}
    await api.good("DELETE", f"{API}/keys/{made['id']}", 204, headers=theirs)
    assert (await api.good("GET", f"{API}/tenants/acme/contents", headers=theirs))["rows"]["api_keys"] == 2
    await api.good("GET", f"{API}/tenants/acme/export", headers=theirs)
    rivals = await api.good("POST", f"{API}/keys", 201, json={"scope": "read", "tenant": "rival"})
    refused: list[tuple[str, str, Any]] = [
        ("POST", "/keys", {"scope": "admin", "tenant": "rival"}),
        ("POST", "/keys", {"scope": "admin", "tenant": "default"}),
        ("GET", "/keys?tenant=rival", None),
        ("DELETE", f"/keys/{rivals['id']}?tenant=rival", None),
        ("POST", "/tenants", {"name": "more"}),
        ("GET", "/tenants", None),
        *(("GET", f"/tenants/{name}/{what}", None) for name in ("rival", "nobody") for what in ("contents", "export")),
        *(
            ("POST", f"/tenants/{name}/{verb}", None)
            for name in ("acme", "rival")
            for verb in ("suspend", "resume", "delete")
        ),
        ("PATCH", "/tenants/acme", {"max_storage_bytes": None}),
        ("PATCH", "/tenants/acme", {"requests_per_second": 1000}),
        ("PATCH", "/tenants/rival", {"signing": None}),
        ("POST", "/cluster/pause", {"reason": "x"}),
        ("POST", "/cluster/resume", None),
        ("POST", "/secret-keys/rotate", None),
    ]
    for method, path, body in refused:
        options = {} if body is None else {"json": body}
        problem = await api.problem(method, API + path, 403, headers=theirs, **options)
        assert "default tenant" in problem["detail"], (method, path)
    await api.problem("DELETE", f"{API}/keys/{rivals['id']}", 404, headers=theirs)
    statuses = {key["id"]: key["status"] for key in (await api.good("GET", f"{API}/keys?tenant=rival"))["items"]}
    assert statuses == {rivals["id"]: "active"}


async def test_quotas_of_storage_and_requests_are_set_and_removed(api: ApiClient) -> None:
    body = {"max_storage_bytes": 5_000_000_000, "requests_per_second": 2.5}
    changed = await api.good("PATCH", f"{API}/tenants/acme", json=body)
    assert {name: changed[name] for name in body} == body
    changed = await api.good("PATCH", f"{API}/tenants/acme", json=dict.fromkeys(body))
    assert {name: changed[name] for name in body} == dict.fromkeys(body)
    for bad in ({"max_storage_bytes": 0}, {"requests_per_second": 0}):
        assert (await api.problem("PATCH", f"{API}/tenants/acme", 422, json=bad))["pointer"] == f"/{next(iter(bad))}"


# --- rules without a server ---


class Rules:
    """What the database would say; None: it does not answer."""

    def __init__(self, **rates: float) -> None:
        self.found: dict[int, TenantRule] | None = {2: TenantRule("acme", False, rates.get("acme"))}
        self.read = 0

    async def rules(self) -> dict[int, TenantRule]:
        self.read += 1
        if self.found is None:
            raise Unavailable("away")
        return self.found


class Budgets(RequestBudgetStore):
    def __init__(self) -> None:
        self.asked: list[tuple[int, float]] = []

    async def take(self, tenant: int, wanted: int, per_second: float, size: float) -> GrantedTokens:
        self.asked.append((tenant, per_second))
        return GrantedTokens(0, 0.0)


async def test_a_tenant_with_a_rate_of_its_own_is_limited_by_it_and_the_others_by_the_servers() -> None:
    budgets, now = Budgets(), 0.0
    limiter = TenantLimiter(budgets, 10.0, lambda: now, rules=RequestRules(Rules(acme=2.5), lambda: now))
    for tenant, rate in ((1, "10"), (2, "2.5")):
        with pytest.raises(Refusal, match=f"The limit is {rate} requests per second"):
            await limiter.take(tenant)
    assert budgets.asked == [(1, 10.0), (2, 2.5)]
    unlimited = TenantLimiter(budgets, 0.0, lambda: now, rules=RequestRules(Rules(acme=2.5), lambda: now))
    await unlimited.take(1)
    with pytest.raises(Refusal):
        await unlimited.take(2)


async def test_a_raised_rate_applies_at_once_and_not_after_the_pause_of_the_former_one() -> None:
    budgets, rules, now = Budgets(), Rules(acme=0.001), 0.0
    limiter = TenantLimiter(budgets, 10.0, lambda: now, rules=RequestRules(rules, lambda: now))
    with pytest.raises(Refusal, match="wait 1000 s"):
        await limiter.take(2)
    rules.found = {2: TenantRule("acme", False, 100.0)}
    now += VALID_SECONDS
    with pytest.raises(Refusal, match="wait 1 s"):
        await limiter.take(2)
    assert budgets.asked == [(2, 0.001), (2, 100.0)]


async def test_rules_are_read_again_when_they_are_old_and_the_last_ones_apply_without_a_database() -> None:
    reader, now = Rules(), 0.0
    rules = RequestRules(reader, lambda: now)
    limiter = TenantLimiter(Budgets(), 0.0, lambda: now, rules=rules)
    for _ in range(3):
        await limiter.take(2)
    assert reader.read == 1
    reader.found = {2: TenantRule("acme", True, None)}
    now += FRESH_SECONDS  # read in the background: this request does not wait for it
    await limiter.take(2)
    await until(lambda: reader.read == 2, 5)
    now += VALID_SECONDS
    with pytest.raises(TenantSuspended, match="acme"):
        await limiter.take(2)
    reader.found, now = None, now + VALID_SECONDS
    with pytest.raises(TenantSuspended, match="acme"):
        await limiter.take(2)
    assert reader.read == 4
