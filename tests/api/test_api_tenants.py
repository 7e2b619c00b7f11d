"""Quotas of tenants and limits of queues over HTTP."""

from __future__ import annotations

from typing import Any

from tests.api.api_client import HTTP, ApiClient
from tests.api.api_server import Readiness, serving

JOB = {"schedule": "every 1h", "target": HTTP}


async def keyed(api: ApiClient, tenant: str, scope: Any = "admin") -> dict[str, str]:
    number = await api.store.tenants.number(tenant)
    assert number is not None
    return {"Authorization": f"Bearer {(await api.store.keys.add(scope, tenant=number)).key}"}


async def test_a_tenant_is_made_with_its_quotas_and_they_are_changed_one_by_one(api: ApiClient) -> None:
    made = await api.good("POST", "/api/v1/tenants", 201, json={"name": "acme"})
    assert (made["jobs"], made["max_jobs"], made["weight"], made["max_concurrent"]) == (0, 100_000, 1, None)
    changed = await api.good("PATCH", "/api/v1/tenants/acme", json={"max_jobs": 3, "weight": 5})
    assert (changed["max_jobs"], changed["weight"], changed["max_runs_per_second"]) == (3, 5, None)
    changed = await api.good("PATCH", "/api/v1/tenants/acme", json={"max_runs_per_second": 2.5, "max_jobs": None})
    assert (changed["max_jobs"], changed["weight"], changed["max_runs_per_second"]) == (None, 5, 2.5)
    assert await api.good("GET", "/api/v1/tenants/acme") == changed
    listed = (await api.good("GET", "/api/v1/tenants"))["items"]
    assert [tenant["name"] for tenant in listed] == ["default", "acme"]
    assert listed[1] == changed


async def test_quotas_that_make_no_sense_and_tenants_that_are_not_there_are_refused(api: ApiClient) -> None:
    for body in ({"weight": 0}, {"weight": None}, {"max_jobs": -1}, {"max_runs_per_second": 0}, {"jobs": 4}):
        problem = await api.problem("PATCH", "/api/v1/tenants/default", 422, json=body)
        assert problem["pointer"] == f"/{next(iter(body))}"
    await api.problem("PATCH", "/api/v1/tenants/nobody", 404, json={"weight": 2})
    await api.problem("GET", "/api/v1/tenants/nobody", 404)


async def test_a_quota_that_is_reached_is_a_clear_problem(api: ApiClient) -> None:
    await api.good("POST", "/api/v1/tenants", 201, json={"name": "acme"})
    await api.good("PATCH", "/api/v1/tenants/acme", json={"max_jobs": 2})
    headers = await keyed(api, "acme")
    await api.good("POST", "/api/v1/jobs/batch", json=[JOB, JOB], headers=headers)
    calls: list[tuple[str, str, Any]] = [
        ("POST", "/api/v1/jobs", JOB),
        ("POST", "/api/v1/jobs/batch", [JOB]),
        ("POST", "/api/v1/jobs/batch?mode=upsert", [JOB | {"name": "one"}]),
        ("PUT", "/api/v1/jobs/by-name/one", JOB),
    ]
    for method, path, body in calls:
        problem = await api.problem(method, path, 409, json=body, headers=headers)
        assert problem["type"] == "/problems/quota-reached"
        assert (problem["limit"], problem["used"]) == (2, 2)
        assert "'acme' has 2 jobs and may have 2" in problem["detail"]
        assert "detent tenant quota acme --jobs" in problem["detail"]
    seen = await api.good("GET", "/api/v1/tenants/acme", headers=headers)
    assert (seen["jobs"], seen["max_jobs"]) == (2, 2)


async def test_a_request_that_is_sent_again_reserves_nothing_twice(api: ApiClient) -> None:
    headers = {"Idempotency-Key": "once"}
    for _ in range(3):
        await api.good("POST", "/api/v1/jobs", 201, json=JOB, headers=headers)
    assert (await api.good("GET", "/api/v1/tenants/default"))["jobs"] == 1


async def test_a_tenants_own_administrator_sees_its_quotas_and_cannot_change_them(
    database_url: str, readiness: Readiness
) -> None:
    async with serving(database_url, readiness, require_keys=True) as api:
        for name in ("acme", "rival"):
            await api.store.tenants.add(name)
        headers = await keyed(api, "acme")
        assert (await api.good("GET", "/api/v1/tenants/acme", headers=headers))["max_jobs"] == 100_000
        for method, path, body in (
            ("PATCH", "acme", {"max_jobs": None}),
            ("PATCH", "rival", {"max_jobs": 0}),
            ("GET", "rival", None),
            ("GET", "nobody", None),
        ):
            options = {} if body is None else {"json": body}
            problem = await api.problem(method, f"/api/v1/tenants/{path}", 403, headers=headers, **options)
            assert "default tenant" in problem["detail"]


