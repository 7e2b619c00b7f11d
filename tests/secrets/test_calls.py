"""What a worker does with references: values arrive at the target, and nowhere else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from detent.contract.job import Job
from detent.domain.job import JobSpec
from detent.domain.registration import read_document
from detent.domain.run import Call, Outcome, Succeeded
from detent.domain.target_access import PRIVATE_TOO
from detent.errors import UsageError
from detent.jobs import JobOperations
from detent.jobs.secrets import SecretCommands
from detent.node.secrets import secret_values
from detent.runtime.envelope import MasterKeys, generate_master_key, generate_signing_key
from detent.settings.settings import Settings
from detent.store import Store
from detent.store.secrets import SecretStore
from detent.targets.http import HttpTargetRunner
from detent.targets.policies import FixedPolicy
from detent.worker.secret_providers import SecretProviders
from detent.worker.secrets import SecretValues
from tests.secrets.echo import Echo
from tests.support.sessions import StartSession
from tests.support.waiting import until

VALUE = "sk_live/4eC39+HqLyjWDarjtT1zdp7dc"
OTHER = 'another "quoted" value'


@pytest.fixture
async def runner() -> AsyncIterator[HttpTargetRunner]:
    made = HttpTargetRunner(FixedPolicy(PRIVATE_TOO))
    yield made
    await made.close()


@pytest.fixture
def commands(store: Store, keys: MasterKeys) -> SecretCommands:
    return SecretCommands(store, keys)


@pytest.fixture
def values(store: Store, keys: MasterKeys) -> SecretValues:
    return SecretValues(store.secrets, keys, SecretProviders())


def spec(**fields: Any) -> JobSpec:
    return read_document({"schedule": "every 1d", "max_retries": 0, **fields})


async def ran(store: Store, job: Job) -> dict[str, Any]:
    """The job's run by hand, once it has ended."""
    operations = JobOperations(store)
    key = await operations.lifecycle.trigger(job.id)

    async def ended() -> Any:
        run = await store.runs.get(key, tenant=1)
        return run if run is not None and run.finished_at is not None else None

    run = await until(ended, 30, "the run to end")
    result = None if run.result is None else bytes(run.result).decode()
    return {"status": str(run.status), "result": result, "errors": [one.error for one in run.attempts]}


async def test_values_arrive_in_headers_and_payload_and_do_not_come_back(
    store: Store,
    start: StartSession,
    runner: HttpTargetRunner,
    echo: Echo,
    commands: SecretCommands,
    values: SecretValues,
) -> None:
    await commands.set(1, "payments", VALUE)
    await commands.set(1, "other", OTHER)
    target = {"type": "http", "url": f"{echo.url}/ok", "headers": {"Authorization": {"secret": "payments"}}}
    payload = {"deep": [{"key": {"secret": "other"}}, {"secret": "other", "and": 1}], "plain": 1}
    (job,) = await JobOperations(store).registration.add([spec(name="job", target=target, payload=payload)])
    await start(runner, secrets=values)
    ended = await ran(store, job)
    (call,) = echo.calls
    assert call.headers["Authorization"] == VALUE
    assert json.loads(call.body) == {"deep": [{"key": OTHER}, {"secret": "other", "and": 1}], "plain": 1}
    assert ended["status"] == "succeeded"
    told = json.dumps(ended)
    assert "Authorization: ********" in told
    assert VALUE not in told
    assert "quoted" not in told


LITERAL = "sk_literal/Zm9v+YmFyYmF6"


@pytest.mark.parametrize("mode", ["ok", "fail"])
async def test_a_literal_credential_does_not_come_back(
    store: Store, start: StartSession, runner: HttpTargetRunner, echo: Echo, values: SecretValues, mode: str
) -> None:
    headers = {"Authorization": f"Bearer {LITERAL}", "X-Trace": "not-a-credential"}
    target = {"type": "http", "url": f"{echo.url}/{mode}", "headers": headers}
    (job,) = await JobOperations(store).registration.add([spec(target=target, payload={"again": LITERAL})])
    await start(runner, secrets=values)
    told = json.dumps(await ran(store, job))
    (call,) = echo.calls
    assert call.headers["Authorization"] == f"Bearer {LITERAL}"
    assert "Authorization: ********" in told
    assert "X-Trace: not-a-credential" in told
    assert LITERAL not in told


async def test_a_literal_credential_beside_a_reference_does_not_come_back(
    store: Store,
    start: StartSession,
    runner: HttpTargetRunner,
    echo: Echo,
    commands: SecretCommands,
    values: SecretValues,
) -> None:
    await commands.set(1, "payments", VALUE)
    headers = {"X-Api-Key": LITERAL, "Authorization": {"secret": "payments"}}
    target = {"type": "http", "url": f"{echo.url}/ok", "headers": headers}
    (job,) = await JobOperations(store).registration.add([spec(target=target)])
    await start(runner, secrets=values)
    told = json.dumps(await ran(store, job))
    assert (echo.calls[0].headers["X-Api-Key"], echo.calls[0].headers["Authorization"]) == (LITERAL, VALUE)
    assert "X-Api-Key: ********" in told
    assert LITERAL not in told
    assert VALUE not in told


