"""Every route that changes something leaves one event, in the transaction of its change; and who may read them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from detent.api.app import all_endpoints
from detent.api.refusals import RefusalRecorder
from detent.domain.audit_event import Actor, NewEvent
from detent.domain.identity import node_name
from detent.domain.secret_keys import read_master_keys
from detent.jobs.secrets import SecretCommands
from detent.runtime.envelope import MasterKeys, generate_master_key
from detent.store.audit_log import AuditLogStore
from tests.api.api_client import HTTP, ApiClient
from tests.api.api_server import Readiness, serving
from tests.api.test_api_catchups import stretch
from tests.api.test_api_pull import claimed, say
from tests.api.test_api_reruns import dead_run
from tests.support.factories import add_node
from tests.support.postgres import RUNTIME_ROLE

API = "/api/v1"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
JOB = {"schedule": "every 1h", "target": HTTP}
SECRET = "zq7-planted-secret"
NEW_KEY, OLD_KEY = generate_master_key(), generate_master_key()

# They change nothing, or execute runs, which history records.
NO_CHANGE = {("POST", f"{API}/schedules/preview")}
EXECUTION = {
    ("POST", f"{API}/queues/{{queue}}/claim"),
    *(("POST", f"{API}/runs/{{id}}/{verb}") for verb in ("heartbeat", "complete", "fail", "logs")),
}
# Traffic, as the execution of runs is: each enqueued run is recorded by history.
ENQUEUE = {("POST", f"{API}/tasks/{{name}}/runs")}
# Counters and hints beside the change, in statements of their own.
BESIDE = {"request_budgets", "job_reservations", "tenant_jobs", "changes"}
# Jobs are changed one by one, each in its own transaction, after the event was written.
EVENT_FIRST = {("POST", f"{API}/bulk")}


class Request(NamedTuple):
    """A request that changes something, and the event that it leaves."""

    path: str
    action: str
    body: Any = None
    name: str | None = None


class World(NamedTuple):
    api: ApiClient
    sql: Any

    async def post(self, path: str, status: int = 200, body: Any = None) -> Any:
        options = {} if body is None else {"json": body}
        return await self.api.good("POST", API + path, status, **options)


Prepare = Callable[[World], Awaitable[Request]]
PREPARED: dict[tuple[str, str], Prepare] = {}


def for_route(method: str, path: str) -> Callable[[Prepare], Prepare]:
    def add(prepare: Prepare) -> Prepare:
        PREPARED[method, API + path] = prepare
        return prepare

    return add


def simple(method: str, path: str, action: str, body: Any = None, given: str = "", name: str | None = None) -> None:
    """A route that needs nothing but the job `a`, or nothing at all."""

    async def prepare(world: World) -> Request:
        if "{id}" in path:
            await world.api.create(name="a")
        return Request(API + path.replace("{id}", "a").replace("{name}", given), action, body, name)

    PREPARED[method, API + path] = prepare


simple("POST", "/jobs", "job.create", {**JOB, "name": "new"}, name="new")
simple("POST", "/jobs/batch", "job.create", [JOB, JOB, JOB])
simple("PUT", "/jobs/by-name/{name}", "job.create", JOB, given="put", name="put")
simple("PATCH", "/jobs/{id}", "job.update", {"priority": 1}, name="a")
simple("DELETE", "/jobs/{id}", "job.delete", name="a")
simple("POST", "/jobs/{id}/pause", "job.pause", {"reason": "moving"}, name="a")
simple("POST", "/jobs/{id}/trigger", "job.trigger", name="a")
simple("POST", "/jobs/{id}/backfill", "job.backfill", stretch(3), name="a")
simple("POST", "/cluster/pause", "cluster.pause", {"reason": "moving"})
simple("POST", "/keys", "key.create", {"scope": "read", "name": "wallboard"}, name="wallboard")
BINDING = {"subject_kind": "group", "subject": "ops", "role": "operator", "queue": "mail"}
simple("POST", "/role-bindings", "role.bind", BINDING)
simple("POST", "/tenants", "tenant.create", {"name": "beta"}, name="beta")
simple("PATCH", "/tenants/{name}", "tenant.change", {"max_jobs": 5, "allow": ["private"]}, "default", "default")
simple("PUT", "/secrets/{name}", "secret.set", {"value": SECRET}, given="token", name="token")
RULE = {"name": "ops", "events": ["dead"], "receiver": {"type": "slack", "url": f"https://hooks.example.com/{SECRET}"}}
simple("POST", "/alert-rules", "alert-rule.create", RULE, name="ops")
simple("PUT", "/queues/{name}", "queue.limit", {"max_concurrent": 3}, given="slow", name="slow")


@for_route("PATCH", "/alert-rules/{name}")
async def change_alert_rule(world: World) -> Request:
    await world.post("/alert-rules", 201, RULE)
    return Request(f"{API}/alert-rules/ops", "alert-rule.change", {"min_severity": "error"}, "ops")


@for_route("DELETE", "/alert-rules/{name}")
async def delete_alert_rule(world: World) -> Request:
    await world.post("/alert-rules", 201, RULE)
    return Request(f"{API}/alert-rules/ops", "alert-rule.delete", name="ops")


@for_route("POST", "/alert-rules/{name}/test")
async def try_alert_rule(world: World) -> Request:
    await world.post("/alert-rules", 201, RULE)
    return Request(f"{API}/alert-rules/ops/test", "alert-rule.test", name="ops")


@for_route("POST", "/tenants/{name}/suspend")
async def suspend_tenant(world: World) -> Request:
    await world.post("/tenants", 201, {"name": "beta"})
    return Request(f"{API}/tenants/beta/suspend", "tenant.suspend", {"reason": "unpaid"}, "beta")


@for_route("POST", "/tenants/{name}/resume")
async def resume_tenant(world: World) -> Request:
    await suspended(world)
    return Request(f"{API}/tenants/beta/resume", "tenant.resume", name="beta")


@for_route("POST", "/tenants/{name}/delete")
async def delete_tenant(world: World) -> Request:
    await suspended(world)
    return Request(f"{API}/tenants/beta/delete", "tenant.delete", name="beta")


@for_route("PUT", "/tenants/{name}/enqueue-grants/{role}")
async def grant_enqueue(world: World) -> Request:
    await world.post("/tenants", 201, {"name": "beta"})
    return Request(f"{API}/tenants/beta/enqueue-grants/{RUNTIME_ROLE}", "tenant.grant-enqueue", name="beta")


@for_route("DELETE", "/tenants/{name}/enqueue-grants/{role}")
async def revoke_enqueue(world: World) -> Request:
    await world.post("/tenants", 201, {"name": "beta"})
    path = f"{API}/tenants/beta/enqueue-grants/{RUNTIME_ROLE}"
    await world.api.good("PUT", path)
    return Request(path, "tenant.revoke-enqueue", name="beta")


async def suspended(world: World) -> None:
    await world.post("/tenants", 201, {"name": "beta"})
    await world.post("/keys", 201, {"scope": "read", "tenant": "beta"})
    await world.post("/tenants/beta/suspend")


@for_route("POST", "/jobs/{id}/resume")
async def resume(world: World) -> Request:
    await world.api.create(name="a")
    await world.post("/jobs/a/pause")
    return Request(f"{API}/jobs/a/resume", "job.resume", name="a")


@for_route("POST", "/jobs/{id}/skip")
async def skip(world: World) -> Request:
    return Request(f"{API}/jobs/a/skip", "job.skip", {"at": await next_tick(world)}, "a")


@for_route("DELETE", "/jobs/{id}/skip")
async def unskip(world: World) -> Request:
    at = await next_tick(world)
    await world.post("/jobs/a/skip", body={"at": at})
    return Request(f"{API}/jobs/a/skip?at={at.replace('+', '%2B')}", "job.unskip", name="a")


async def next_tick(world: World) -> str:
    job = await world.api.create(name="a")
    return str(job["next_run_at"])


@for_route("POST", "/jobs/{id}/cancel")
async def cancel_all(world: World) -> Request:
    await triggered(world)
    return Request(f"{API}/jobs/a/cancel", "job.cancel", name="a")


@for_route("POST", "/jobs/{id}/rollback")
async def roll_back(world: World) -> Request:
    await world.api.create(name="a")
    await world.api.good("PATCH", f"{API}/jobs/a", json={"priority": 1})
    return Request(f"{API}/jobs/a/rollback", "job.update", {"revision": 1}, "a")


@for_route("POST", "/jobs/{id}/catchup/drop")
async def drop_catchup(world: World) -> Request:
    await world.api.create(name="a", schedule="0 * * * *")
    await world.post("/jobs/a/backfill", body=stretch(3))
    return Request(f"{API}/jobs/a/catchup/drop", "job.drop-catchup")


async def triggered(world: World) -> str:
    await world.api.create(name="a")
    return str((await world.post("/jobs/a/trigger", 202))["id"])


@for_route("POST", "/runs/{id}/cancel")
async def cancel_run(world: World) -> Request:
    return Request(f"{API}/runs/{await triggered(world)}/cancel", "run.cancel")


async def dead(world: World) -> str:
    await world.api.create(name="a")
    return str((await dead_run(world.api, world.sql, "a"))["id"])


@for_route("POST", "/jobs/{id}/retry")
async def retry_job(world: World) -> Request:
    await dead(world)
    return Request(f"{API}/jobs/a/retry", "run.retry")


@for_route("POST", "/runs/{id}/retry")
async def retry_run(world: World) -> Request:
    return Request(f"{API}/runs/{await dead(world)}/retry", "run.retry")


@for_route("POST", "/dead-letters/redrive")
async def redrive(world: World) -> Request:
    return Request(f"{API}/dead-letters/redrive", "run.redrive", {"runs": [await dead(world)]})


@for_route("POST", "/dead-letters/discard")
async def discard(world: World) -> Request:
    await dead(world)
    return Request(f"{API}/dead-letters/discard", "run.discard", {"all": True})


@for_route("POST", "/bulk")
async def bulk(world: World) -> Request:
    for name in ("a", "b", "c"):
        await world.api.create(name=name)
    return Request(f"{API}/bulk", "job.pause", {"action": "pause", "filter": "name:*", "reason": "moving"})


@for_route("POST", "/cluster/resume")
async def resume_all(world: World) -> Request:
    await world.post("/cluster/pause", body={"reason": "moving"})
    return Request(f"{API}/cluster/resume", "cluster.resume")


@for_route("POST", "/cluster/nodes/{id}/drain")
async def drain(world: World) -> Request:
    await add_node(world.sql, 7)
    return Request(f"{API}/cluster/nodes/{node_name(7)}/drain", "node.drain")


@for_route("POST", "/cluster/nodes/{id}/resume")
async def resume_node(world: World) -> Request:
    await add_node(world.sql, 7)
    return Request(f"{API}/cluster/nodes/{node_name(7)}/resume", "node.resume")


@for_route("POST", "/cluster/nodes/{id}/dismiss")
async def dismiss(world: World) -> Request:
    await add_node(world.sql, 7)
    await world.api.store.nodes.leave(7, lost=True)
    await world.sql.execute("DELETE FROM nodes")
    return Request(f"{API}/cluster/nodes/{node_name(7)}/dismiss", "node.dismiss")


@for_route("DELETE", "/keys/{id}")
async def revoke(world: World) -> Request:
    key = await world.post("/keys", 201, {"scope": "read", "name": "gone"})
    return Request(f"{API}/keys/{key['id']}", "key.revoke", name="gone")


@for_route("DELETE", "/role-bindings/{id}")
async def unbind(world: World) -> Request:
    bound = await world.post("/role-bindings", 201, BINDING)
    return Request(f"{API}/role-bindings/{bound['id']}", "role.unbind")


@for_route("POST", "/secrets/{name}/rotate")
async def rotate_secret(world: World) -> Request:
    await stored_secret(world)
    return Request(f"{API}/secrets/token/rotate", "secret.rotate", {"value": SECRET, "keep_seconds": 60}, "token")


@for_route("DELETE", "/secrets/{name}")
async def delete_secret(world: World) -> Request:
    await stored_secret(world)
    return Request(f"{API}/secrets/token", "secret.delete", name="token")


@for_route("POST", "/secret-keys/rotate")
async def rotate_secret_key(world: World) -> Request:
    await SecretCommands(world.api.store, MasterKeys(read_master_keys(OLD_KEY))).set(1, "token", SECRET)
    return Request(f"{API}/secret-keys/rotate", "secret-key.rotate")


async def stored_secret(world: World) -> None:
    await world.api.good("PUT", f"{API}/secrets/token", json={"value": SECRET})


@pytest.fixture
async def api(database_url: str, readiness: Readiness) -> AsyncIterator[ApiClient]:
    """A server that requires keys, and a client with one of an administrator."""
    settings = {"require_keys": True, "failed_keys_per_second": 0, "secret_key": f"{NEW_KEY},{OLD_KEY}"}
    async with serving(database_url, readiness, **settings) as client:
        key = await client.store.keys.add("admin", tenant=1, name="ada")
        client.session.headers["Authorization"] = f"Bearer {key.key}"
        await client.good("GET", f"{API}/jobs")  # so that the first use of the key is recorded
        yield client


WATCH = """
CREATE TABLE touched (number bigint GENERATED ALWAYS AS IDENTITY, name text, transaction text);
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = detent AS $$
BEGIN
    INSERT INTO touched (name, transaction) VALUES (TG_ARGV[0], pg_current_xact_id()::text);
    RETURN NULL;
