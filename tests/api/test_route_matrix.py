"""Every route of the OpenAPI document, with every kind of key, against what another tenant has."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

import detent.api
from detent.api.app import create_app
from detent.domain.roles import GRANTS
from detent.store import Database, Store
from detent.store.db import PoolName
from tests.api.api_client import Answer, ApiClient
from tests.api.api_server import Readiness, serving
from tests.api.two_tenants import JOB, MARKED_JOB, MARKER, SCOPES, SECRET_KEY, World, made_world, nobodys, rows_of_rival
from tests.support.postgres import RUNTIME_ROLE

TRACE = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
PUBLIC = {"/livez", "/readyz", "/version"}
# Only administrators of the default tenant may use these.
OF_ALL_TENANTS = {
    *("/api/v1/tenants", "/api/v1/tenants/{name}", "/api/v1/cluster/pause", "/api/v1/cluster/resume"),
    *(f"/api/v1/tenants/{{name}}/{verb}" for verb in ("suspend", "resume", "delete", "contents", "export")),
    *("/api/v1/tenants/{name}/enqueue-grants", "/api/v1/tenants/{name}/enqueue-grants/{role}"),
    "/api/v1/secret-keys/rotate",
    *(f"/api/v1/cluster/nodes/{{id}}/{verb}" for verb in ("drain", "resume", "dismiss")),
    *("/api/v1/audit-events/chain", "/api/v1/audit-events/chain/ends"),
}
ANSWER = aiohttp.ClientTimeout(total=20)

CLAIM = {"worker": "w", "limit": 10, "targets": ["http", "python", "shell"]}


def bodies(world: World) -> dict[str, list[Any]]:
    """Bodies that are good, where the schema alone does not tell them, with the rival's ids where one has a place."""
    return {
        "JobSpec": [JOB],
        "NewRun": [{"payload": 1, "unique_key": "a"}],
        "JobPatch": [{"priority": 1}],
        "TenantSpec": [{"name": "beta"}],
        "NewRoleBinding": [{"subject_kind": "user", "subject": "someone", "role": "viewer"}],
        "ClaimRequest": [CLAIM],
        "PreviewRequest": [{"schedule": "@daily"}],
        "BulkRequest": [
            {"action": action, "filter": found, "dry_run": dry_run}
            for action in ("pause", "resume", "retry", "cancel")
            for found in (f"tag:{MARKER}-tag", "name:*")
            for dry_run in (True, False)
        ],
        "SkipRequest": [{"at": "2020-03-01T00:00:00Z"}],
        "Rollback": [{"revision": 1}],
        "AlertRuleSpec": [
            {"name": "a", "events": ["dead"], "receiver": {"type": "slack", "url": "http://127.0.0.1:9/"}}
        ],
        "AlertRulePatch": [{"enabled": False}],
        "SecretValue": [{"value": "a value of acme"}],
        "SecretRotation": [{"value": "another value", "keep_seconds": 60}],
        "BackfillRequest": [{"from": "2020-03-01T00:00:00Z", "to": "2020-03-02T00:00:00Z"}],
        "ChosenRuns": [
            {"runs": [world.run, world.dead_run]},
            {"all": True, "job": world.job},
            {"all": True, "job": world.job_name},
            {"all": True},
        ],
    }


class Call(NamedTuple):
    """One request of the walk."""

    method: str
    template: str
    path: str
    body: Any
    scope: str

    def of_nobody(self, world: World) -> Call:
        """The same call with ids and names that do not exist."""
        return self._replace(path=nobodys(world, self.path), body=json.loads(nobodys(world, json.dumps(self.body))))


@pytest.fixture
async def api(database_url: str, readiness: Readiness) -> AsyncIterator[ApiClient]:
    """A server that requires keys."""
    settings = {"require_keys": True, "failed_keys_per_second": 0, "secret_key": SECRET_KEY}
    async with serving(database_url, readiness, **settings) as client:
        yield client


@pytest.fixture
async def world(api: ApiClient, sql: Any) -> World:
    return await made_world(api.store, sql)


async def described(api: ApiClient) -> Any:
    return await api.good("GET", "/openapi.json")


def calls(document: Any, world: World) -> Iterator[Call]:
    """Every operation, with the rival's ids and names wherever the path names something."""
    for template, operations in document["paths"].items():
        for method, operation in operations.items():
            scope = operation["security"][0]["key"][0] if operation["security"] else "public"
            for body in _bodies(document, operation, bodies(world)):
                for path in _paths(template, world):
                    yield Call(method.upper(), template, path, body, scope)


