"""Both clients for programs, put through the same life against the real API behind a real socket."""

from __future__ import annotations

import asyncio
import inspect
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from detent import AsyncClient, Client, errors
from detent.api.app import PARTS, create_app
from detent.client.operation import Listing, Operation, Procedure, Request
from detent.client.operations import Operations
from detent.client.runs import get_run
from detent.contract.pull import ClaimedRun
from detent.domain.job import HttpTarget, JobSpec, PythonTarget
from detent.domain.on_demand import NewRun
from detent.domain.states import RunStatus
from detent.node.server import ApiServer
from detent.settings.settings import Settings
from detent.store import Database, Store
from detent.telemetry.metrics import Metrics
from tests.support.serving import serving

HTTP = {"type": "http", "url": "http://127.0.0.1:9/"}


async def ready() -> dict[str, Any]:
    return {}


@pytest.fixture
async def url(database_url: str) -> AsyncIterator[str]:
    database = Database(database_url)
    await database.open()
    app = create_app(Store(database), settings=Settings(), readiness=ready, metrics=Metrics())
    async with ApiServer(app, "127.0.0.1", 0) as server:
        yield server.url
    await database.close()


class Asked:
    """A client of either kind, asked in one way: every verb is awaited, and a listing is a list."""

    def __init__(self, client: Client | AsyncClient) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self.client, name)

        async def ask(*arguments: Any, **options: Any) -> Any:
            if isinstance(self.client, AsyncClient):
                answer = verb(*arguments, **options)
                return [item async for item in answer] if inspect.isasyncgen(answer) else await answer
            answer = await asyncio.to_thread(verb, *arguments, **options)
            return await asyncio.to_thread(list, answer) if inspect.isgenerator(answer) else answer

        return ask


@pytest.fixture(params=[Client, AsyncClient])
async def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
async def client(url: str, kind: Any) -> AsyncIterator[Any]:
    asked = Asked(kind(url))
    yield asked
    await asked.close() if kind is AsyncClient else asked.client.close()


def test_the_key_may_be_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DETENT_API_KEY", raising=False)
    monkeypatch.setenv("DETENT_API_KEY_FILE", str(tmp_path / "key"))
    with pytest.raises(errors.UsageError, match="which DETENT_API_KEY_FILE names, cannot be read"):
        Client("http://127.0.0.1:9")
    (tmp_path / "key").write_text("dtn_from_a_file\n")
    assert Client("http://127.0.0.1:9")._connection.address.headers["Authorization"] == "Bearer dtn_from_a_file"


async def test_a_job_goes_through_its_whole_life(client: Any) -> None:
    made = await client.create_job(
        JobSpec(name="a/b ü", schedule="@daily", target=HttpTarget(url="http://h/"), tags=["x"])
    )
    assert isinstance(made.id, UUID)
    assert isinstance(made.next_run_at, datetime)
    assert made.target == HttpTarget(url="http://h/")
    assert await client.get_job("a/b ü") == await client.get_job(made.id)
    assert (await client.pause_job("a/b ü", "too loud")).paused_reason == "too loud"
    assert (await client.resume_job(made.id)).status == "active"
    run = await client.trigger_job("a/b ü")
    assert (run.status, run.result, run.job_id) == (RunStatus.PENDING, None, made.id)
    assert [each.id for each in await client.list_runs("a/b ü")] == [run.id]
    cancelled = await client.cancel_run(run.id)
    assert cancelled.status is RunStatus.CANCELLED
    assert await client.wait_for_run(run.id) == await client.get_run(str(run.id))
    assert await client.delete_job("a/b ü") is None
    with pytest.raises(errors.NotFound):
        await client.get_job("a/b ü")


async def test_a_job_is_paused_for_a_while_skipped_once_and_rolled_back(client: Any) -> None:
    await client.create_job({"name": "j", "schedule": "0 * * * *", "target": HTTP, "priority": 1})
    later = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=3)
    paused = await client.pause_job("j", until=later, on_resume="all")
    assert (paused.paused_until, paused.on_resume) == (later, "all")
    assert (await client.resume_job("j", "skip")).status == "active"
    assert (await client.skip_tick("j", later, "holiday")).reason == "holiday"
    assert [skip.at for skip in await client.list_skips("j")] == [later]
    assert [tick.status for tick in await client.list_ticks("j", later, later)] == ["to be skipped"]
    assert await client.unskip_tick("j", later) is None
    told = await client.explain_tick("j", later)
    assert (told.tick, told.status) == (True, "scheduled")
    run = await client.trigger_job("j", {"n": 1})
    assert (await client.cancel_job_runs("j")).cancelled == [run.id]
    await client.edit_job("j", {"priority": 2})
    assert [(each.revision, each.changed_by) for each in await client.list_revisions("j")] == [
        (2, "local, no key"),
        (1, "local, no key"),
    ]
    assert (await client.get_revision("j", 1)).definition.priority == 1
    assert (await client.roll_back_job("j", 1)).revision == 3
    assert await client.audit(jobs=["j"]) == []