END $$;
DO $$
DECLARE
    each record;
BEGIN
    FOR each IN SELECT relname FROM pg_class WHERE relnamespace = 'detent'::regnamespace AND relkind IN ('r', 'p')
                   AND NOT relispartition AND relname <> 'touched' LOOP
        EXECUTE format('CREATE TRIGGER touch AFTER INSERT OR UPDATE OR DELETE ON %I FOR EACH ROW'
                       ' EXECUTE FUNCTION touch(%L)', each.relname, each.relname);
    END LOOP;
END $$;
"""


async def changed_tables(sql: Any) -> dict[str, set[str]]:
    """The tables whose rows were changed since this was last asked, by transaction."""
    rows = await sql.fetch("DELETE FROM touched RETURNING name, transaction")
    found: dict[str, set[str]] = {}
    for row in rows:
        if row["name"] not in BESIDE:
            found.setdefault(row["transaction"], set()).add(row["name"])
    return found


async def newest(sql: Any, above: int) -> list[Any]:
    return list(await sql.fetch("SELECT * FROM audit_events WHERE id > $1 ORDER BY id", above))


async def last_event(sql: Any) -> int:
    return int(await sql.fetchval("SELECT coalesce(max(id), 0) FROM audit_events"))


def changing_routes() -> list[tuple[str, str]]:
    return [(each.method, each.path) for each in all_endpoints() if each.method != "GET"]


def test_no_changing_route_is_left_out_of_the_walk() -> None:
    assert set(changing_routes()) == set(PREPARED) | NO_CHANGE | EXECUTION | ENQUEUE


REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no room'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON audit_events FOR EACH ROW EXECUTE FUNCTION refuse();
"""


