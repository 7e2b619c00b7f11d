"""Roles that are bound to keys: every role on every route, in one tenant and beyond, for all jobs and for some."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from detent.api.role_limits import knows_limits
from detent.contract.role_binding import RoleBindingSpec
from detent.domain.roles import PERMITTED, ROLES, Role
from tests.api.api_client import ApiClient
from tests.api.api_server import Readiness, serving
from tests.api.test_api_reruns import dead_run
from tests.api.test_route_matrix import OF_ALL_TENANTS, ask, calls, described, tells, whole
from tests.api.two_tenants import JOB, MARKER, SECRET_KEY, World, made_world, rows_of_rival

API = "/api/v1"


@pytest.fixture
async def api(database_url: str, readiness: Readiness) -> AsyncIterator[ApiClient]:
    settings = {"require_keys": True, "failed_keys_per_second": 0, "secret_key": SECRET_KEY}
    async with serving(database_url, readiness, **settings) as client:
        yield client


@pytest.fixture
async def world(api: ApiClient, sql: Any) -> World:
    return await made_world(api.store, sql)


async def bound_key(api: ApiClient, tenant: str, *bindings: tuple[Role, str | None, str | None]) -> str:
    """The header of a key that has these roles and nothing else: role, queue, tag."""
    number = await api.store.tenants.number(tenant)
    assert number is not None
    key = await api.store.keys.add("bound", tenant=number)
    for role, queue, tag in bindings:
        spec = RoleBindingSpec(subject_kind="key", subject=key.id, role=role, queue=queue, tag=tag)
        await api.store.role_bindings.add(spec, tenant=number, by="test")
    return f"Bearer {key.key}"


# --- every role, every route, every tenant ---


@pytest.mark.parametrize(
    "role", [role if role in ("viewer", "admin") else pytest.param(role, marks=pytest.mark.long) for role in ROLES]
)
@pytest.mark.parametrize("tenant", ["acme", "default"])
async def test_a_role_permits_its_routes_in_its_tenant_and_nothing_else(
    api: ApiClient, world: World, sql: Any, role: Role, tenant: str
) -> None:
    key, before = await bound_key(api, tenant, (role, None, None)), await rows_of_rival(sql)
    # A name that is put is then the caller's own, so this comes last.
    for call in sorted(calls(await described(api), world), key=lambda call: call.method == "PUT"):
        if tenant == "default" and call.template in OF_ALL_TENANTS:
            continue  # who looks after all tenants sees and changes them
        answer = await ask(api, call, key)
        if call.scope != "public" and call.scope not in PERMITTED[role]:
            assert answer.status == 403, (call, answer.document)
            assert f"the role {role}, and this needs {call.scope}" in answer.document["detail"], call
        elif call.template in OF_ALL_TENANTS:
            assert answer.status == 403 and "default tenant" in answer.document["detail"], call
        else:
            assert answer.status < 500 and answer.status not in (401, 403), (call, answer.document)
        assert not tells(answer, call), (call, whole(answer))
    assert await rows_of_rival(sql) == before


@pytest.mark.parametrize("limit", [("mine", None), pytest.param((None, "mine"), marks=pytest.mark.long)], ids=str)
@pytest.mark.parametrize("role", ["editor", pytest.param("viewer", marks=pytest.mark.long)])
async def test_a_limited_role_neither_sees_nor_changes_other_jobs_of_its_tenant(
    api: ApiClient, world: World, sql: Any, role: Role, limit: tuple[str | None, str | None]
) -> None:
    """The key is one of the rival's own tenant; none of its jobs is in the queue or has the tag `mine`."""
    key, before = await bound_key(api, f"{MARKER}-tenant", (role, *limit)), await rows_of_rival(sql)
    # A name that is put is then the caller's own, so this comes last.
    for call in sorted(calls(await described(api), world), key=lambda call: call.method == "PUT"):
        answer = await ask(api, call, key)
        if call.scope == "public":
            continue
        if call.scope not in PERMITTED[role]:
            assert answer.status == 403, call
        elif not knows_limits(call.template):
            assert answer.status == 403 and "limited to the" in answer.document["detail"], (call, answer.document)
        else:
            assert answer.status < 500 and answer.status != 401, (call, answer.document)
            assert answer.status != 403 or "limited to the" in answer.document["detail"], (call, answer.document)
        assert not tells(answer, call), (call, whole(answer))
    assert await rows_of_rival(sql) == before


async def test_a_key_without_bindings_may_do_nothing(api: ApiClient, world: World) -> None:
    headers = {"Authorization": await bound_key(api, "acme")}
    problem = await api.problem("GET", f"{API}/jobs", 403, headers=headers)
    assert problem["detail"].startswith("This key has no role, and this needs read")


# --- limits, one by one ---