async def test_an_upsert_returns_what_it_did(client: Any) -> None:
    document = {"name": "j", "schedule": "every 1h", "target": HTTP}
    changes = [
        (await client.upsert_job(each)).change for each in (document, document, {**document, "schedule": "every 2h"})
    ]
    assert changes == ["created", "unchanged", "updated"]
    assert (await client.upsert_job({**document, "priority": 9})).job.priority == 9
    with pytest.raises(errors.UsageError, match="name is empty"):
        await client.upsert_job({"schedule": "@daily", "target": HTTP})


async def test_many_jobs_are_registered_in_one_call(client: Any) -> None:
    jobs = [JobSpec(name=f"b{number}", schedule="@daily", target=HttpTarget(url="http://h/")) for number in range(30)]
    done = await client.create_jobs(jobs, owner="me")
    assert (done.created, [item.name for item in done.items]) == (30, [job.name for job in jobs])
    again = await client.create_jobs(jobs, upsert=True, owner="me")
    assert (again.created, again.unchanged) == (0, 30)
    assert len(await client.list_jobs("name:b1", owner="me")) == len(await client.list_jobs(prefix="b1"))


async def test_an_edit_is_made_to_the_revision_it_names_or_not_at_all(client: Any) -> None:
    job = await client.create_job({"name": "e", "schedule": "@daily", "target": HTTP, "priority": 3})
    edited = await client.edit_job("e", {"priority": None, "tags": ["x"]}, revision=job.revision)
    assert (edited.priority, edited.tags, edited.revision) == (5, ["x"], job.revision + 1)
    with pytest.raises(errors.Conflict):
        await client.edit_job("e", {"priority": 1}, revision=job.revision)


async def test_runs_are_run_again_and_dead_ones_go_on(client: Any) -> None:
    spec = {"name": "r", "schedule": "@daily", "target": {"type": "python", "function": "f"}, "queue": "q"}
    await client.create_job(spec)
    await client.trigger_job("r")
    (run,) = await client.claim_runs("q", "me")
    await client.fail_run(run, "no", retryable=False)
    assert [dead.id for dead in await client.list_dead_letters("r")] == [run.run_id]
    redriven = await client.redrive_dead_letters([run.run_id])
    assert redriven.redriven == [run.run_id]
    (again,) = await client.claim_runs("q", "me")
    assert (again.run_id, again.idempotency_key) == (run.run_id, run.idempotency_key)
    await client.complete_run(again)
    for repeated in (await client.retry_run(run.run_id), await retried(client, "r")):
        assert repeated.id != run.run_id  # a new run, due now
        assert repeated.scheduled_at > run.scheduled_at
        assert repeated.idempotency_key != run.idempotency_key
    assert (await client.redrive_dead_letters(job="r")).redriven == []


async def retried(client: Any, job: str) -> Any:
    (run,) = await client.claim_runs("q", "me")
    await client.complete_run(run)
    return await client.retry_job(job)


async def test_a_schedule_is_explained_and_the_cluster_is_looked_at(client: Any) -> None:
    preview = await client.preview_schedule("30 2 * * *", "Europe/Berlin", count=2, from_="2026-03-28T12:00:00Z")
    assert [(tick.at.day, tick.dst) for tick in preview.ticks] == [(29, "moved"), (30, None)]
    assert (await client.get_cluster()).nodes == []