async def test_a_queue_has_limits_from_when_they_are_put_until_they_are_taken_away(api: ApiClient) -> None:
    await api.create(queue="mail")
    limited = await api.good("PUT", "/api/v1/queues/mail", json={"max_concurrent": 3, "rate_per_second": 0.5})
    assert limited == {
        "name": "mail", "max_concurrent": 3, "rate_per_second": 0.5, "waiting": 0, "ready": 0,
        "running": 0, "oldest_ready_at": None, "oldest_ready_seconds": 0.0, "more": False,
        "channels": [{"channel": limited["channels"][0]["channel"], "needs": ""}],
    }  # fmt: skip
    await api.good("PUT", "/api/v1/queues/mail", json={"max_concurrent": 4})
    await api.good("PUT", "/api/v1/queues/not%20yet", json={"rate_per_second": 9})
    listed = (await api.good("GET", "/api/v1/queues"))["items"]
    assert [(each["name"], each["max_concurrent"], each["rate_per_second"]) for each in listed] == [
        ("default", None, None), ("mail", 4, None), ("not yet", None, 9),
    ]  # fmt: skip
    await api.good("PUT", "/api/v1/queues/not%20yet", json={})
    assert len((await api.good("GET", "/api/v1/queues"))["items"]) == 2


async def test_limits_that_make_no_sense_are_refused(api: ApiClient) -> None:
    for body in ({"max_concurrent": -1}, {"rate_per_second": 0}, {"rate_per_second": "fast"}, {"limit": 1}):
        problem = await api.problem("PUT", "/api/v1/queues/mail", 422, json=body)
        assert problem["pointer"] == f"/{next(iter(body))}"
    await api.problem("PUT", f"/api/v1/queues/{'x' * 201}", 422, json={})


async def test_a_worker_that_pulls_gets_no_more_than_its_queue_allows(api: ApiClient) -> None:
    await api.good("PUT", "/api/v1/queues/mail", json={"max_concurrent": 2})
    for number in range(4):
        await api.create(name=f"job-{number}", queue="mail")
        await api.good("POST", f"/api/v1/jobs/job-{number}/trigger", 202)
    claim = {"worker": "w", "limit": 10, "targets": ["http"]}
    first = (await api.good("POST", "/api/v1/queues/mail/claim", json=claim))["runs"]
    assert len(first) == 2
    assert (await api.good("POST", "/api/v1/queues/mail/claim", json=claim))["runs"] == []
    body = {"token": first[0]["token"]}
    await api.good("POST", f"/api/v1/runs/{first[0]['run_id']}/complete", json=body)
    waited = await api.good("POST", "/api/v1/queues/mail/claim", json=claim | {"wait_seconds": 10})
    assert len(waited["runs"]) == 1
    (queue,) = [each for each in (await api.good("GET", "/api/v1/queues"))["items"] if each["name"] == "mail"]
    assert (queue["waiting"], queue["running"]) == (1, 2)


async def test_the_topic_of_dead_runs_is_set_by_admins_of_the_tenant_and_removed(api: ApiClient) -> None:
    await api.good("POST", "/api/v1/tenants", 201, json={"name": "acme"})
    theirs, topic = await keyed(api, "acme"), {"url": "nats://nats.example:4222", "topic": "dead.runs"}
    changed = await api.good("PATCH", "/api/v1/tenants/acme", json={"dead_letter_topic": topic}, headers=theirs)
    assert changed["dead_letter_topic"] == {"type": "topic", **topic}
    assert (await api.good("GET", "/api/v1/tenants/acme", headers=theirs))["dead_letter_topic"] == {
        "type": "topic", **topic
    }  # fmt: skip
    for member, wrong, pointer in (
        ("url", "ftp://nats.example", "/dead_letter_topic/url"),
        ("topic", "two words", "/dead_letter_topic/topic"),
        ("credentials", {"password": {"secret": "nowhere"}}, "/dead_letter_topic"),
    ):
        body = {"dead_letter_topic": topic | {member: wrong}}
        problem = await api.problem("PATCH", "/api/v1/tenants/acme", 422, json=body, headers=theirs)
        assert problem["pointer"] == pointer
    await api.problem("PATCH", "/api/v1/tenants/default", 403, json={"dead_letter_topic": topic}, headers=theirs)
    changed = await api.good("PATCH", "/api/v1/tenants/acme", json={"dead_letter_topic": None}, headers=theirs)
    assert changed["dead_letter_topic"] is None