@pytest.mark.parametrize("route", sorted(PREPARED), ids=" ".join)
async def test_a_changing_route_leaves_exactly_one_event_in_the_transaction_of_its_change(
    api: ApiClient, sql: Any, route: tuple[str, str]
) -> None:
    """First the event cannot be written: nothing may be changed then. The same request leaves its event later."""
    request = await PREPARED[route](World(api, sql))
    before = await last_event(sql)
    await sql.execute(WATCH + REFUSE)
    options = {} if request.body is None else {"json": request.body}
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    assert (await api.ask(route[0], request.path, **options)).status == 503
    assert await changed_tables(sql) == {}
    await sql.execute("DROP TRIGGER refuse ON audit_events")
    answer = await api.ask(route[0], request.path, headers=headers, **options)
    assert answer.status < 300, answer.document
    (event,) = await newest(sql, before)
    assert (event["action"], event["object_name"]) == (request.action, request.name)
    assert (event["actor_kind"], event["actor_name"], event["address"]) == ("key", "ada", "127.0.0.1")
    assert event["request_id"] == TRACE
    check_transactions(await changed_tables(sql), event_first=route in EVENT_FIRST)


def check_transactions(changed: dict[str, set[str]], event_first: bool) -> None:
    (transaction,) = [number for number, names in changed.items() if "audit_events" in names]
    if event_first:
        assert len(changed) > 1 and transaction == min(changed, key=int)
    else:
        assert len(changed) == 1 and len(changed[transaction]) > 1