def _paths(template: str, world: World) -> list[str]:
    if "{" not in template:
        return [template]
    names: dict[str, list[Any]] = {
        "/jobs/": [world.job, world.job_name],
        "/tasks/": [world.job, world.job_name, world.task_name],
        "/runs/": [world.run, world.dead_run],
        "/keys/": [world.key],
        "/queues/": [MARKED_JOB["queue"], "default"],
        "/tenants/": [f"{MARKER}-tenant"],
        "/secrets/": [f"{MARKER}-secret"],
        "/role-bindings/": [world.binding],
        "/alert-rules/": [f"{MARKER}-rule"],
    }
    known = next((values for part, values in names.items() if part in template), [world.job_name])
    start, rest = (
        template.partition("{")[0],
        template.partition("}")[2].replace("{revision}", "1").replace("{role}", RUNTIME_ROLE),
    )
    assert "{" not in rest, f"{template}: say in this test what its second part is"
    return [f"{start}{value}{rest}" for value in known]


def _bodies(document: Any, operation: Any, known: dict[str, list[Any]]) -> list[Any]:
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" not in content:
        return [None]
    schema = content["application/json"]["schema"]
    return known.get(_name(schema)) or [_sample(document, schema, known)]


def _name(schema: Any) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _sample(document: Any, schema: Any, known: dict[str, list[Any]]) -> Any:
    """A value that the schema allows, as small as can be."""
    if name := _name(schema):
        return known[name][0] if name in known else _sample(document, document["components"]["schemas"][name], known)
    if "anyOf" in schema or "oneOf" in schema:
        return _sample(document, (schema.get("anyOf") or schema["oneOf"])[0], known)
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    match schema.get("type"):
        case "object":
            return {name: _sample(document, schema["properties"][name], known) for name in schema.get("required", ())}
        case "array":
            return [_sample(document, schema["items"], known)] * schema.get("minItems", 0)
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case "null":
            return None
        case _:
            return "x" * max(1, schema.get("minLength", 1))


async def ask(api: ApiClient, call: Call, key: str | None = None) -> Answer:
    headers = TRACE | ({} if key is None else {"Authorization": key})
    options = {} if call.body is None else {"json": call.body}
    return await api.ask(call.method, call.path, headers=headers, timeout=ANSWER, **options)


def whole(answer: Answer) -> str:
    """All that the answer says, in its headers too."""
    return json.dumps([dict(answer.headers), answer.document], ensure_ascii=False)


def tells(answer: Answer, call: Call) -> bool:
    """Whether the answer tells anything of the rival that the request did not say itself."""
    text = whole(answer)
    for part in set(re.findall(rf"{MARKER}[\w-]*", f"{call.path} {json.dumps(call.body)}")):
        text = text.replace(part, "")
    return MARKER in text


# --- keys that are not good ---


async def test_nothing_but_health_answers_without_a_key(api: ApiClient, world: World) -> None:
    bodies = set()
    for call in calls(await described(api), world):
        answer = await ask(api, call)
        assert (call.scope == "public") == (call.template in PUBLIC), call
        assert (answer.status == 401) == (call.scope != "public"), call
        if call.scope != "public":
            assert answer.headers["WWW-Authenticate"] == 'Bearer realm="detent"'
            head = await api.ask("HEAD", call.path) if call.method == "GET" else answer
            assert head.status == 401, call
            bodies.add(json.dumps(answer.document))
    assert len(bodies) == 1


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)])
async def test_every_key_that_is_not_good_is_refused_in_the_same_words(
    api: ApiClient, world: World, sql: Any, every: int
) -> None:
    """In the short profile each bad key is tried on some of the routes, another one on others."""
    before = await rows_of_rival(sql)
    answers = set()
    for number, (what, key) in enumerate(world.bad_keys.items()):
        for call in list(calls(await described(api), world))[number % every :: every]:
            answer = await ask(api, call, key)
            assert (answer.status == 401) == (call.scope != "public"), (what, call)
            if call.scope != "public":
                headers = {name: text for name, text in answer.headers.items() if name != "Date"}
                answers.add(json.dumps([headers, answer.document]))
    assert len(answers) == 1
    assert await rows_of_rival(sql) == before


async def test_two_keys_in_one_request_are_refused(api: ApiClient, world: World) -> None:
    good = f"Bearer {world.keys['acme']['admin']}"
    headers = [("Authorization", good), ("Authorization", good)]
    await api.problem("GET", "/api/v1/jobs", 401, headers=headers)


# --- keys that are good, for less ---


@pytest.mark.parametrize(
    "scope", [scope if scope in ("read", "write") else pytest.param(scope, marks=pytest.mark.long) for scope in SCOPES]
)
async def test_a_key_may_do_what_its_scope_grants_and_nothing_else(
    api: ApiClient, world: World, scope: Any, sql: Any
) -> None:
    for call in calls(await described(api), world):
        answer = await ask(api, call, f"Bearer {world.keys['acme'][scope]}")
        allowed = call.scope == "public" or call.scope in GRANTS[scope]
        if not allowed:
            assert answer.status == 403, (call, answer.document)
            assert call.scope in answer.document["detail"], call
        elif call.template in OF_ALL_TENANTS:
            assert answer.status == 403 and "default tenant" in answer.document["detail"], call
        else:
            assert answer.status < 500 and answer.status not in (401, 403), (call, answer.document)


