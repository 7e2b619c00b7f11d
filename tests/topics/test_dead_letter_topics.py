"""Dead runs go to the topic of their job or tenant: from a real run to a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.json import encode

from detent.domain.job import HttpTarget, JobSpec, TargetCredentials, TopicTarget
from detent.domain.run import Call, Failed, Outcome
from detent.domain.secret_keys import read_master_keys
from detent.domain.secret_ref import SecretRef
from detent.errors import Conflict, UsageError
from detent.jobs import JobOperations
from detent.jobs.secrets import SecretCommands
from detent.runtime.envelope import MasterKeys
from detent.store import Store
from detent.targets.topics.runner import TopicTargetRunner
from detent.telemetry.metrics import Metrics
from detent.upkeep import dead_letters as forwarding
from detent.worker.secret_providers import SecretProviders
from detent.worker.secrets import SecretValues
from tests.api.two_tenants import SECRET_KEY
from tests.support.sessions import StartSession, looking_often, start
from tests.support.waiting import until
from tests.topics.brokers import PASSWORD, USER, Broker, NatsBroker
from tests.topics.conftest import Start

__all__ = ["looking_often", "start"]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens every few seconds happens several times in one."""
    monkeypatch.setattr(forwarding, "LOOK_EVERY", 0.1)
    monkeypatch.setattr(forwarding, "FIRST_PAUSE", 0.05)


@pytest.fixture
def nats(start_broker: Start) -> Iterator[Broker]:
    broker = start_broker("nats")
    yield broker
    broker.ensure()


async def broken(call: Call) -> Outcome:
    return Failed("The warehouse does not answer.", retryable=False)


async def add(store: Store, name: str, **fields: Any) -> None:
    values = {"schedule": {"at": "2020-01-01T00:00:00Z"}, "allow_past": True, "payload": {"order": 17}, **fields}
    target = HttpTarget(url="http://127.0.0.1:9/")
    await JobOperations(store).registration.add([JobSpec(target=target, name=name, **values)])


async def waiting(look: Any) -> int:
    return int(await look.fetchval("SELECT count(*) FROM dead_letters"))


async def forwarded(metrics: Metrics, count: int = 1) -> None:
    await until(lambda: metrics.dead_letters["forwarded"] >= count, 20, "a dead run to be forwarded")


async def test_a_dead_run_is_forwarded_with_its_facts_its_payload_and_its_error(
    store: Store, start: StartSession, nats: Broker, runner: TopicTargetRunner, topic: str, look: Any
) -> None:
    await nats.create(topic)
    metrics = Metrics()
    await start(broken, topic=runner, metrics=metrics)
    await add(store, "import", dead_letter_topic=nats.target(topic, headers={"Region": "eu"}))
    await forwarded(metrics)
    (message,) = await nats.read(topic)
    document = message.payload
    assert document["job"] == "import"
    assert document["payload"] == {"order": 17}
    assert document["error"] == "The warehouse does not answer."
    assert document["attempt"] == 1
    assert document["scheduled_at"] == "2020-01-01T00:00:00Z"
    assert message.headers["Detent-Run-Id"] == document["run_id"]
    assert message.headers["Region"] == "eu"
    assert message.headers["Idempotency-Key"].startswith(f"{document['idempotency_key']}:dead:")
    await until(lambda: _none(look), what="the note to be deleted")


async def test_a_job_without_a_topic_uses_the_one_of_its_tenant(
    store: Store, start: StartSession, nats: Broker, runner: TopicTargetRunner, topic: str
) -> None:
    own = f"{topic}-own"
    await nats.create(topic)
    await nats.create(own)
    metrics = Metrics()
    await store.tenants.change("default", {"dead_letter_topic": nats.target(topic)})
    await start(broken, topic=runner, metrics=metrics)
    await add(store, "without")
    await add(store, "with", dead_letter_topic=nats.target(own))
    await forwarded(metrics, 2)
    assert [message.payload["job"] for message in await nats.read(topic)] == ["without"]
    assert [message.payload["job"] for message in await nats.read(own)] == ["with"]


async def test_a_job_without_any_topic_leaves_no_note(store: Store, start: StartSession, look: Any) -> None:
    await start(broken)
    await add(store, "import")
    await until(lambda: look.fetchval("SELECT count(*) FROM run_history WHERE status = 2"), 20, "a dead run")
    assert await waiting(look) == 0