async def test_a_request_that_changes_nothing_leaves_no_event(api: ApiClient, sql: Any) -> None:
    job = await api.create(name="a")
    await api.good("POST", f"{API}/jobs/a/pause", json={"reason": "moving"})
    before = await last_event(sql)
    await api.good("PUT", f"{API}/jobs/by-name/a", json={"schedule": "every 1h", "target": HTTP})
    await api.good("PATCH", f"{API}/jobs/a", json={"priority": job["priority"]})
    await api.good("POST", f"{API}/jobs/a/pause")
    await api.good("POST", f"{API}/jobs/a/cancel")
    await api.good("POST", f"{API}/cluster/resume")
    await api.good("POST", f"{API}/bulk", json={"action": "resume", "filter": "tag:nobody"})
    await api.good("POST", f"{API}/bulk", json={"action": "resume", "filter": "name:*", "dry_run": True})
    await api.good("POST", f"{API}/jobs/batch?mode=upsert", json=[{"name": "a", **JOB}])
    await api.problem("POST", f"{API}/jobs", 409, json={"name": "a", **JOB})
    await api.problem("DELETE", f"{API}/jobs/nobody", 404)
    assert await newest(sql, before) == []


async def test_a_repeated_request_with_the_same_idempotency_key_leaves_one_event(api: ApiClient, sql: Any) -> None:
    before = await last_event(sql)
    for _ in range(2):
        await api.good("POST", f"{API}/jobs", 201, json={"name": "a", **JOB}, headers={"Idempotency-Key": "once"})
    assert [event["action"] for event in await newest(sql, before)] == ["job.create"]