# --- another tenant's rows ---


@pytest.mark.parametrize("scopes", [SCOPES[-1:], pytest.param(SCOPES[:-1], marks=pytest.mark.long)], ids="+".join)
@pytest.mark.parametrize("tenant", ["acme", "default"])
async def test_what_another_tenant_has_is_answered_like_what_does_not_exist(
    api: ApiClient, world: World, sql: Any, tenant: str, scopes: Sequence[str]
) -> None:
    before = await rows_of_rival(sql)
    document = await described(api)
    for scope in scopes:
        key = f"Bearer {world.keys[tenant][scope]}"
        # A name that is put is then the caller's own, so this comes last.
        for call in sorted(calls(document, world), key=lambda call: call.method == "PUT"):
            if tenant == "default" and call.template.startswith(("/api/v1/tenants", "/api/v1/audit-events/chain")):
                continue  # who looks after all tenants sees their names, and all that was changed
            answer = await ask(api, call, key)
            assert not tells(answer, call), (call, whole(answer))
            if call == call.of_nobody(world):
                continue
            unknown = await ask(api, call.of_nobody(world), key)
            assert answer.status == unknown.status, call
            if answer.status >= 400 or call.method != "PUT":
                assert nobodys(world, json.dumps(answer.document)) == json.dumps(unknown.document), call
            elif "/jobs/" in call.template:
                await delete(api, world, tenant, answer.document["id"], unknown.document["id"])
    assert await rows_of_rival(sql) == before


async def delete(api: ApiClient, world: World, tenant: str, *jobs: str) -> None:
    for job in jobs:
        headers = {"Authorization": f"Bearer {world.keys[tenant]['admin']}"}
        await api.good("DELETE", f"/api/v1/jobs/{job}", 204, headers=headers)


async def test_no_filter_finds_what_another_tenant_has(api: ApiClient, world: World) -> None:
    document = await described(api)
    words = [world.job, world.run, world.key, *_texts(MARKED_JOB), f"{MARKER}-reason", f"{MARKER}-tenant"]
    for call in calls(document, world):
        if call.method != "GET" or "{" in call.template or call.scope == "public":
            continue
        parameters = document["paths"][call.template]["get"]["parameters"]
        for name in (parameter["name"] for parameter in parameters if parameter["in"] == "query"):
            for word in words:
                asked = call._replace(path=f"{call.path}?{name}={word}")
                answer = await ask(api, asked, f"Bearer {world.keys['acme']['admin']}")
                assert answer.status < 500, asked
                assert not tells(answer, asked), asked


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str) and MARKER in value and "{" not in value:
        yield value.rpartition("/")[2]
    elif isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _texts(entry)


async def test_a_cursor_is_worth_nothing_to_another_tenant_or_another_query(api: ApiClient, world: World) -> None:
    document = await described(api)
    replayed = 0
    for call in calls(document, world):
        names = {
            parameter["name"] for parameter in document["paths"][call.template].get("get", {}).get("parameters", ())
        }
        if call.method != "GET" or not {"cursor", "limit"} <= names:
            continue
        page = await ask(api, call._replace(path=f"{call.path}?limit=1"), f"Bearer {world.keys['rival']['admin']}")
        cursor = page.document.get("next_cursor") if page.status == 200 else None
        if cursor is None:
            continue
        replayed += 1
        assert MARKER not in cursor
        for other in calls(document, world):
            if other.method == "GET" and {"cursor", "limit"} <= {
                parameter["name"] for parameter in document["paths"][other.template]["get"]["parameters"]
            }:
                replay = other._replace(path=f"{other.path}?limit=1&cursor={cursor}")
                answer = await ask(api, replay, f"Bearer {world.keys['acme']['admin']}")
                assert answer.status in (403, 404, 422), (call, other)
                assert not tells(answer, other)
    assert replayed >= 3


async def test_a_tenant_sees_all_that_it_has(api: ApiClient, world: World) -> None:
    """What the searches above look for is there to be found."""
    key = {"Authorization": f"Bearer {world.keys['rival']['admin']}"}
    seen = ""
    for path in ("/jobs", f"/jobs/{world.job}", f"/jobs/{MARKER}-paused", "/runs", f"/runs/{world.dead_run}", "/keys"):
        seen += json.dumps(await api.good("GET", f"/api/v1{path}", headers=key))
    for queue in (MARKED_JOB["queue"], "default"):
        claimed = await api.good("POST", f"/api/v1/queues/{queue}/claim", headers=key, json=CLAIM)
        assert MARKER in json.dumps(claimed), queue
    for part in (
        "name",
        "url",
        "header",
        "field",
        "payload",
        "queue",
        "tag",
        "reason",
        "result",
        "error",
        "tenant",
        "tenant-key",
    ):
        assert f"{MARKER}-{part}" in seen, part