async def two_queues(api: ApiClient, **fields: str) -> dict[str, str]:
    """A job in the queue `mine`, one in `other`; the headers of an administrator of their tenant."""
    admin = {"Authorization": f"Bearer {(await api.store.keys.add('admin', tenant=1)).key}"}
    for name in ("mine", "other"):
        body = {**JOB, "name": name, "queue": name, "tags": [name, "both"], **fields}
        await api.good("POST", f"{API}/jobs", 201, json=body, headers=admin)
    return admin


@pytest.mark.parametrize("limit", [("mine", None), (None, "mine"), ("mine", "both")], ids=str)
async def test_lists_have_the_jobs_and_runs_within_the_limits(
    api: ApiClient, sql: Any, limit: tuple[str | None, str | None]
) -> None:
    admin = await two_queues(api)
    limited = {"Authorization": await bound_key(api, "default", ("operator", *limit))}
    for name in ("mine", "other"):
        await api.good("POST", f"{API}/jobs/{name}/trigger", 202, headers=admin)

    for path, field in (
        ("/jobs", "name"),
        ("/jobs?prefix=m", "name"),
        ("/runs", "job"),
        ("/runs?status=pending", "job"),
    ):
        page = await api.good("GET", f"{API}{path}", headers=limited)
        assert [item[field] for item in page["items"]] == ["mine"], path
    await sql.execute(
        "INSERT INTO incidents (tenant, job, kind, within, tick, misses)"
        " SELECT tenant, job, 'start', interval '1 minute', now(), 1 FROM jobs"
    )
    for path in ("/incidents", "/incidents?open=true"):
        page = await api.good("GET", f"{API}{path}", headers=limited)
        assert [item["job"] for item in page["items"]] == ["mine"], path
    hidden = await api.good("GET", f"{API}/runs", headers=admin)
    other_job = next(run["job_id"] for run in hidden["items"] if run["job"] == "other")
    assert (await api.good("GET", f"{API}/incidents?job={other_job}", headers=limited))["items"] == []
    other = next(run["id"] for run in hidden["items"] if run["job"] == "other")
    await api.problem("GET", f"{API}/runs/{other}", 404, headers=limited)
    await api.problem("POST", f"{API}/runs/{other}/cancel", 404, headers=limited)
    await api.problem("POST", f"{API}/jobs/other/pause", 404, headers=limited)


async def test_dead_runs_beyond_the_limits_are_neither_listed_nor_redriven_nor_discarded(
    api: ApiClient, sql: Any
) -> None:
    admin = await two_queues(api, queue="default")
    api.session.headers["Authorization"] = admin["Authorization"]
    dead = {name: (await dead_run(api, sql, name))["id"] for name in ("mine", "other")}
    limited = {"Authorization": await bound_key(api, "default", ("operator", None, "mine"))}

    page = await api.good("GET", f"{API}/dead-letters", headers=limited)
    assert [run["id"] for run in page["items"]] == [dead["mine"]]
    groups = await api.good("GET", f"{API}/dead-letters/groups", headers=limited)
    assert groups["runs"] == 1
    for verb in ("redrive", "discard"):
        body = {"runs": [dead["other"]]}
        await api.ask("POST", f"{API}/dead-letters/{verb}", json=body, headers=limited)
        await api.ask("POST", f"{API}/dead-letters/{verb}", json={"all": True}, headers=limited)
    page = await api.good("GET", f"{API}/dead-letters", headers=admin)
    assert [run["id"] for run in page["items"]] == [dead["other"]]


async def test_an_editor_of_a_queue_registers_and_keeps_jobs_in_it(api: ApiClient) -> None:
    await two_queues(api)
    editor = {"Authorization": await bound_key(api, "default", ("editor", "mine", None))}

    await api.good("PUT", f"{API}/jobs/by-name/new", 201, json={**JOB, "queue": "mine"}, headers=editor)
    problem = await api.problem("POST", f"{API}/jobs", 403, json={**JOB, "name": "x", "queue": "other"}, headers=editor)
    assert "limited to the queue 'mine'" in problem["detail"]
    await api.problem("POST", f"{API}/jobs/batch", 403, json=[{**JOB, "queue": "mine"}, JOB], headers=editor)
    await api.problem("PATCH", f"{API}/jobs/mine", 403, json={"queue": "other"}, headers=editor)
    taken = {**JOB, "queue": "mine"}
    await api.problem("PUT", f"{API}/jobs/by-name/other", 409, json=taken, headers=editor)


async def test_a_bulk_delete_reaches_only_jobs_that_the_caller_may_delete(api: ApiClient) -> None:
    admin = await two_queues(api)
    mixed = {"Authorization": await bound_key(api, "default", ("editor", "mine", None), ("operator", "other", None))}
    body = {"action": "delete", "filter": "name:*"}

    result = await api.good("POST", f"{API}/bulk", json=body, headers=mixed)

    assert result["changed"] == 1
    left = await api.good("GET", f"{API}/jobs", headers=admin)
    assert [job["name"] for job in left["items"]] == ["other"]