async def test_an_event_says_what_changed_and_hides_what_may_be_secret(api: ApiClient, sql: Any) -> None:
    before = await last_event(sql)
    target = {
        "type": "http",
        "url": f"https://example.com/path?token={SECRET}",
        "headers": {"Authorization": f"Bearer {SECRET}"},
    }
    notify = f"https://hooks.example.com/{SECRET}"
    await api.create(name="a", target=target, payload={"password": SECRET}, notify_url=notify, priority=3)
    changed = {**target, "headers": {"Authorization": f"Basic {SECRET}"}, "url": f"https://example.com/new?t={SECRET}"}
    await api.good("PATCH", f"{API}/jobs/a", json={"target": changed, "payload": {SECRET: 1}, "priority": 7})
    await api.good("POST", f"{API}/jobs/a/trigger", 202, json={"payload": SECRET})
    await api.good("DELETE", f"{API}/jobs/a", 204)
    created, updated, started, deleted = await newest(sql, before)
    assert SECRET not in json.dumps([dict(event) for event in (created, updated, started, deleted)], default=str)
    first = json.loads(created["after"])
    assert first["target"]["url"] == "https://example.com/path?(hidden)"
    assert first["target"]["headers"] == {"Authorization": "(hidden)"}
    assert (first["payload"], first["notify_url"]) == ("(hidden)", "https://hooks.example.com/(hidden)")
    assert "timezone" not in first  # it is as by default
    old, new = json.loads(updated["before"]), json.loads(updated["after"])
    assert (old["priority"], new["priority"], old["revision"], new["revision"]) == (3, 7, 1, 2)
    assert old["payload"] == new["payload"] == new["target.headers.Authorization"] == "(hidden)"
    assert json.loads(deleted["before"])["priority"] == 7