async def test_a_failure_does_not_tell_the_value(
    store: Store, start: StartSession, echo: Echo, commands: SecretCommands, values: SecretValues
) -> None:
    await commands.set(1, "payments", VALUE)

    async def careless(call: Call) -> Outcome:
        raise RuntimeError(f"could not log in with {call.payload}")

    target = {"type": "http", "url": f"{echo.url}/ok"}
    (job,) = await JobOperations(store).registration.add([spec(target=target, payload={"key": {"secret": "payments"}})])
    await start(careless, secrets=values)
    ended = await ran(store, job)
    assert ended["status"] == "dead"
    assert "RuntimeError: could not log in with" in json.dumps(ended)
    assert "********" in json.dumps(ended)
    assert VALUE not in json.dumps(ended)


async def test_a_payload_of_one_run_may_refer_to_a_secret(
    store: Store,
    start: StartSession,
    runner: HttpTargetRunner,
    echo: Echo,
    commands: SecretCommands,
    values: SecretValues,
) -> None:
    await commands.set(1, "payments", VALUE)
    (job,) = await JobOperations(store).registration.add([spec(target={"type": "http", "url": f"{echo.url}/ok"})])
    await start(runner, secrets=values)
    await JobOperations(store).lifecycle.trigger(job.id, {"mine": {"secret": "payments"}})
    await until(lambda: echo.calls, 30, "the call")
    assert json.loads(echo.calls[0].body) == {"mine": VALUE}


@pytest.mark.parametrize("how", ["deleted", "other key", "moved", "no key"])
async def test_a_secret_that_cannot_be_used_is_named(
    store: Store, start: StartSession, echo: Echo, commands: SecretCommands, keys: MasterKeys, sql: Any, how: str
) -> None:
    await commands.set(1, "payments", VALUE)
    await commands.set(1, "other", OTHER)
    target = {"type": "http", "url": f"{echo.url}/ok", "headers": {"Authorization": {"secret": "payments"}}}
    (job,) = await JobOperations(store).registration.add([spec(target=target)])
    used, why = keys, "there is none of this name"
    match how:
        case "deleted":
            await sql.execute("DELETE FROM secrets WHERE name = 'payments'")
        case "other key":
            used, why = MasterKeys([bytes(32)]), "which encrypts it, is not set here"
        case "no key":
            used, why = MasterKeys(), "which encrypts it, is not set here"
        case "moved":
            why = "its row in the database was changed, or belongs to another secret"
            await sql.execute("DELETE FROM secret_versions WHERE name = 'payments'")
            await sql.execute("UPDATE secret_versions SET name = 'payments' WHERE name = 'other'")

    async def never(call: Call) -> Outcome:
        echo.calls.append(call)  # type: ignore[arg-type]  # nothing may be called
        return Succeeded()

    await start(never, secrets=SecretValues(store.secrets, used, SecretProviders()))
    ended = await ran(store, job)
    assert ended["status"] == "dead"
    (error,) = ended["errors"]
    assert error.startswith("The secret 'payments' could not be used: ")
    assert why in error
    assert VALUE not in error
    assert not echo.calls


async def test_a_node_that_was_evicted_while_it_read_a_secret_calls_nothing(
    store: Store, start: StartSession, runner: HttpTargetRunner, echo: Echo, commands: SecretCommands, keys: MasterKeys
) -> None:
    """Another node has the run by then, and would call the target as well."""
    await commands.set(1, "payments", VALUE)
    target = {"type": "http", "url": f"{echo.url}/ok", "headers": {"Authorization": {"secret": "payments"}}}
    (job,) = await JobOperations(store).registration.add([spec(target=target)])
    read = asyncio.Event()

    class SlowStore(SecretStore):
        async def values(self, *arguments: Any, **named: Any) -> Any:
            found = await super().values(*arguments, **named)
            session.membership.lose("no heartbeat came through in time")
            read.set()
            return found

    session = await start(runner, secrets=SecretValues(SlowStore(store.database), keys, SecretProviders()))
    await JobOperations(store).lifecycle.trigger(job.id)
    await asyncio.wait_for(read.wait(), 30)
    assert session.worker is not None
    held = session.worker._held
    await until(lambda: len(held) == 0, 30, "the attempt to end")
    assert not echo.calls


# --- signatures ---


async def test_a_call_is_signed_as_the_reference_library_verifies_it(
    store: Store,
    start: StartSession,
    runner: HttpTargetRunner,
    echo: Echo,
    commands: SecretCommands,
    values: SecretValues,
) -> None:
    old, new = generate_signing_key(), generate_signing_key()
    await commands.set(1, "webhooks", old)
    target = {"type": "http", "url": f"{echo.url}/ok", "headers": {"webhook-signature": "v1,forged"}}
    documents: list[dict[str, Any]] = [{"payload": {"a": "ä", "n": [1, 2]}}, {}, {"payload": 1.5}]
    jobs = await JobOperations(store).registration.add(
        [spec(target=target, signing={"secret": "webhooks"}, **fields) for fields in documents]
    )
    await start(runner, secrets=values)
    for job, document in zip(jobs, documents, strict=True):
        ended = await ran(store, job)
        (call,) = echo.of(job.name)
        assert Webhook(old).verify(call.body, call.headers) == document.get("payload")
        assert call.headers["webhook-id"] == call.headers["Idempotency-Key"]
        with pytest.raises(WebhookVerificationError):
            Webhook(new).verify(call.body, call.headers)
        with pytest.raises(WebhookVerificationError):
            Webhook(old).verify(call.body + b" ", call.headers)
        assert old.removeprefix("whsec_") not in json.dumps(ended)


