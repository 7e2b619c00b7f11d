"""Secrets in no table, answer, page, export, log or metric, where jobs of every kind tell all they know."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from detent.client import Client, JsonClient
from detent.runtime.envelope import generate_master_key, generate_signing_key
from detent.store import Store
from tests.secrets.echo import Echo
from tests.support.leaks import answers, found_in, pages, printed, tables
from tests.support.processes import Node, Nodes
from tests.support.waiting import until

STORED = "planted/stored+value=4eC39Hq"
PROVIDED = "planted-environment-value-99"
SIGNING = generate_signing_key()
NEW_SIGNING = generate_signing_key()
LITERAL = "planted-literal-credential"
SECRETS = (STORED, PROVIDED, SIGNING.removeprefix("whsec_"), NEW_SIGNING.removeprefix("whsec_"))
REFERENCES = {"stored": {"secret": "stored"}, "provided": {"secret": "env:PLANTED_TOKEN"}}
ENDED = {"succeeded", "dead"}

APP = """
import logging
from detent import Detent

app = Detent("careless")
log = logging.getLogger("careless.library")


def tell(run):
    print_ = run.log.warning
    print_("the payload is %s", run.payload)
    log.warning("a library logs %r", run.payload)
    try:
        raise ValueError(f"bad value {run.payload['stored']}")
    except ValueError:
        log.exception("with a traceback of %s", run.payload["provided"])


@app.function("returns")
def returns(run):
    tell(run)
    return {"seen": run.payload, "repr": repr(run.payload)}


@app.function("raises")
async def raises(run):
    tell(run)
    raise RuntimeError(f"failed with {run.payload}")