async def test_the_same_name_and_the_same_idempotency_key_are_another_tenants_own(
    api: ApiClient, world: World, sql: Any
) -> None:
    made = []
    for tenant in ("rival", "acme"):
        headers = {"Authorization": f"Bearer {world.keys[tenant]['write']}", "Idempotency-Key": "the-same"}
        made.append(await api.good("POST", "/api/v1/jobs", 201, json=JOB, headers=headers))
    assert made[0]["id"] != made[1]["id"]
    before = await rows_of_rival(sql)
    headers = {"Authorization": f"Bearer {world.keys['acme']['write']}"}
    for mode in ("create", "upsert"):
        await api.good(
            "POST", f"/api/v1/jobs/batch?mode={mode}", json=[JOB | {"name": world.job_name}], headers=headers
        )
    assert await rows_of_rival(sql) == before


# --- no route can be forgotten ---


@pytest.mark.long
async def test_a_server_on_loopback_needs_keys_as_any_other_once_there_is_one(
    database_url: str, readiness: Readiness, sql: Any
) -> None:
    async with serving(database_url, readiness) as api:
        world = await made_world(api.store, sql)
        document = await described(api)
        for call in calls(document, world):
            answer = await ask(api, call)
            assert (answer.status == 401) == (call.scope != "public"), (call, answer.document)
            if call.scope != "public":
                assert (await ask(api, call, world.bad_keys["revoked"])).status == 401
                assert (await ask(api, call, f"Bearer {world.keys['acme']['admin']}")).status != 401


def test_every_call_of_the_store_names_the_tenant() -> None:
    """A verb that knows tenants and is called without one would answer for the default tenant."""
    rooms = typing_rooms()
    found = 0
    for file in sorted(Path(detent.api.__path__[0]).glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call):
                continue
            match node.func:
                case ast.Attribute(attr=verb, value=ast.Attribute(attr=room, value=ast.Attribute(attr="store"))):
                    takes = inspect.signature(getattr(rooms[room], verb)).parameters
                    given = {keyword.arg for keyword in node.keywords}
                    assert "tenant" not in takes or "tenant" in given, f"{file.name}:{node.lineno}: {room}.{verb}"
                    found += 1
    assert found > 15


def typing_rooms() -> dict[str, Any]:
    store = Store.__new__(Store)
    Store.__init__(store, None)  # type: ignore[arg-type]  # the rooms are looked at, not used
    return {name: type(room) for name, room in vars(store).items()}


def test_a_route_without_a_scope_cannot_be_written() -> None:
    from detent.api.routing import Routes

    routes = Routes()
    for method in (routes.post, routes.put, routes.delete):
        with pytest.raises(TypeError, match="scope"):
            method("/x")  # type: ignore[call-arg]  # that is what is refused
    with pytest.raises(ValueError, match="which is not one of"):
        routes.get("/x", scope="all")(create_app)  # type: ignore[arg-type, type-var]  # as above


# --- whose connections these are ---

FOR_REQUESTS = {PoolName.REQUEST, PoolName.SEPARATE}


@pytest.fixture
def pools_used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pool of every statement, in their order."""
    used: list[str] = []
    acquired = Database._acquired

    def recorded(self: Database, pool: PoolName, seconds: float) -> Any:
        used.append(pool)
        return acquired(self, pool, seconds)

    monkeypatch.setattr(Database, "_acquired", recorded)
    return used


@pytest.mark.parametrize("idempotent", [False, True])
async def test_no_request_uses_a_connection_with_which_the_node_fires_claims_or_settles(
    api: ApiClient, world: World, pools_used: list[str], idempotent: bool
) -> None:
    """Workers that pull have connections of their own too, which nothing else uses."""
    every = list(calls(await described(api), world))
    keys = [world.keys[tenant]["admin"] for tenant in ("rival", "default")]
    served = 0
    for number, (key, call) in enumerate(itertools.product(keys, every)):
        pools_used.clear()
        headers = {"Authorization": f"Bearer {key}"} | ({"Idempotency-Key": f"key-{number}"} if idempotent else {})
        options = {} if call.body is None else {"json": call.body}
        answer = await api.ask(call.method, call.path, headers=headers, timeout=ANSWER, **options)
        allowed = FOR_REQUESTS | ({PoolName.PULL} if call.scope == "work" else set())
        assert set(pools_used) <= allowed, (call, answer.status)
        served += answer.status < 300
    assert served > 30