async def test_a_dead_run_waits_for_its_broker_and_doctor_shows_why(
    store: Store, start: StartSession, start_broker: Start, runner: TopicTargetRunner, topic: str, look: Any
) -> None:
    nats = start_broker("nats")
    await nats.create(topic)
    nats.kill()
    metrics = Metrics()
    await start(broken, topic=runner, metrics=metrics)
    await add(store, "import", dead_letter_topic=nats.target(topic))
    await until(lambda: metrics.dead_letters["failed"] >= 2, 20, "two failed tries")
    (row,) = await look.fetch("SELECT tries, error FROM dead_letters")
    assert f"127.0.0.1:{nats.port}" in row["error"]
    nats.start()
    await forwarded(metrics)
    assert len(await nats.read(topic)) == 1


async def test_a_revived_run_that_dies_again_is_another_message(
    store: Store, start: StartSession, nats: Broker, runner: TopicTargetRunner, topic: str, look: Any
) -> None:
    await nats.create(topic)
    metrics = Metrics()
    await start(broken, topic=runner, metrics=metrics)
    await add(store, "import", dead_letter_topic=nats.target(topic))
    await forwarded(metrics)
    (run,) = await look.fetch("SELECT job, scheduled_at, serial FROM run_history WHERE status = 2")
    from detent.domain.identity import RunKey

    await store.reruns.redrive([RunKey(*run.values())], {})
    await forwarded(metrics, 2)
    messages = await nats.read(topic)
    assert len({message.payload["run_id"] for message in messages}) == 1
    assert len({message.headers["Idempotency-Key"] for message in messages}) == len(messages) == 2


async def test_a_note_that_another_node_left_is_sent_once_where_the_broker_deduplicates(
    store: Store, start: StartSession, nats: Broker, runner: TopicTargetRunner, topic: str, look: Any, sql: Any
) -> None:
    """The node sent the message and died before it deleted the note."""
    await nats.create(topic)
    metrics = Metrics()
    first = await start(broken, topic=runner, metrics=metrics)
    await add(store, "import", dead_letter_topic=nats.target(topic))
    await forwarded(metrics)
    await until(lambda: _none(look), what="the note to be deleted")
    await first.close(0)
    await sql.execute(
        "INSERT INTO dead_letters (job, scheduled_at, serial, token, revision, attempt, finished_at)"
        " SELECT job, scheduled_at, serial, token, revision, attempt, finished_at FROM run_history WHERE status = 2"
    )
    await start(broken, topic=runner, metrics=metrics)
    await forwarded(metrics, 2)
    assert len(await nats.read(topic)) == 1


async def test_credentials_are_secrets_and_those_of_the_payload_stay_references(
    store: Store, start: StartSession, start_broker: Start, runner: TopicTargetRunner, topic: str
) -> None:
    nats = start_broker("nats", secured=True)
    await nats.create(topic)
    keys = MasterKeys(read_master_keys(SECRET_KEY))
    commands, metrics = SecretCommands(store, keys), Metrics()
    for name in ("nats", "shop"):
        await commands.set(1, name, PASSWORD)
    target = nats.target(topic, credentials=TargetCredentials(USER, SecretRef("nats")))
    await start(broken, topic=runner, metrics=metrics, secrets=SecretValues(store.secrets, keys, SecretProviders()))
    await add(store, "import", dead_letter_topic=target, payload={"password": {"secret": "shop"}})
    await forwarded(metrics)
    (message,) = await nats.read(topic)
    assert message.payload["payload"] == {"password": {"secret": "shop"}}
    with pytest.raises(Conflict, match="the job import refers"):
        await commands.delete(1, "nats")
    await store.tenants.change("default", {"dead_letter_topic": target})
    await commands.set(1, "unused", PASSWORD)
    await commands.delete(1, "unused")


async def test_a_secret_of_the_tenants_topic_cannot_be_deleted(store: Store) -> None:
    commands = SecretCommands(store, MasterKeys(read_master_keys(SECRET_KEY)))
    await commands.set(1, "nats", PASSWORD)
    topic = TopicTarget("nats://n.example", "dead", credentials=TargetCredentials(USER, SecretRef("nats")))
    await store.tenants.change("default", {"dead_letter_topic": topic})
    with pytest.raises(Conflict, match="dead-letter topic of its tenant"):
        await commands.delete(1, "nats")
    await store.tenants.change("default", {"dead_letter_topic": None})
    await commands.delete(1, "nats")


