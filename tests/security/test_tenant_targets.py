"""Which addresses the calls of a tenant reach: decided by the tenant and the cluster, not by the process that calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from detent.api.health import create_probes
from detent.contract.run import Run
from detent.dashboard.app import add_dashboard
from detent.devtools.demo import add_echo
from detent.domain.job import HttpTarget, JobSpec
from detent.domain.run import NotBegun, Outcome
from detent.domain.target_access import PRIVATE_TOO, PUBLIC_ONLY
from detent.jobs import JobOperations
from detent.node.server import ApiServer
from detent.store import Store
from detent.targets.http import HttpTargetRunner
from detent.targets.messenger import Message, Messenger
from detent.targets.policies import VALID_SECONDS, ClusterPolicies, FixedPolicy
from tests.api.api_client import ApiClient
from tests.api.api_server import Readiness, serving
from tests.support.processes import Nodes
from tests.support.waiting import until
from tests.targets.target_helpers import Sink, failed, http_call, result_of, succeeded

BY = "test"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    async with Sink() as server:
        yield server


@pytest.fixture
async def runner(store: Store, clock: Clock) -> AsyncIterator[HttpTargetRunner]:
    made = HttpTargetRunner(ClusterPolicies(store.tenants, clock))
    yield made
    await made.close()


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[ApiClient]:
    async with serving(database_url, Readiness({"database": True})) as client:
        yield client


@pytest.fixture
def nodes(tmp_path: Path, database_url: str) -> Iterator[Nodes]:
    settings = {"DETENT_DATABASE_URL": database_url, "DETENT_LEASE_TTL_SECONDS": "2"}
    with closing(Nodes(tmp_path, **settings)) as started:
        yield started


async def tenant(store: Store, name: str, *patterns: str) -> int:
    await store.tenants.add(name)
    if patterns:
        await store.tenants.change(name, {}, lambda _: patterns, BY)
    number = await store.tenants.number(name)
    assert number is not None
    return number


async def keyed(store: Store, number: int = 1, scope: Any = "admin") -> dict[str, str]:
    return {"Authorization": f"Bearer {(await store.keys.add(scope, tenant=number)).key}"}


def refused(outcome: Outcome | NotBegun) -> str:
    reason = failed(outcome)
    assert not reason.retryable
    return reason.error


# -- the attack


async def run_of(store: Store, number: int, url: str, body: object) -> Run:
    """A run of this tenant when it has ended, executed by the worker of another process."""
    jobs = JobOperations(store)
    spec = JobSpec(schedule="every 1h", target=HttpTarget(url=url), payload=body)
    (job,) = await jobs.registration.add([spec], tenant=number)
    key = await jobs.lifecycle.trigger(job.id, tenant=number)

    async def ended() -> Run | None:
        run = await store.runs.get(key, tenant=number)
        return run if run is not None and run.finished_at is not None else None

    run = await until(ended, 30, "the run to end")
    assert isinstance(run, Run)
    return run


async def test_a_tenants_job_reads_no_key_from_another_node(api: ApiClient, nodes: Nodes, look: Any) -> None:
    """With the worker started apart, as with `detent worker`, and with a server that answers on loopback."""
    acme = await tenant(api.store, "acme")
    await keyed(api.store, acme, "write")
    url, body = f"{api.url}/api/v1/keys", {"scope": "admin", "name": "stolen"}
    await nodes.start("worker")

    run = await run_of(api.store, acme, url, body)
    assert run.status == "dead"
    address = api.url.removeprefix("http://")
    sentence = f"127.0.0.1 is a loopback address: allow it with `detent tenant allow acme {address}`."
    assert run.error == f"{url} was not called: {sentence}"

    await api.store.tenants.change("acme", {}, lambda _: [address], BY)
    run = await run_of(api.store, acme, url, body)
    assert run.error == f"HTTP 403 from {url}"
    assert "own-call" in bytes(run.result or b"").decode()
    assert await look.fetchval("SELECT count(*) FROM api_keys") == 1


# -- who may call what


async def test_only_the_default_tenant_calls_private_addresses_and_only_until_the_first_key(
    store: Store, runner: HttpTargetRunner, sink: Sink, clock: Clock
) -> None:
    acme = await tenant(store, "acme")
    succeeded(await runner(http_call(sink.url)))
    allow = f"allow it with `detent tenant allow acme 127.0.0.1:{sink.port}`."
    assert refused(await runner(http_call(sink.url, tenant=acme))).endswith(allow)
    await keyed(store, acme, "read")
    clock.now += VALID_SECONDS
    allow = f"allow it with `detent tenant allow default 127.0.0.1:{sink.port}`."
    assert refused(await runner(http_call(sink.url))).endswith(allow)
    assert len(sink.received) == 1


async def test_what_a_tenant_was_just_allowed_is_called_at_once(
    store: Store, runner: HttpTargetRunner, sink: Sink
) -> None:
    acme = await tenant(store, "acme")
    refused(await runner(http_call(sink.url, tenant=acme)))
    await store.tenants.change("acme", {}, lambda _: [f"127.0.0.1:{sink.port}"], BY)
    succeeded(await runner(http_call(sink.url, tenant=acme)))


async def test_a_connection_that_was_kept_open_serves_no_other_tenant(
    store: Store, runner: HttpTargetRunner, sink: Sink, clock: Clock
) -> None:
    """Neither one that may not call this address nor one that may."""
    allowed = f"127.0.0.1:{sink.port}"
    acme, rival, twin = [await tenant(store, *facts) for facts in (("acme", allowed), ("rival",), ("twin", allowed))]
    call = http_call(sink.url, tenant=acme)
    for _ in range(2):
        succeeded(await runner(call))
    assert sink.connections == 1
    refused(await runner(http_call(sink.url, tenant=rival)))
    succeeded(await runner(http_call(sink.url, tenant=twin)))
    await store.tenants.change("acme", {}, lambda _: [], BY)
    clock.now += VALID_SECONDS
    refused(await runner(call))
    assert (len(sink.received), sink.connections) == (3, 2)


async def test_a_name_opens_only_what_it_resolves_to(store: Store, runner: HttpTargetRunner, sink: Sink) -> None:
    acme = await tenant(store, "acme", f"localhost:{sink.port}")
    succeeded(await runner(http_call(f"http://localhost:{sink.port}/", tenant=acme)))
    refused(await runner(http_call(sink.url, tenant=acme)))
    assert len(sink.received) == 1


async def test_ports_of_databases_are_refused_also_where_private_addresses_are_open(
    runner: HttpTargetRunner,
) -> None:
    sentence = refused(await runner(http_call("http://127.0.0.1:5432/")))
    assert "Port 5432 is one of databases" in sentence
    assert "`detent tenant allow default 127.0.0.1:5432`" in sentence


# -- messages


async def test_a_notice_to_the_address_of_a_tenants_job_obeys_the_tenants_rules(store: Store, sink: Sink) -> None:
    acme = await tenant(store, "acme")
    messenger = Messenger(ClusterPolicies(store.tenants))
    message = Message("notice", b"{}")
    delivery = await messenger.send(message, sink.url, tenant=acme)
    assert not delivery.arrived and not delivery.retryable
    assert f"`detent tenant allow acme 127.0.0.1:{sink.port}`" in delivery.error
    assert sink.connections == 0
    assert (await messenger.send(message, sink.url)).arrived  # the operator's own setting
    await messenger.close()


# -- a node's own pages


@asynccontextmanager
async def own_servers(api: ApiClient) -> AsyncIterator[dict[str, str]]:
    """The API with dashboard and demo, and the port for probes."""
    from detent.api.app import create_app
    from detent.settings.settings import Settings

    readiness = Readiness({"database": True})
    app = create_app(api.store, settings=Settings(), readiness=readiness, metrics=readiness.metrics)
    add_dashboard(app)
    add_echo(app)
    probes = create_probes(readiness, readiness.metrics)
    async with ApiServer(app, "127.0.0.1", 0) as server, ApiServer(probes, "127.0.0.1", 0) as ports:
        yield {"api": server.url, "probes": ports.url}


OWN = [
    *(("POST", "api", "/api/v1/keys"), ("GET", "api", "/api/v1/jobs"), ("GET", "api", "/openapi.json")),
    *(("GET", "api", "/"), ("GET", "api", "/jobs"), ("GET", "api", "/login"), ("GET", "api", "/metrics")),
    *(("GET", "api", "/livez"), ("GET", "api", "/nowhere"), ("GET", "api", "/demo/echo/../../metrics")),
    *(("GET", "probes", "/metrics"), ("GET", "probes", "/livez"), ("GET", "probes", "/readyz")),
]


async def test_no_call_of_a_node_is_answered_by_a_node(api: ApiClient) -> None:
    runner, messenger = HttpTargetRunner(FixedPolicy(PRIVATE_TOO)), Messenger(FixedPolicy(PUBLIC_ONLY))
    try:
        async with own_servers(api) as urls:
            for method, server, path in OWN:
                url = f"{urls[server]}{path}"
                outcome = await runner(http_call(url, {"scope": "admin"}, method=method))
                assert f"HTTP 403 from {urls[server]}" in refused(outcome), path
                assert "own-call" in result_of(outcome)["body"], path
                for kind in ("notice", "ping"):
                    delivery = await messenger.send(Message(kind, method=method), url)
                    assert "answered with status 403" in delivery.error, path
            echo = await runner(http_call(f"{urls['api']}/demo/echo", {"hello": "world"}))
            assert "hello" in succeeded(echo)["body"]
            await _answered(urls)
    finally:
        await runner.close()
        await messenger.close()


async def _answered(urls: dict[str, str]) -> None:
    """A program that is not a job is answered, as before."""
    async with aiohttp.ClientSession() as session:
        for _, server, path in OWN:
            if path in ("/livez", "/metrics", "/readyz", "/api/v1/jobs"):
                async with session.get(f"{urls[server]}{path}") as answer:
                    assert answer.status == 200, path


# -- managing the lists


async def test_allow_lists_are_changed_by_administrators_of_the_default_tenant_only(api: ApiClient) -> None:
    acme = await tenant(api.store, "acme")
    default, admin = await keyed(api.store), await keyed(api.store, acme)
    path = "/api/v1/tenants/acme"
    changed = await api.good("PATCH", path, json={"allow": ["10.2.0.0/16:8443", "API.internal"]}, headers=default)
    assert changed["allow_targets"] == ["10.2.0.0/16:8443", "api.internal"]
    for field in ("allow", "disallow", "allow_targets"):
        await api.problem("PATCH", path, 403, json={field: ["private"]}, headers=admin)
    assert (await api.good("GET", path, headers=admin))["allow_targets"] == changed["allow_targets"]
    changed = await api.good("PATCH", path, json={"disallow": ["api.internal."]}, headers=default)
    assert changed["allow_targets"] == ["10.2.0.0/16:8443"]
    changed = await api.good("PATCH", path, json={"allow_targets": ["private"], "weight": 2}, headers=default)
    assert (changed["allow_targets"], changed["weight"]) == (["private"], 2)
    listed = (await api.good("GET", "/api/v1/tenants", headers=default))["items"]
    assert {one["name"]: one["allow_targets"] for one in listed} == {"default": [], "acme": ["private"]}


async def test_a_list_that_cannot_be_is_refused_in_a_sentence_and_changes_nothing(api: ApiClient) -> None:
    path = "/api/v1/tenants/default"
    cases = [
        ({"allow": ["10.0.0.1", "169.254.169.254"]}, "/allow/1", "no target may have"),
        ({"allow": ["http://x/"]}, "/allow/0", "write it like 10.2.0.0/16:8443"),
        ({"disallow": ["10.0.0.1"]}, "/disallow/0", "is not in the list of default, which has nothing."),
        ({"allow_targets": None}, "/allow_targets", ""),
    ]
    for body, pointer, words in cases:
        problem = await api.problem("PATCH", path, 422, json=body)
        assert problem["pointer"] == pointer
        assert words in problem["detail"]
    for first in (0, 100):
        names = [f"host-{number}.internal" for number in range(first, first + 100)]
        expected = 200 if first == 0 else 422
        assert (await api.ask("PATCH", path, json={"allow": names})).status == expected
    assert len((await api.good("GET", path))["allow_targets"]) == 100


async def test_a_job_that_cannot_be_called_is_registered_with_a_warning_that_names_the_command(api: ApiClient) -> None:
    acme = await tenant(api.store, "acme")
    headers = await keyed(api.store, acme)
    body = {"name": "a", "schedule": "every 1h", "target": {"type": "http", "url": "http://10.2.3.4:8443/x"}}
    warning = (
        "Calls will be refused: 10.2.3.4 is a private address: allow it with `detent tenant allow acme 10.2.3.4:8443`."
    )
    assert (await api.good("POST", "/api/v1/jobs", 201, json=body, headers=headers))["warnings"] == [warning]
    batch = "/api/v1/jobs/batch?mode=upsert"
    (result,) = (await api.good("POST", batch, json=[body], headers=headers))["items"]
    assert result["warnings"] == [warning]
    await api.store.tenants.change("acme", {}, lambda _: ["private"], BY)
    changed = body | {"priority": 7}
    (result,) = (await api.good("POST", batch, json=[changed], headers=headers))["items"]
    assert "warnings" not in result