"""


@pytest.fixture
def nodes(database_url: str) -> Iterator[Nodes]:
    with tempfile.TemporaryDirectory(prefix="detent-test-", ignore_cleanup_errors=True) as folder:
        (Path(folder) / "careless.py").write_text(APP)
        variables = {
            "DETENT_DATABASE_URL": database_url,
            "DETENT_SECRET_KEY": generate_master_key(),
            "DETENT_SECRET_ENVIRONMENT": "PLANTED_*",
            "DETENT_LOG_LEVEL": "debug",
            "DETENT_LOG_FORMAT": "json",
            "PLANTED_TOKEN": PROVIDED,
        }
        with closing(Nodes(Path(folder), **variables)) as started:
            yield started


@pytest.fixture
async def keys(store: Store) -> dict[str, str]:
    scopes: Any = ("read", "work", "secrets", "admin")
    made = {scope: (await store.keys.add(scope, tenant=1)).key for scope in scopes}
    await store.tenants.change("default", {}, lambda before: ["private"], "test")
    return made


@pytest.fixture
async def node(nodes: Nodes, keys: dict[str, str]) -> Node:
    return await nodes.start("serve", "--app", "careless:app", "--allow-shell", "default")


@pytest.fixture
async def client(node: Node, keys: dict[str, str]) -> AsyncIterator[JsonClient]:
    with JsonClient(node.url, keys["admin"]) as made:
        yield made


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    async with Echo() as server:
        yield server


def jobs(url: str) -> dict[str, dict[str, Any]]:
    """Targets that send back, print, log or raise all that they get."""
    headers = {"Authorization": REFERENCES["stored"], "X-Other": REFERENCES["provided"]}
    shell = 'env; cat; echo "$STORED" >&2; printf \'it is %s\' "$PROVIDED"'
    env = {"STORED": REFERENCES["stored"], "PROVIDED": REFERENCES["provided"]}
    targets = {
        "http-ok": {"type": "http", "url": f"{url}/ok", "headers": headers},
        "http-fail": {"type": "http", "url": f"{url}/fail", "headers": headers},
        "shell-ok": {"type": "shell", "command": shell, "env": env},
        "shell-fail": {"type": "shell", "command": f"{shell}; exit 3", "env": env},
        "returns": {"type": "python", "function": "returns"},
        "raises": {"type": "python", "function": "raises"},
        "returns-apart": {"type": "python", "function": "returns", "isolate": "process"},
        "raises-apart": {"type": "python", "function": "raises", "isolate": "process"},
    }
    fields: dict[str, Any] = {"schedule": "every 1d", "payload": REFERENCES, "max_retries": 1, "retry_base_seconds": 0}
    made = {name: {"name": name, "target": target, **fields} for name, target in targets.items()}
    made["http-ok"]["signing"] = {"secret": "signing"}
    made["missing"] = {**made["http-ok"], "name": "missing", "payload": {"secret": "env:PLANTED_NOTHING"}}
    return made


async def in_thread(work: Any, *arguments: Any, **named: Any) -> Any:
    return await asyncio.to_thread(work, *arguments, **named)


async def planted(client: JsonClient, echo: Echo) -> dict[str, Any]:
    """All jobs, each run once; the runs by job."""
    await in_thread(client.set_secret, "stored", STORED)
    await in_thread(client.set_secret, "signing", SIGNING)
    await in_thread(client.rotate_secret, "signing", NEW_SIGNING, keep_seconds=600)
    runs = {}
    for name, document in jobs(echo.url).items():
        await in_thread(client.create_job, document)
        runs[name] = (await in_thread(client.trigger_job, name))["id"]

    async def ended() -> bool:
        states = [(await in_thread(client.get_run, run))["status"] for run in runs.values()]
        return set(states) <= ENDED

    await until(ended, 90, "all runs to end")
    return {name: await in_thread(client.get_run, run) for name, run in runs.items()}


async def test_no_value_of_a_secret_is_anywhere_but_in_its_target(
    node: Node, nodes: Nodes, client: JsonClient, keys: dict[str, str], echo: Echo, sql: Any
) -> None:
    runs = await planted(client, echo)
    expected = {
        name: "dead" if "fail" in name or "raises" in name or name == "missing" else "succeeded" for name in runs
    }
    assert {name: run["status"] for name, run in runs.items()} == expected, runs
    _check_that_targets_got_them(echo, runs)
    claimed = await _claimed(node, client, keys["work"])
    assert claimed["payload"] == REFERENCES
    places = {"log": node.text, "claim": json.dumps(claimed)}
    places |= {f"table {name}": text async for name, text in tables(sql)}
    places |= {f"api {path}": text async for path, text in answers(node.url, keys["admin"], runs)}
    places |= {f"page {path}": text async for path, text in pages(node.url, keys["admin"], runs)}
    places["export"] = await printed(nodes.folder, node.url, keys["admin"], ["export"])
    assert "env:PLANTED_TOKEN" in places["export"]
    assert len(places) > 60
    assert {place: found for place, text in places.items() if (found := found_in(text, *SECRETS))} == {}
    for event in ("the payload is", "a library logs", "with a traceback of"):
        assert event in node.text


def _check_that_targets_got_them(echo: Echo, runs: dict[str, Any]) -> None:
    (call,) = echo.of("http-ok")
    assert (call.headers["Authorization"], call.headers["X-Other"]) == (STORED, PROVIDED)
    assert json.loads(call.body) == {"stored": STORED, "provided": PROVIDED}
    assert len(call.headers["webhook-signature"].split()) == 2
    for name in ("http-ok", "shell-ok", "returns", "returns-apart"):
        assert "********" in json.dumps(runs[name]["result"]), name
    for name in ("raises", "raises-apart"):
        assert "failed with" in json.dumps(runs[name]["attempts"]), name
        assert "********" in json.dumps(runs[name]["attempts"]), name
    assert "'env:PLANTED_NOTHING'" in json.dumps(runs["missing"]["attempts"])


async def _claimed(node: Node, client: JsonClient, key: str) -> Any:
    target = {"type": "python", "function": "elsewhere"}
    document = {"name": "pulled", "schedule": "every 1d", "target": target, "payload": REFERENCES, "queue": "pull"}
    await in_thread(client.create_job, document)
    await in_thread(client.trigger_job, "pulled")
    with JsonClient(node.url, key) as worker:
        (run,) = (await in_thread(worker.claim_runs, "pull", "a worker", targets=["python"]))["runs"]
    return run


async def test_a_worker_that_pulls_gets_values_with_its_own_scope_and_cannot_store_them(
    node: Node, client: JsonClient, keys: dict[str, str], sql: Any
) -> None:
    await in_thread(client.set_secret, "stored", STORED)
    headers = {"Authorization": {"secret": "stored"}, "X-Api-Key": LITERAL}
    target = {"type": "http", "url": "http://127.0.0.1:9/", "headers": headers}
    document = {"name": "pulled", "schedule": "every 1d", "target": target, "payload": REFERENCES, "queue": "pull"}
    await in_thread(client.create_job, {**document, "max_retries": 0})
    with Client(node.url, keys["secrets"]) as worker:
        for report, said in (
            (worker.complete_run, {"seen": STORED, "too": LITERAL}),
            (worker.fail_run, f"no {STORED}, no {LITERAL}"),
        ):
            triggered = await in_thread(client.trigger_job, "pulled")
            (run,) = await in_thread(worker.claim_runs, "pull", "a worker", targets=["http"])
            assert run.target.headers["Authorization"] == STORED
            assert run.payload == {"stored": STORED, "provided": {"secret": "env:PLANTED_TOKEN"}}
            await in_thread(report, run, said)
            told = json.dumps(await in_thread(client.get_run, triggered["id"]))
            assert "********" in told
            assert STORED not in told
            assert LITERAL not in told
    text = node.text + "".join([text async for _, text in tables(sql)])
    assert found_in(text, STORED) == []


async def test_a_reader_sees_no_literal_credential(
    node: Node, nodes: Nodes, client: JsonClient, keys: dict[str, str]
) -> None:
    headers = {"Authorization": f"Bearer {LITERAL}", "X-Api-Key": LITERAL}
    target = {"type": "http", "url": "http://127.0.0.1:9/", "headers": headers}
    document = {"name": "literal", "schedule": "every 1d", "target": target, "max_retries": 0}
    await in_thread(client.create_job, document)
    run = await in_thread(client.trigger_job, "literal")
    await in_thread(client.edit_job, "literal", {"priority": 3})

    async def ended() -> Any:
        found = await in_thread(client.get_run, run["id"])
        return found if found["status"] in ENDED else None

    runs = {"literal": {**await until(ended, 60, "the run to end"), "id": run["id"]}}
    places = {path: text async for path, text in answers(node.url, keys["read"], runs)}
    places |= {f"page {path}": text async for path, text in pages(node.url, keys["read"], runs)}
    places["export"] = await printed(nodes.folder, node.url, keys["read"], ["export"])
    assert [path for path, text in places.items() if found_in(text, LITERAL)] == []
    assert sum("********" in text for text in places.values()) >= 5
    seen = [text async for path, text in answers(node.url, keys["admin"], runs) if path == "/api/v1/jobs/literal"]
    assert found_in("".join(seen), LITERAL)