async def test_the_kept_answer_of_another_caller_is_not_given_to_a_limited_one(api: ApiClient) -> None:
    admin = await two_queues(api)
    limited = {"Authorization": await bound_key(api, "default", ("operator", "mine", None))}
    once = {"Idempotency-Key": "deploy-1"}
    await api.good("POST", f"{API}/jobs/other/trigger", 202, headers={**admin, **once})
    problem = await api.problem("POST", f"{API}/jobs/other/trigger", 422, headers={**limited, **once})
    assert "was used for another request" in problem["detail"]


async def test_a_worker_claims_from_the_queue_of_its_role(api: ApiClient) -> None:
    admin = await two_queues(api)
    worker = {"Authorization": await bound_key(api, "default", ("operator", "mine", None))}
    tagged = {"Authorization": await bound_key(api, "default", ("operator", None, "mine"))}
    claim = {"worker": "w", "targets": ["http"]}
    await api.good("POST", f"{API}/jobs/mine/trigger", 202, headers=admin)

    await api.problem("POST", f"{API}/queues/other/claim", 403, json=claim, headers=worker)
    await api.problem("POST", f"{API}/queues/mine/claim", 403, json=claim, headers=tagged)
    claimed = await api.good("POST", f"{API}/queues/mine/claim", json=claim, headers=worker)
    assert [run["job"] for run in claimed["runs"]] == ["mine"]
    await api.good("POST", f"{API}/jobs/other/trigger", 202, headers=admin)
    (other,) = (await api.good("POST", f"{API}/queues/other/claim", json=claim, headers=admin))["runs"]
    token = {"token": other["token"]}
    await api.problem("POST", f"{API}/runs/{other['run_id']}/heartbeat", 404, json=token, headers=worker)
    await api.problem("POST", f"{API}/runs/{other['run_id']}/complete", 404, json=token, headers=worker)
    failed = {**token, "error": "x"}
    await api.problem("POST", f"{API}/runs/{other['run_id']}/fail", 404, json=failed, headers=worker)
    (mine,) = claimed["runs"]
    await api.good("POST", f"{API}/runs/{mine['run_id']}/complete", json={"token": mine["token"]}, headers=worker)


async def test_header_values_are_masked_if_the_caller_is_a_viewer_of_some_jobs(api: ApiClient) -> None:
    admin = await two_queues(api)
    target = {**JOB["target"], "headers": {"Authorization": "Bearer zq7"}}  # type: ignore[dict-item]  # a dict, too
    await api.good("PATCH", f"{API}/jobs/other", json={"target": target}, headers=admin)
    mixed = await bound_key(api, "default", ("viewer", None, None), ("editor", "mine", None))

    job = await api.good("GET", f"{API}/jobs/other", headers={"Authorization": mixed})

    assert job["target"]["headers"] == {"Authorization": "********"}


# --- bindings ---


async def test_bindings_are_managed_by_administrators_of_the_tenant(api: ApiClient, world: World) -> None:
    admin = {"Authorization": f"Bearer {world.keys['acme']['admin']}"}
    body = {"subject_kind": "group", "subject": "ops", "role": "operator", "queue": "mail"}

    made = await api.good("POST", f"{API}/role-bindings", 201, json=body, headers=admin)
    assert made["tenant"] == "acme"
    await api.problem("POST", f"{API}/role-bindings", 409, json=body, headers=admin)
    elsewhere = {**body, "tenant": f"{MARKER}-tenant"}
    await api.problem("POST", f"{API}/role-bindings", 403, json=elsewhere, headers=admin)
    page = await api.good("GET", f"{API}/role-bindings", headers=admin)
    assert [item["id"] for item in page["items"]] == [made["id"]]
    await api.problem("DELETE", f"{API}/role-bindings/{world.binding}", 404, headers=admin)
    await api.good("DELETE", f"{API}/role-bindings/{made['id']}", 204, headers=admin)


async def test_a_binding_that_cannot_be_is_refused_with_a_sentence(api: ApiClient, world: World) -> None:
    admin = {"Authorization": f"Bearer {world.keys['acme']['admin']}"}
    limited = {"subject_kind": "user", "subject": "ada", "role": "admin", "queue": "mail"}
    problem = await api.problem("POST", f"{API}/role-bindings", 422, json=limited, headers=admin)
    assert "The role admin is about the whole tenant" in problem["detail"]
    unknown = {"subject_kind": "key", "subject": world.key, "role": "viewer"}  # a key of another tenant
    problem = await api.problem("POST", f"{API}/role-bindings", 422, json=unknown, headers=admin)
    assert "There is no key" in problem["detail"]