async def test_one_change_of_many_jobs_is_one_event_with_the_filter_and_the_ids(api: ApiClient, sql: Any) -> None:
    jobs = [await api.create(name=f"job-{number}") for number in range(3)]
    before = await last_event(sql)
    await api.good("POST", f"{API}/bulk", json={"action": "delete", "filter": "name:job-*"})
    batch = [{"name": f"many-{number}", **JOB} for number in range(1200)]
    await api.good("POST", f"{API}/jobs/batch", json=batch)
    await api.good("POST", f"{API}/jobs/batch?mode=upsert", json=[*batch[:-1], {**batch[-1], "priority": 1}])
    deleted, created, applied = await newest(sql, before)
    facts = json.loads(deleted["after"])
    assert (deleted["action"], facts["filter"], facts["count"]) == ("job.delete", "name:job-*", 3)
    assert sorted(facts["ids"]) == sorted(job["id"] for job in jobs)
    facts = json.loads(created["after"])
    assert (created["action"], facts["count"], len(facts["ids"])) == ("job.create", 1200, 1000)
    assert (applied["action"], json.loads(applied["after"])["updated"]["count"]) == ("job.apply", 1)


async def test_a_job_that_detent_pauses_after_a_report_is_paused_by_detent_and_not_by_the_key_of_the_worker(
    api: ApiClient, sql: Any
) -> None:
    run = await claimed(api, auto_pause_after=1, max_retries=0)
    before = await last_event(sql)
    assert (await say(api, run, "fail", error="broken"))["status"] == "dead"
    (event,) = await newest(sql, before)
    assert (event["action"], event["actor_kind"], event["actor_id"]) == ("job.pause", "detent", None)


async def test_an_event_outlives_the_job_and_the_key_that_it_speaks_of(api: ApiClient, sql: Any) -> None:
    job = await api.create(name="short-lived")
    await api.good("DELETE", f"{API}/jobs/short-lived", 204)
    await sql.execute("DELETE FROM cursors; DELETE FROM jobs; DELETE FROM api_keys WHERE name <> 'ada'")
    found = await api.good("GET", f"{API}/audit-events?object=short-lived")
    assert [event["action"] for event in found["items"]] == ["job.delete", "job.create"]
    assert {event["object"]["id"] for event in found["items"]} == {job["id"]}


# --- who may read them ---


async def test_administrators_see_the_events_of_their_tenant_and_those_of_the_default_tenant_also_the_others(
    api: ApiClient, sql: Any
) -> None:
    await api.good("POST", f"{API}/tenants", 201, json={"name": "acme"})
    key = await api.good("POST", f"{API}/keys", 201, json={"scope": "admin", "tenant": "acme", "name": "acme-admin"})
    of_acme = {"Authorization": f"Bearer {key['key']}"}
    await api.good("POST", f"{API}/jobs", 201, json={"name": "theirs", **JOB}, headers=of_acme)
    await api.create(name="ours")
    await api.good("POST", f"{API}/cluster/pause", json={"reason": "moving"})

    async def actions(query: str = "", **options: Any) -> list[str]:
        page = await api.good("GET", f"{API}/audit-events{query}", **options)
        return [f"{event['action']} {event['object']['name'] or ''}".strip() for event in page["items"]]

    theirs = ["job.create theirs", "key.create acme-admin", "tenant.create acme"]
    assert await actions(headers=of_acme) == theirs
    assert await actions("?tenant=acme") == theirs
    assert await actions() == ["cluster.pause", "job.create ours", "key.create ada"]
    assert len(await actions("?all_tenants=true")) == 6
    for path in ("?tenant=default", "?all_tenants=true", "/chain", "/chain/ends"):
        await api.problem("GET", f"{API}/audit-events{path}", 403, headers=of_acme)
    problem = await api.problem("GET", f"{API}/audit-events?tenant=acme&all_tenants=true", 422)
    assert problem["pointer"] == "/all_tenants"