async def test_a_listing_goes_over_as_many_pages_as_it_takes(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for noun in ("jobs", "runs"):
        monkeypatch.setattr(f"detent.client.{noun}.PAGE_SIZE", 3)
    names = [f"job-{number}" for number in range(8)]
    for name in names:
        await client.create_job({"name": name, "schedule": "@daily", "target": HTTP, "tags": [name[-1:]]})
        await client.trigger_job(name)
    assert [job.name for job in await client.list_jobs()] == names
    assert [job.name for job in await client.list_jobs(tag="3")] == ["job-3"]
    assert await client.list_jobs(status="paused") == []
    runs = await client.list_runs(status=[RunStatus.PENDING, "running"])
    assert [run.job for run in runs] == names[::-1]
    assert await client.list_runs("job-1", status=["dead"]) == []


async def test_runs_are_enqueued_and_tasks_are_listed(client: Any) -> None:
    await client.create_job({"name": "mail", "target": HTTP})
    due = datetime.now(UTC) + timedelta(hours=1)
    first = await client.enqueue("mail", {"to": "ada"}, at=due, priority=-3, unique_key="a", unique_for_seconds=60)
    assert (first.created, first.status) == (True, RunStatus.PENDING)
    assert abs(first.scheduled_at - due) < timedelta(milliseconds=1)
    again = await client.enqueue("mail", unique_key="a")
    assert (again.created, again.id) == (False, first.id)
    plain = await client.enqueue("mail", delay_seconds=60, queue="slow", concurrency_key="k")
    many = await client.enqueue_many("mail", [{"payload": 1}, NewRun(payload=2, unique_key="a"), {}])
    assert [run.created for run in many] == [True, False, True]
    assert len({run.id for run in (first, plain, *many)}) == 4
    (task,) = await client.list_tasks()
    assert (task.name, task.pending, task.ready, task.delayed) == ("mail", 4, 2, 2)
    with pytest.raises(errors.NotFound, match="no task or job"):
        await client.enqueue("nobody")
    with pytest.raises(errors.UsageError, match="priority is 101") as refused:
        await client.enqueue_many("mail", [{}, {"priority": 101}])
    assert refused.value.pointer == "/runs/1/priority"


async def test_a_refused_trigger_of_a_busy_job_raises(client: Any) -> None:
    await client.create_job({"name": "busy", "schedule": "@daily", "target": HTTP})
    await client.trigger_job("busy")
    with pytest.raises(errors.Conflict, match="maximum of unfinished runs"):
        await client.trigger_job("busy", {"n": 1}, if_busy="refuse")
    assert (await client.trigger_job("busy", {"n": 1})).status is RunStatus.PENDING


async def test_a_worker_claims_beats_and_reports(client: Any) -> None:
    target = PythonTarget(function="send")
    await client.create_job(
        JobSpec(name="w", schedule="@daily", target=target, queue="mail", payload=[1], max_retries=1)
    )
    assert await client.claim_runs("mail", "me", functions=["send"]) == []
    triggered = await client.trigger_job("w")
    (run,) = await client.claim_runs("mail", "me", wait_seconds=5)
    assert isinstance(run, ClaimedRun)
    assert (run.run_id, run.payload, run.target) == (triggered.id, [1], target)
    lease = await client.heartbeat_run(run, lease_seconds=300)
    assert lease.lease_until > run.lease_until
    settled = await client.fail_run(run, "not yet", retry_after=0)
    assert settled.status is RunStatus.RETRYING
    with pytest.raises(errors.OwnershipLost, match="no longer held under this token"):
        await client.complete_run(run)
    (again,) = await client.claim_runs("mail", "me", wait_seconds=5)
    assert (await client.complete_run(again, {"sent": True})).status is RunStatus.SUCCEEDED
    done = await client.wait_for_run(run.run_id, timeout=5)
    assert (done.result, done.attempt, done.node) == ({"sent": True}, 2, "pull:me")


async def test_text_where_a_list_belongs_is_refused(client: Any) -> None:
    """It is a sequence too: one job would be asked for by each of its letters."""
    calls: list[Callable[[], Any]] = [
        lambda: client.audit(jobs="nightly"),
        lambda: client.claim_runs("mail", "me", functions="send"),
        lambda: client.claim_runs("mail", "me", targets="http"),
        lambda: client.redrive_dead_letters("0192-7"),
        lambda: client.discard_dead_letters("0192-7"),
    ]
    for call in calls:
        with pytest.raises(errors.UsageError, match=r"give a list, such as (jobs|functions|targets|runs)=\['"):
            await call()


async def test_waiting_ends_with_the_run_or_with_its_time(client: Any) -> None:
    await client.create_job({"name": "slow", "schedule": "@daily", "target": HTTP})
    run = await client.trigger_job("slow")
    with pytest.raises(TimeoutError, match=r"of slow is still pending after 0\.05 s"):
        await client.wait_for_run(run.id, timeout=0.05)
    waiting = asyncio.create_task(client.wait_for_run(run.id))
    await client.cancel_run(run.id)
    assert (await asyncio.wait_for(waiting, 20)).status is RunStatus.CANCELLED


async def test_a_refusal_is_the_error_of_its_meaning(client: Any) -> None:
    with pytest.raises(errors.UsageError) as caught:
        await client.create_job({"schedule": "61 * * * *", "target": HTTP})
    assert caught.value.pointer == "/schedule"
    await client.create_job({"name": "j", "schedule": "@daily", "target": HTTP})
    with pytest.raises(errors.Conflict):
        await client.create_job({"name": "j", "schedule": "@daily", "target": HTTP})
    with pytest.raises(errors.UsageError, match="JSON"):
        await client.create_job({"payload": float("nan")})


async def test_the_server_reports_its_version(client: Any) -> None:
    assert (await client.version()).api == "v1"


async def test_the_environment_says_where_the_server_is_and_with_which_key(
    url: str, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETENT_API_URL", url)
    monkeypatch.setenv("DETENT_API_KEY", "detent_wrong")
    asked = Asked(kind())
    assert asked.client.url == url
    with pytest.raises(errors.NotAuthorised):
        _ = [await asked.list_jobs()]
    await asked.close() if kind is AsyncClient else asked.client.close()


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


async def test_without_a_server_the_error_says_how_to_start_one(kind: Any) -> None:
    address = f"http://127.0.0.1:{closed_port()}"
    asked = Asked(kind(address))
    with pytest.raises(errors.Unavailable) as caught:
        await asked.get_job("x")
    assert caught.value.message == (
        f"No detent server answers at {address}: start one with `detent serve`, or set DETENT_API_URL."
    )
    await asked.close() if kind is AsyncClient else asked.client.close()


async def answering(kind: Any, reply: bytes | None, timeout: float = 30) -> Any:
    """What a client makes of this answer; None: none ever comes."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if reply is None:
            await over.wait()
        else:
            writer.write(reply)
        writer.close()

    async with serving(serve) as port:
        asked = Asked(kind(f"http://127.0.0.1:{port}", timeout=timeout))
        try:
            return await asked.trigger_job("x")
        finally:
            over.set()
            await asked.close() if kind is AsyncClient else asked.client.close()


def reply(body: bytes, kind: str = "application/json", status: int = 200) -> bytes:
    head = f"HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (reply(b"<html>", "text/html"), "is not a detent server"),
        (reply(b"{"), "is not a detent server"),
        (reply(b"no", "text/plain", 404), "is not a detent server"),
        (reply(b"", "text/html", 302), "is not a detent server"),
        (reply(b'{"id": 5}'), "use the same version of both"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{",
            "No detent server answers",
        ),
    ],
)
async def test_what_is_not_a_detent_server_is_distinguished(kind: Any, answer: bytes, words: str) -> None:
    with pytest.raises(errors.Unavailable, match=words):
        await answering(kind, answer)


async def test_a_server_that_does_not_answer_in_time_is_unavailable(kind: Any) -> None:
    with pytest.raises(errors.Unavailable, match=r"did not answer within 0\.1 s"):
        await answering(kind, None, timeout=0.1)


async def test_what_is_to_happen_once_is_sent_under_one_key_however_often_it_is_sent(url: str, kind: Any) -> None:
    """The first answer is lost on its way; the server is asked again and makes no second job."""
    host, port = url.removeprefix("http://").split(":")
    asked_for: list[bytes] = []

    async def lose_the_second_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream = await asyncio.open_connection(host, int(port))

        async def forward() -> None:
            while data := await reader.read(65536):
                if b"HTTP/1.1\r\n" in data:
                    asked_for.append(data)
                upstream.write(data)

        task = asyncio.create_task(forward())
        try:
            while data := await upstream_reader.read(65536):
                if len(asked_for) == 2:  # of two calls on one connection
                    break
                writer.write(data)
        finally:
            task.cancel()
            upstream.close()

    async with serving(lose_the_second_answer) as proxy:
        asked = Asked(kind(f"http://127.0.0.1:{proxy}"))
        await asked.version()
        made = await asked.create_job({"name": "once", "schedule": "@daily", "target": HTTP})
        keys = [found[1] for data in asked_for if (found := re.search(rb"Idempotency-Key: (\S+)", data))]
        assert len(keys) == 2
        assert keys[0] == keys[1]
        assert [job.id for job in await asked.list_jobs()] == [made.id]
        await asked.close() if kind is AsyncClient else asked.client.close()


# --- one description ---


def verbs() -> dict[str, Any]:
    return {
        name: verb
        for noun in Operations.__mro__
        for name, verb in vars(noun).items()
        if isinstance(verb, Operation | Listing | Procedure)
    }


SAMPLES: dict[str, tuple[Any, ...]] = {
    "create_job": ({"name": "x"},),
    "upsert_job": ({"name": "x"},),
    "claim_runs": ("q", "w"),
    "create_jobs": ([],),
    "backfill_job": ("x", datetime(2026, 1, 1, tzinfo=UTC)),
    "edit_job": ("x", {}),
    "get_cluster": (),
    "list_jobs": (),
    "list_runs": (),
    "list_tasks": (),
    "grant_enqueue": ("x", "role"),
    "revoke_enqueue": ("x", "role"),
    "resume_all": (),
    "version": (),
    "fail_run": ("RUN", "error"),
    "log_run": ("RUN", "a line"),
    "audit": (),
    "change_jobs": ("pause", "x"),
    "change_jobs_chunk": ("pause", "x"),
    "change_alert_rule": ("x", {}),
    "change_tenant": ("x", {}),
    "create_alert_rule": ("x", {}),
    "list_alert_rules": (),
    "discard_dead_letters": (),
    "drop_catchup": ("x",),
    "explain_tick": ("x", "2026-01-01T00:00:00Z"),
    "get_revision": ("x", 1),
    "list_dead_groups": (),
    "list_incidents": (),
    "list_keys": (),
    "bind_role": ("group", "staff", "viewer"),
    "get_audit_chain": (),
    "list_audit_chain": (),
    "list_audit_events": (),
    "list_queues": (),
    "enqueue_many": ("x", [{}]),
    "list_role_bindings": (),
    "list_secrets": (),
    "list_tenants": (),
    "liveness": (),
    "readiness": (),
    "redrive_dead_letters": (),
    "roll_back_job": ("x", 1),
    "rotate_secret": ("x", "value"),
    "rotate_secret_key": (),
    "set_secret": ("x", "value"),
    "skip_tick": ("x", datetime(2026, 1, 1, tzinfo=UTC)),
    "unskip_tick": ("x", datetime(2026, 1, 1, tzinfo=UTC)),
    "list_dead_letters": (),
}


def a_claimed_run() -> ClaimedRun:
    values = dict.fromkeys(ClaimedRun.__struct_fields__)
    return ClaimedRun(**{**values, "run_id": UUID(int=1), "token": 1})  # type: ignore[arg-type]  # only these are read


def test_every_verb_asks_for_something_that_the_api_has() -> None:
    known = {
        (endpoint.method, re.sub(r"\{\w+\}", "[^/]+", endpoint.path))
        for part in PARTS
        for endpoint in part.routes.endpoints
    }
    for name, verb in verbs().items():
        arguments = [a_claimed_run() if each == "RUN" else each for each in SAMPLES.get(name, ("x",))]
        if name in ("heartbeat_run", "complete_run"):
            arguments = [a_claimed_run()]
        made = verb.make(*arguments)
        request: Request[Any] = made if isinstance(verb, Operation | Listing) else next(made)
        matches = [path for method, path in known if method == request.method and re.fullmatch(path, request.path)]
        assert matches, f"{name} asks for {request.method} {request.path}, which is not in the API"


def test_both_clients_have_every_verb_and_its_words() -> None:
    for kind in (Client("http://localhost"), AsyncClient("http://localhost")):
        for name, verb in verbs().items():
            assert getattr(kind, name).__doc__ == verb.make.__doc__
            assert list(inspect.signature(getattr(kind, name)).parameters) == list(
                inspect.signature(verb.make).parameters
            )
    assert Client.get_run.make is get_run


# --- imported fast ---


CLIENTS_OF_BROKERS = {"redis", "nats", "confluent_kafka", "celery", "kombu", "botocore", "pamqp", "yarl"}


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import detent", {"msgspec", "asyncio", "asyncpg", "aiohttp", "starlette", "http.client", "logging"}),
        (
            "from detent import Detent, Run",
            {"asyncpg", "aiohttp", "starlette", "click", "rich", "detent.domain.schedule", *CLIENTS_OF_BROKERS},
        ),
        ("from detent import Client", {"asyncpg", "aiohttp", "starlette", "click", "rich", "asyncio", "detent.store"}),
        ("from detent import AsyncClient", {"asyncpg", "aiohttp", "starlette", "click", "rich", "detent.store"}),
    ],
)
def test_an_import_loads_only_what_it_needs(statement: str, absent: set[str]) -> None:
    program = f"{statement}\nimport sys\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & absent == set()