async def test_during_a_rotation_calls_have_both_signatures(
    store: Store,
    start: StartSession,
    runner: HttpTargetRunner,
    echo: Echo,
    commands: SecretCommands,
    keys: MasterKeys,
    sql: Any,
) -> None:
    old, new = generate_signing_key(), generate_signing_key()
    await commands.set(1, "webhooks", old)
    await commands.rotate(1, "webhooks", new, timedelta(hours=1))
    target = {"type": "http", "url": f"{echo.url}/ok"}
    (job,) = await JobOperations(store).registration.add(
        [spec(target=target, payload=[1], signing={"secret": "webhooks"})]
    )
    values = SecretValues(store.secrets, keys, SecretProviders(), now=(clock := Clock()))
    await start(runner, secrets=values)
    await ran(store, job)
    for secret in (old, new):
        assert Webhook(secret).verify(echo.calls[0].body, echo.calls[0].headers) == [1]
    newest = echo.calls[0].headers["webhook-signature"].split()[0]
    await sql.execute("UPDATE secret_versions SET expires_at = now() WHERE version = 1")
    clock.seconds += 10
    await ran(store, job)
    assert Webhook(new).verify(echo.calls[1].body, echo.calls[1].headers) == [1]
    with pytest.raises(WebhookVerificationError):
        Webhook(old).verify(echo.calls[1].body, echo.calls[1].headers)
    assert newest not in echo.calls[1].headers["webhook-signature"]  # another time, another signature


async def test_a_tenant_signs_all_its_calls(
    store: Store, start: StartSession, runner: HttpTargetRunner, echo: Echo, commands: SecretCommands, keys: MasterKeys
) -> None:
    tenants, own = generate_signing_key(), generate_signing_key()
    await commands.set(1, "tenants", tenants)
    await commands.set(1, "own", own)
    target = {"type": "http", "url": f"{echo.url}/ok"}
    plain, signed = await JobOperations(store).registration.add(
        [spec(target=target, payload=1), spec(target=target, payload=2, signing={"secret": "own"})]
    )
    values = SecretValues(store.secrets, keys, SecretProviders(), now=(clock := Clock()))
    await start(runner, secrets=values)
    await ran(store, plain)
    assert "webhook-signature" not in echo.calls[0].headers
    await store.tenants.change("default", {"signing": "tenants"})
    clock.seconds += 10
    await ran(store, plain)
    assert Webhook(tenants).verify(echo.calls[1].body, echo.calls[1].headers) == 1
    await ran(store, signed)
    assert Webhook(own).verify(echo.calls[2].body, echo.calls[2].headers) == 2


async def test_a_secret_that_is_no_signing_key_fails_the_attempt(
    store: Store,
    start: StartSession,
    runner: HttpTargetRunner,
    echo: Echo,
    commands: SecretCommands,
    values: SecretValues,
) -> None:
    await commands.set(1, "webhooks", VALUE)
    target = {"type": "http", "url": f"{echo.url}/ok"}
    (job,) = await JobOperations(store).registration.add([spec(target=target, signing={"secret": "webhooks"})])
    await start(runner, secrets=values)
    (error,) = (await ran(store, job))["errors"]
    assert error == (
        "The secret 'webhooks' could not be used: it cannot sign, which needs whsec_ and 24 to 64 bytes in base64."
    )
    assert not echo.calls


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


# --- the start of a worker ---


async def test_a_worker_without_the_key_of_its_cluster_does_not_start(
    store: Store, commands: SecretCommands, secret_key: str, keys: MasterKeys
) -> None:
    roles = ("scheduler", "worker")
    await secret_values(Settings(), roles, store)  # without secrets, none is needed
    await commands.set(1, "payments", VALUE)
    with pytest.raises(UsageError, match=f"under the key {keys.newest}, and DETENT_SECRET_KEY is not set"):
        await secret_values(Settings(), roles, store)
    with pytest.raises(UsageError, match="add the missing key after the others"):
        await secret_values(Settings(secret_key=generate_master_key()), roles, store)
    await secret_values(Settings(), ("scheduler",), store)
    await secret_values(Settings(secret_key=f"{generate_master_key()}\n{secret_key}"), roles, store)


async def test_providers_are_for_tenants_that_exist(store: Store, tmp_path: Path) -> None:
    settings = Settings(secret_directory=tmp_path, secret_provider_tenants=("default", "nobody"))
    with pytest.raises(UsageError, match="secret_provider_tenants names nobody"):
        await secret_values(settings, ("worker",), store)