async def test_other_scopes_do_not_read_the_audit_log(api: ApiClient) -> None:
    for scope in ("read", "operate", "write", "work"):
        key = await api.good("POST", f"{API}/keys", 201, json={"scope": scope})
        headers = {"Authorization": f"Bearer {key['key']}"}
        await api.problem("GET", f"{API}/audit-events", 403, headers=headers)


async def test_events_are_found_by_action_actor_object_and_time_page_by_page(api: ApiClient, sql: Any) -> None:
    for name in ("a", "b", "c"):
        await api.create(name=name)
    await api.good("DELETE", f"{API}/jobs/b", 204)

    async def found(query: str) -> list[tuple[str, str]]:
        page = await api.good("GET", f"{API}/audit-events?{query}")
        return [(event["action"], event["object"]["name"]) for event in page["items"]]

    assert await found("action=job.delete") == [("job.delete", "b")]
    assert len(await found("action=job")) == 4
    assert await found("object=b") == [("job.delete", "b"), ("job.create", "b")]
    assert len(await found("actor=ada")) == 4
    assert await found("actor=nobody") == []
    later = (await sql.fetchval("SELECT now()") + timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    assert await found(f"since={later}") == []
    assert len(await found(f"until={later}&action=job")) == 4
    first = await api.good("GET", f"{API}/audit-events?action=job&limit=3")
    rest = await api.good("GET", f"{API}/audit-events?action=job&limit=3&cursor={first['next_cursor']}")
    assert (len(first["items"]), len(rest["items"]), rest["next_cursor"]) == (3, 1, None)
    await api.problem("GET", f"{API}/audit-events?cursor={first['next_cursor']}", 422)


# --- refusals ---


async def test_refused_requests_leave_events_but_not_one_for_each(api: ApiClient, sql: Any) -> None:
    reader = await api.good("POST", f"{API}/keys", 201, json={"scope": "read", "name": "reader"})
    before = await last_event(sql)
    wrong = {"Authorization": f"Bearer dtn_{reader['id']}_{'a' * 52}"}
    for _ in range(30):
        await api.problem("GET", f"{API}/jobs", 401, headers=wrong)
        await api.problem("DELETE", f"{API}/jobs/a", 403, headers={"Authorization": f"Bearer {reader['key']}"})
    unknown, known = await newest(sql, before)
    assert (unknown["action"], unknown["actor_kind"], unknown["tenant"]) == ("request.refuse", "unknown", None)
    assert (unknown["actor_id"], unknown["object_name"]) == (reader["id"], f"GET {API}/jobs")
    assert json.loads(unknown["after"]) == {"status": 401, "problem": "not-authenticated"}
    assert (known["actor_kind"], known["actor_name"], known["tenant"]) == ("key", "reader", 1)
    assert known["object_name"] == f"DELETE {API}/jobs/{{id}}"  # the pattern: what a stranger writes is not recorded


async def test_the_next_event_of_a_source_says_how_many_were_left_out(api: ApiClient, sql: Any) -> None:
    now = 0.0
    recorder = RefusalRecorder(AuditLogStore(api.store.database), lambda: now)
    before = await last_event(sql)
    refusal = NewEvent("session.refuse", None, "key")
    for second in range(121):
        now = float(second)
        await recorder.record(refusal, Actor("unknown", address="192.0.2.1"))
    events = await newest(sql, before)
    assert [json.loads(event["after"]) for event in events] == [{}, {"left_out_before": 59}, {"left_out_before": 59}]


async def test_many_networks_together_leave_one_event_a_second(api: ApiClient, sql: Any) -> None:
    recorder = RefusalRecorder(AuditLogStore(api.store.database), lambda: 0.0)
    before = await last_event(sql)
    for number in range(200):
        await recorder.record(NewEvent("session.refuse", None, "key"), Actor("unknown", address=f"192.0.2.{number}"))
    assert len(await newest(sql, before)) == 2  # the size of the bucket