@pytest.mark.parametrize(
    ("topic", "pointer"),
    [
        (TopicTarget("ftp://n.example", "dead"), "/dead_letter_topic/url"),
        (TopicTarget("nats://n.example", "two words"), "/dead_letter_topic/topic"),
        (TopicTarget("nats://n.example", "dead", headers={"X-Api-Key": "abc"}), "/dead_letter_topic/headers/X-Api-Key"),
        (
            TopicTarget("nats://n.example", "dead", credentials=TargetCredentials("a", "b")),
            "/dead_letter_topic/credentials/password",
        ),
    ],
)
async def test_a_topic_that_cannot_work_is_refused_at_registration(
    store: Store, topic: TopicTarget, pointer: str
) -> None:
    with pytest.raises(UsageError) as refused:
        await add(store, "import", dead_letter_topic=topic)
    assert refused.value.pointer == pointer


async def test_notes_are_made_by_history_itself_for_dead_runs_only(store: Store, sql: Any) -> None:
    """Whichever statement of whichever version writes the run."""
    await add(store, "import", dead_letter_topic=TopicTarget("nats://n.example", "dead"), starts_at=None)
    job = await sql.fetchval("SELECT job FROM jobs")
    at = datetime.now(UTC) + timedelta(days=20)  # in a partition that is made after the trigger
    assert await sql.fetchval("SELECT make_history_part('run_history', $1)", at) is not None
    for status in (1, 2, 3):
        await sql.execute(
            "INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status)"
            " VALUES ($1, $2, 7, now(), 0, 1, 1, $3)",
            job, at + timedelta(seconds=status), status,
        )  # fmt: skip
    rows = await sql.fetch("SELECT scheduled_at, token FROM dead_letters")
    assert [tuple(row) for row in rows] == [(at + timedelta(seconds=2), 7)]


async def test_notes_of_purged_jobs_are_deleted_and_delay_no_others(store: Store, sql: Any) -> None:
    """As nodes of an older release leave them: they purge jobs, and do not know the notes."""
    await add(store, "import", dead_letter_topic=TopicTarget("nats://n.example", "dead"))
    note = (
        "INSERT INTO dead_letters (job, scheduled_at, serial, token, revision, attempt, finished_at)"
        " SELECT $1, now() + g * interval '1 s', 0, 7, 1, 1, now() FROM generate_series(1, $2) g"
    )
    await sql.execute(note, 1_000_000, 50)
    await sql.execute(note, await sql.fetchval("SELECT job FROM jobs"), 1)
    letters = await store.dead_letter_topics.take(1, timedelta(seconds=90))
    while not letters:
        letters = await store.dead_letter_topics.take(1, timedelta(seconds=90))
    assert [letter.job for letter in letters] == ["import"]
    while await sql.fetchval("SELECT count(*) FROM dead_letters WHERE job = 1000000"):
        assert await store.dead_letter_topics.take(1, timedelta(seconds=90)) == []
    assert await waiting(sql) == 1


async def test_a_note_that_no_message_can_be_made_of_is_put_off_with_its_error(
    store: Store, start: StartSession, nats: Broker, runner: TopicTargetRunner, topic: str, look: Any
) -> None:
    def broken_call(*_arguments: Any) -> Call:
        raise RecursionError("too deep")

    await nats.create(topic)
    metrics = Metrics()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forwarding, "call_of_letter", broken_call)
        await start(broken, topic=runner, metrics=metrics)
        await add(store, "import", dead_letter_topic=nats.target(topic))
        error = await until(lambda: look.fetchval("SELECT error FROM dead_letters"), 20, "the first try")
    assert "RecursionError: too deep" in error
    await forwarded(metrics)


async def test_a_job_without_the_field_is_stored_as_versions_before_read_it(store: Store, sql: Any) -> None:
    await add(store, "import")
    assert b"dead_letter_topic" not in encode(await sql.fetchval("SELECT definition FROM jobs"))


async def _none(look: Any) -> bool:
    return await waiting(look) == 0


def test_the_broker_of_these_tests_deduplicates() -> None:
    assert NatsBroker.deduplicates
