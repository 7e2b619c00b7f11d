"""Secrets over the API: values go in and never come out, and jobs refer only to what exists."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from detent.domain.secret_keys import key_id, read_master_keys
from detent.jobs.secrets import MAX_VERSIONS, SecretCommands
from detent.runtime.envelope import MasterKeys, generate_master_key, generate_signing_key
from detent.store import Store
from tests.api.api_client import ApiClient
from tests.api.api_server import Readiness, serving

VALUE = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"
SECRETS = "/api/v1/secrets"


def http(headers: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "http", "url": "https://example.com/hook", "headers": headers or {}, **more}


async def stored(api: ApiClient, name: str = "payments", value: str = VALUE) -> Any:
    return await api.good("PUT", f"{SECRETS}/{name}", json={"value": value})


# --- values ---


async def test_a_secret_is_created_listed_and_deleted_without_its_value(api: ApiClient, sql: Any) -> None:
    answers = [await stored(api)]
    answers.append(await api.good("GET", SECRETS))
    answers.append(await api.good("GET", f"{SECRETS}/payments"))
    assert answers[0]["version"] == 1
    assert [one["name"] for one in answers[1]["items"]] == ["payments"]
    assert answers[2]["jobs"] == 0
    assert VALUE not in json.dumps(answers)
    row = await sql.fetchrow("SELECT * FROM secret_versions")
    assert VALUE.encode() not in row["ciphertext"] + row["wrapped"] + row["nonce"]
    await api.good("DELETE", f"{SECRETS}/payments", 204)
    assert (await api.good("GET", SECRETS))["items"] == []
    assert await sql.fetchval("SELECT count(*) FROM secret_versions") == 0


async def test_a_new_value_replaces_the_former_one(api: ApiClient, sql: Any) -> None:
    await stored(api)
    again = await stored(api, value="another value")
    assert (again["version"], again["versions"], again["previous_until"]) == (2, 1, None)
    assert await sql.fetchval("SELECT count(*) FROM secret_versions") == 1


async def test_a_rotation_keeps_the_former_value_for_a_while(api: ApiClient, sql: Any) -> None:
    await stored(api)
    rotated = await api.good("POST", f"{SECRETS}/payments/rotate", json={"value": "new value", "keep_seconds": 60})
    assert (rotated["version"], rotated["versions"]) == (2, 2)
    assert rotated["previous_until"] is not None
    await sql.execute("UPDATE secret_versions SET expires_at = now() WHERE version = 1")
    assert (await api.good("GET", f"{SECRETS}/payments"))["versions"] == 1
    await api.store.secrets.purge()
    assert await sql.fetchval("SELECT array_agg(version) FROM secret_versions") == [2]


async def test_a_later_rotation_does_not_prolong_a_former_value(api: ApiClient, sql: Any) -> None:
    await stored(api)
    rotate = f"{SECRETS}/payments/rotate"
    await api.good("POST", rotate, json={"value": "second value", "keep_seconds": 60})
    until = await sql.fetchval("SELECT expires_at FROM secret_versions WHERE version = 1")
    await api.good("POST", rotate, json={"value": "third value", "keep_seconds": 6000})
    assert await sql.fetchval("SELECT expires_at FROM secret_versions WHERE version = 1") == until


async def test_no_secret_has_endless_versions(api: ApiClient) -> None:
    await stored(api)
    rotation = {"value": "another value", "keep_seconds": 600}
    for _ in range(MAX_VERSIONS - 1):
        await api.good("POST", f"{SECRETS}/payments/rotate", json=rotation)
    refused = await api.problem("POST", f"{SECRETS}/payments/rotate", 409, json=rotation)
    assert f"{MAX_VERSIONS} valid versions" in refused["detail"]
    assert (await api.good("GET", f"{SECRETS}/payments"))["version"] == MAX_VERSIONS


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("short", "fewer than 6 characters"),
        ("", "fewer than 6 characters"),
        (123456789, "is not text"),
        (None, "is not text"),
        ({"secret": "x"}, "is not text"),
        ("with \0 inside", "NUL"),
        ("x" * 65_537, "longer than 65536 bytes"),
        ("whsec_tooshort", "cannot sign"),
    ],
)
async def test_a_bad_value_is_refused_without_being_shown(api: ApiClient, value: Any, part: str) -> None:
    refused = await api.problem("PUT", f"{SECRETS}/payments", 422, json={"value": value})
    assert part in refused["detail"]
    assert refused["pointer"] == "/value"
    assert not value or len(str(value)) < 6 or str(value)[:20] not in json.dumps(refused)


@pytest.mark.parametrize("body", [VALUE, [VALUE], {"value": VALUE, "keep_seconds": VALUE}])
async def test_a_body_of_another_form_is_refused_without_being_shown(api: ApiClient, body: Any) -> None:
    """Such as the value alone, without its object."""
    for method, path in (("PUT", "payments"), ("POST", "payments/rotate")):
        refused = await api.problem(method, f"{SECRETS}/{path}", 422, json=body)
        assert VALUE not in json.dumps(refused)


@pytest.mark.parametrize("name", ["env:HOME", "file:x", "a%20b", "-x", "x" * 101, "%C3%A4", "payments%0A"])
async def test_a_bad_name_is_refused(api: ApiClient, name: str) -> None:
    refused = await api.problem("PUT", f"{SECRETS}/{name}", 422, json={"value": VALUE})
    assert refused["pointer"] == "/name"


async def test_an_unknown_secret_is_not_found(api: ApiClient) -> None:
    for method, path, body in (
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", "/rotate", {"value": VALUE}),
    ):
        options = {} if body is None else {"json": body}
        refused = await api.problem(method, f"{SECRETS}/nowhere{path}", 404, **options)
        assert "`detent secret list`" in refused["detail"]


async def test_a_server_without_a_key_says_how_to_get_one(database_url: str) -> None:
    async with serving(database_url, Readiness({})) as api:
        for method, path in (("PUT", "/secrets/payments"), ("POST", "/secret-keys/rotate")):
            options = {"json": {"value": VALUE}} if method == "PUT" else {}
            refused = await api.problem(method, f"/api/v1{path}", 409, **options)
            assert "`detent secret generate-key`" in refused["detail"]


# --- references ---


REFERENCES: list[tuple[dict[str, Any], str]] = [
    ({"target": http({"Authorization": {"secret": "nowhere"}})}, "/target/headers/Authorization/secret"),
    ({"target": {"type": "shell", "command": "true", "env": {"A": {"secret": "nowhere"}}}}, "/target/env/A/secret"),
    ({"target": http(), "payload": {"a": [1, {"b/c": {"secret": "nowhere"}}]}}, "/payload/a/1/b~1c/secret"),
    ({"target": http(), "payload": {"secret": "nowhere"}}, "/payload/secret"),
    ({"target": http(), "signing": {"secret": "nowhere"}}, "/signing/secret"),
]


@pytest.mark.parametrize(("fields", "pointer"), REFERENCES)
async def test_an_unknown_secret_is_refused_at_registration(
    api: ApiClient, sql: Any, fields: dict[str, Any], pointer: str
) -> None:
    job = {"schedule": "every 1h", "name": "job", **fields}
    refused = await api.problem("POST", "/api/v1/jobs", 422, json=job)
    assert refused["pointer"] == pointer
    assert "`detent secret set nowhere`" in refused["detail"]
    plain = {"schedule": "every 1h", "target": http()}
    refused = await api.problem("POST", "/api/v1/jobs/batch", 422, json=[plain, job])
    assert [fault["pointer"] for fault in refused["errors"]] == [f"/1{pointer}"]
    await api.problem("PUT", "/api/v1/jobs/by-name/job", 422, json=job)
    assert await sql.fetchval("SELECT count(*) FROM jobs") == 0
    await stored(api, "nowhere", generate_signing_key())
    made = await api.good("POST", "/api/v1/jobs", 201, json=job)
    assert await sql.fetchval("SELECT secrets FROM jobs WHERE id = $1", made["id"]) == ["nowhere"]


async def test_a_job_is_read_back_as_it_was_written(api: ApiClient) -> None:
    await stored(api)
    target = http({"Authorization": {"secret": "payments"}, "Accept": "text/plain"})
    job = await api.create(name="job", target=target, payload={"key": {"secret": "payments"}})
    assert job["target"]["headers"] == target["headers"]
    assert job["payload"] == {"key": {"secret": "payments"}}
    assert job["signing"] is None
    again = await api.good("GET", "/api/v1/jobs/job")
    assert again["target"]["headers"] == target["headers"]
    assert job["warnings"] == []


async def test_an_object_with_more_than_a_secret_is_data(api: ApiClient, sql: Any) -> None:
    await api.create(name="job", payload={"secret": "x", "other": 1})
    await api.create(name="other", payload={"secret": 5})
    assert await sql.fetchval("SELECT count(*) FROM jobs WHERE secrets IS NOT NULL") == 0


@pytest.mark.parametrize("name", ["has space", "env:", "file:..", "file:a/b", "other:x", ""])
async def test_a_reference_that_cannot_be_a_name_is_refused(api: ApiClient, name: str) -> None:
    refused = await api.problem(
        "POST", "/api/v1/jobs", 422, json={"schedule": "every 1h", "target": http({"X": {"secret": name}})}
    )
    assert refused["pointer"] == "/target/headers/X/secret"
    refused = await api.problem(
        "POST", "/api/v1/jobs", 422, json={"schedule": "every 1h", "target": http(), "payload": {"secret": name}}
    )
    assert refused["pointer"] == "/payload/secret"


@pytest.mark.parametrize("value", ["webhooks", 5, {"name": "webhooks"}, []])
async def test_a_reference_of_another_form_is_refused_with_an_example(api: ApiClient, value: Any) -> None:
    body = {"schedule": "every 1h", "target": http(), "signing": value}
    refused = await api.problem("POST", "/api/v1/jobs", 422, json=body)
    assert refused["pointer"].startswith("/signing")
    header = {"schedule": "every 1h", "target": http({"Accept": "x", "X": value if value != "webhooks" else 5})}
    refused = await api.problem("POST", "/api/v1/jobs", 422, json=header)
    assert refused["pointer"].startswith("/target/headers/X")


async def test_a_job_without_references_is_stored_as_versions_before_read_it(api: ApiClient, sql: Any) -> None:
    await api.create(name="job")
    assert "signing" not in json.loads(await sql.fetchval("SELECT definition FROM jobs"))


async def test_only_http_calls_are_signed(api: ApiClient) -> None:
    target = {"type": "python", "function": "a:b"}
    refused = await api.problem(
        "POST", "/api/v1/jobs", 422, json={"schedule": "@daily", "target": target, "signing": {"secret": "x"}}
    )
    assert refused["pointer"] == "/signing"


async def test_a_secret_in_use_is_not_deleted(api: ApiClient) -> None:
    await stored(api)
    for number in range(7):
        await api.create(name=f"job-{number}", payload={"secret": "payments"})
    refused = await api.problem("DELETE", f"{SECRETS}/payments", 409)
    assert "job-0, job-1, job-2, job-3, job-4 and others" in refused["detail"]
    for number in range(6):
        await api.good("DELETE", f"/api/v1/jobs/job-{number}", 204)
    assert "the job job-6 refers" in (await api.problem("DELETE", f"{SECRETS}/payments", 409))["detail"]
    await api.good("PATCH", "/api/v1/jobs/job-6", json={"payload": None})
    await api.good("DELETE", f"{SECRETS}/payments", 204)
    refused = await api.problem("POST", "/api/v1/jobs/job-6/rollback", 422, json={"revision": 1})
    assert "There is no secret 'payments'" in refused["detail"]


async def test_a_secret_is_not_deleted_under_a_registration(api: ApiClient, sql: Any) -> None:
    """Whichever comes first: the job exists with its secret, or neither does."""
    for number in range(10):
        await stored(api)
        job = {"schedule": "every 1h", "name": f"job-{number}", "target": http(), "payload": {"secret": "payments"}}
        made, gone = await asyncio.gather(
            api.ask("POST", "/api/v1/jobs", json=job), api.ask("DELETE", f"{SECRETS}/payments")
        )
        assert {made.status, gone.status} in ({201, 409}, {422, 204}), (made.document, gone.document)
        if made.status == 201:
            await api.good("DELETE", f"/api/v1/jobs/job-{number}", 204)


async def test_a_trigger_may_refer_to_secrets_with_the_scope_write(api: ApiClient) -> None:
    await stored(api)
    await api.create(name="job")
    scopes: Any = ("operate", "write")
    bearer = {scope: {"Authorization": f"Bearer {(await api.store.keys.add(scope, tenant=1)).key}"} for scope in scopes}
    body = {"payload": {"secret": "payments"}}
    trigger = "/api/v1/jobs/job/trigger"
    refused = await api.problem("POST", trigger, 403, json=body, headers=bearer["operate"])
    assert "scope write" in refused["detail"]
    await api.good("POST", trigger, 202, json=body, headers=bearer["write"])
    unknown = {"payload": [{"secret": "nowhere"}]}
    assert (await api.problem("POST", trigger, 422, json=unknown, headers=bearer["write"]))["pointer"] == (
        "/payload/0/secret"
    )


# --- who sees literal credentials ---


@pytest.fixture
async def readers(api: ApiClient) -> AsyncIterator[dict[str, dict[str, str]]]:
    scopes: Any = ("read", "operate", "write", "admin")
    made = {scope: await api.store.keys.add(scope, tenant=1) for scope in scopes}
    yield {scope: {"Authorization": f"Bearer {key.key}"} for scope, key in made.items()}


async def test_a_literal_credential_is_masked_for_readers(api: ApiClient, readers: dict[str, Any]) -> None:
    headers = {"authorization": f"Bearer {VALUE}", "X-Api-Key": VALUE, "Cookie": VALUE, "X-Secret": VALUE, "A": "b"}
    job = {"schedule": "every 1h", "name": "job", "target": http(headers)}
    made = await api.good("POST", "/api/v1/jobs", 201, json=job, headers=readers["write"])
    assert sum("stored as plain text" in warning for warning in made["warnings"]) == 4
    await api.good("PATCH", "/api/v1/jobs/job", json={"priority": 1}, headers=readers["write"])
    paths = ("/jobs", "/jobs/job", "/jobs/job/revisions", "/jobs/job/revisions/1", "/jobs/job/revisions/2")
    for path in paths:
        answer = await api.good("GET", f"/api/v1{path}", headers=readers["read"])
        assert VALUE not in json.dumps(answer), path
    shown = (await api.good("GET", "/api/v1/jobs/job", headers=readers["read"]))["target"]["headers"]
    assert shown == {"authorization": "********", "X-Api-Key": "********", "Cookie": "********",
                     "X-Secret": "********", "A": "b"}  # fmt: skip
    for scope in ("operate", "write", "admin"):
        seen = await api.good("GET", "/api/v1/jobs/job", headers=readers[scope])
        assert seen["target"]["headers"] == headers, scope


async def test_a_masked_value_cannot_be_written_back(api: ApiClient) -> None:
    refused = await api.problem(
        "POST", "/api/v1/jobs", 422, json={"schedule": "every 1h", "target": http({"Authorization": "********"})}
    )
    assert refused["pointer"] == "/target/headers/Authorization"
    assert "higher scope" in refused["detail"]


# --- master keys ---


async def test_secrets_move_under_a_new_key_while_they_are_used(
    database_url: str, secret_key: str, api: ApiClient, sql: Any
) -> None:
    for number in range(20):
        await stored(api, f"secret-{number}")
    before = {row["name"]: row for row in await sql.fetch("SELECT * FROM secret_versions")}
    new = generate_master_key()
    async with serving(database_url, Readiness({}), secret_key=f"{new},{secret_key}") as other:
        changing = asyncio.gather(*(stored(api, f"secret-{number}", "a new value") for number in range(5)))
        await other.good("POST", "/api/v1/secret-keys/rotate")
        await changing  # under the former key, perhaps after all others were moved
        while (done := await other.good("POST", "/api/v1/secret-keys/rotate"))["remaining"]:
            pass
    assert done["key_id"] == key_id(read_master_keys(new)[0])
    after = {row["name"]: row for row in await sql.fetch("SELECT * FROM secret_versions")}
    assert {row["key_id"] for row in after.values()} == {done["key_id"]}
    same = [name for name in after if name not in {f"secret-{number}" for number in range(5)}]
    assert all(after[name]["ciphertext"] == before[name]["ciphertext"] for name in same)


async def test_a_secret_that_was_created_anew_is_not_put_under_the_data_key_of_its_predecessor(
    store: Store, keys: MasterKeys, secret_key: str
) -> None:
    """It has the same name and version, and another node, which does not have the new key yet, encrypted it."""
    commands = SecretCommands(store, keys)
    await commands.set(1, "payments", VALUE)
    (former,) = await store.secrets.under_other_keys("the new one", 10)
    await commands.delete(1, "payments")
    await commands.set(1, "payments", "another value")
    newer = MasterKeys([bytes(32), *read_master_keys(secret_key)])
    assert await store.secrets.rewrap([(former, newer.rewrap(former.place, former.envelope))]) == 0
    (now,) = await store.secrets.values([(1, "payments")])
    assert keys.open(now.place, now.envelope) == "another value"


async def test_a_secret_that_cannot_be_put_under_a_new_key_is_named(
    database_url: str, secret_key: str, api: ApiClient, sql: Any
) -> None:
    await stored(api)
    await stored(api, "broken")
    await sql.execute(
        "UPDATE secret_versions SET wrapped = set_byte(wrapped, 20, 1 - sign(get_byte(wrapped, 20))::int) "
        "WHERE name = 'broken'"
    )
    async with serving(database_url, Readiness({}), secret_key=f"{generate_master_key()},{secret_key}") as other:
        refused = await other.problem("POST", "/api/v1/secret-keys/rotate", 409)
    assert "'broken' of the tenant 1" in refused["detail"]


async def test_a_key_that_is_missing_is_named(database_url: str, secret_key: str, api: ApiClient) -> None:
    await stored(api)
    async with serving(database_url, Readiness({}), secret_key=generate_master_key()) as other:
        refused = await other.problem("POST", "/api/v1/secret-keys/rotate", 409)
    assert key_id(read_master_keys(secret_key)[0]) in refused["detail"]


# --- tenants ---


async def test_a_tenant_signs_with_one_of_its_secrets(api: ApiClient) -> None:
    await stored(api, "webhooks", generate_signing_key())
    tenant = "/api/v1/tenants/default"
    for wrong in ("nowhere", "env:HOME", {"secret": "webhooks"}):
        assert (await api.problem("PATCH", tenant, 422, json={"signing": wrong}))["pointer"] == "/signing"
    assert (await api.good("PATCH", tenant, json={"signing": "webhooks"}))["signing"] == "webhooks"
    assert "signs the calls" in (await api.problem("DELETE", f"{SECRETS}/webhooks", 409))["detail"]
    assert (await api.good("PATCH", tenant, json={"signing": None}))["signing"] is None
    await api.good("DELETE", f"{SECRETS}/webhooks", 204)


async def test_an_administrator_of_a_tenant_changes_its_signing_and_nothing_else(api: ApiClient) -> None:
    await api.store.tenants.add("shop")
    shop = await api.store.tenants.number("shop")
    assert shop is not None
    headers = {"Authorization": f"Bearer {(await api.store.keys.add('admin', tenant=shop)).key}"}
    await api.good("PUT", f"{SECRETS}/webhooks", json={"value": generate_signing_key()}, headers=headers)
    body = {"signing": "webhooks"}
    assert (await api.good("PATCH", "/api/v1/tenants/shop", json=body, headers=headers))["signing"] == "webhooks"
    await api.problem("PATCH", "/api/v1/tenants/shop", 403, json=body | {"weight": 5}, headers=headers)
    await api.problem("PATCH", "/api/v1/tenants/default", 403, json=body, headers=headers)
