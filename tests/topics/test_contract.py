"""What every broker has to do for a topic target. `brokers.py` says what each promises."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import UNSET

from detent.domain.job import TargetCredentials
from detent.domain.run import Failed, Outcome, Succeeded
from detent.domain.target_access import PUBLIC_ONLY
from detent.domain.target_rules import check_target
from detent.domain.target_url import TargetError
from detent.targets.policies import FixedPolicy
from detent.targets.topics.runner import TopicTargetRunner
from tests.support.brokers import USER
from tests.support.waiting import until
from tests.targets.target_helpers import failed, succeeded
from tests.topics.brokers import BROKERS, Broker, Received
from tests.topics.conftest import Start
from tests.topics.topic_calls import topic_call

PAYLOAD: dict[str, Any] = {"order": 17, "name": "Zoë", "items": [1, 2.5, None]}
WINDOW = datetime(2026, 3, 1, 5, 30, tzinfo=UTC)


async def test_payload_and_facts_arrive(broker: Broker, runner: TopicTargetRunner, topic: str) -> None:
    await broker.create(topic)
    call = topic_call(broker.target(topic, headers={"Region": "eu"}), PAYLOAD, window=lambda: WINDOW, attempt=2)
    receipt = succeeded(await runner(call))
    assert receipt
    (message,) = await broker.read(topic)
    assert message.payload == PAYLOAD
    assert _facts(message) == {
        "idempotency-key": call.idempotency_key,
        "detent-run-id": call.run_id,
        "detent-job": "nightly-report",
        "detent-job-id": call.job_id,
        "detent-scheduled-at": "2026-03-01T06:30:00Z",
        "detent-attempt": "2",
        "detent-token": "8589934593",
        "detent-window-start": "2026-03-01T05:30:00Z",
        "detent-window-end": "2026-03-01T06:30:00Z",
        "region": "eu",
    }
    assert _header(message, "traceparent").startswith("00-")


async def test_a_job_without_payload_sends_null(broker: Broker, runner: TopicTargetRunner, topic: str) -> None:
    await broker.create(topic)
    succeeded(await runner(topic_call(broker.target(topic))))
    assert [message.body for message in await broker.read(topic)] == [b"null"]


async def test_cloudevents_are_read_by_their_own_library(broker: Broker, runner: TopicTargetRunner, topic: str) -> None:
    from cloudevents.core.bindings.http import HTTPMessage, from_http
    from cloudevents.core.formats.json import JSONFormat
    from cloudevents.core.v1.event import CloudEvent

    await broker.create(topic)
    call = topic_call(broker.target(topic, format="cloudevents"), PAYLOAD, job="nightly report ü")
    succeeded(await runner(call))
    (message,) = await broker.read(topic)
    prefix = broker.cloudevent_prefix
    if prefix is None:
        headers = {"content-type": "application/cloudevents+json"}
    else:
        headers = {f"ce-{name[len(prefix) :]}": text for name, text in _of_event(message, prefix)}
        headers["content-type"] = "application/json"
    event = from_http(HTTPMessage(headers, message.body), JSONFormat(), CloudEvent)
    assert event.get_id() == call.idempotency_key
    assert event.get_source() == f"/detent/jobs/{call.job_id}"
    assert event.get_type() == "detent.run"
    assert event.get_subject() == "nightly report ü"
    assert event.get_time() == call.scheduled_at
    assert event.get_data() == PAYLOAD
    if prefix is None:
        assert event.get_extension("detentrunid") == call.run_id


async def test_the_same_run_sent_again(broker: Broker, runner: TopicTargetRunner, topic: str) -> None:
    """One message where the broker deduplicates, two elsewhere: with the same idempotency key."""
    await broker.create(topic)
    call = topic_call(broker.target(topic), PAYLOAD)
    succeeded(await runner(call))
    again = succeeded(await runner(call))
    messages = await broker.read(topic)
    assert len(messages) == (1 if broker.deduplicates else 2)
    assert again.get("duplicate", False) is (broker.deduplicates and broker.names_duplicates)
    assert {_header(message, "idempotency-key") for message in messages} == {call.idempotency_key}


async def test_messages_of_one_key_keep_their_order(broker: Broker, runner: TopicTargetRunner, topic: str) -> None:
    await broker.create(topic)
    calls = [topic_call(broker.target(topic, key="one"), number) for number in range(100)]
    await asyncio.gather(*(runner(call) for call in calls))
    payloads = [message.payload for message in await broker.read(topic)]
    assert (payloads if broker.ordered else sorted(payloads)) == list(range(100))


async def test_runs_fail_while_the_broker_is_away_and_succeed_after_its_restart(
    broker: Broker, runner: TopicTargetRunner, topic: str
) -> None:
    if not broker.can_restart:
        pytest.skip(f"{broker.name} runs in the process of the test")
    await broker.create(topic)
    succeeded(await runner(topic_call(broker.target(topic), "before")))
    broker.kill()
    lost = failed(await runner(topic_call(broker.target(topic), "while")))
    assert lost.retryable
    assert f"127.0.0.1:{broker.port}" in lost.error
    broker.start()
    await until(lambda: _succeeds(runner, broker, topic, "after"), what="a message after the restart")
    payloads = [message.payload for message in await broker.read(topic)]
    assert payloads[-1] == "after"
    assert not broker.durable or payloads[0] == "before"


async def test_wrong_credentials_fail_with_the_words_of_the_broker_and_are_not_retried(
    start_broker: Start, broker_name: str, runner: TopicTargetRunner, topic: str
) -> None:
    broker = _secured(start_broker, broker_name)
    await broker.create(topic)
    succeeded(await runner(topic_call(broker.target(topic), 1)))
    wrong = broker.target(topic, credentials=TargetCredentials(USER, "wrong-password"))
    refused = failed(await runner(topic_call(wrong, 2)))
    assert not refused.retryable
    assert f"127.0.0.1:{broker.port} refused" in refused.error
    assert "wrong-password" not in refused.error
    unknown = failed(await runner(topic_call(broker.target(topic, credentials=TargetCredentials("x", "y")), 3)))
    assert not unknown.retryable
    succeeded(await runner(topic_call(broker.target(topic), 4)))
    assert [message.payload for message in await broker.read(topic)] == [1, 4]


async def test_a_message_over_the_limit_is_not_retried_and_the_next_one_is_sent(
    broker: Broker, runner: TopicTargetRunner, topic: str
) -> None:
    if broker.too_large is None:
        pytest.skip(f"{broker.name} takes every message that a job can send")
    await broker.create(topic)
    large = runner(topic_call(broker.target(topic), "x" * broker.too_large))
    small = runner(topic_call(broker.target(topic), "small"))
    outcomes = await asyncio.gather(large, small)
    assert not failed(outcomes[0]).retryable
    succeeded(outcomes[1])
    assert [message.payload for message in await broker.read(topic)] == ["small"]


async def test_a_cancelled_run_leaves_the_others_of_its_batch_alone(
    broker: Broker, runner: TopicTargetRunner, topic: str
) -> None:
    await broker.create(topic)
    tasks = [asyncio.create_task(_outcome(runner, broker, topic, number)) for number in range(50)]
    await asyncio.sleep(0)
    for task in tasks[::5]:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(outcome, Succeeded) for outcome in outcomes) == 40
    arrived = {message.payload for message in await broker.read(topic)}
    assert arrived >= {number for number in range(50) if number % 5}


async def test_an_address_that_the_tenant_may_not_reach_is_refused_at_the_socket(broker: Broker, topic: str) -> None:
    runner = TopicTargetRunner(FixedPolicy(PUBLIC_ONLY))
    try:
        refused = failed(await runner(topic_call(broker.target(topic), 1)))
    finally:
        await runner.close()
    assert not refused.retryable
    assert f"detent tenant allow default 127.0.0.1:{broker.port}" in refused.error


async def test_tls_with_the_authority_of_the_job(
    start_broker: Start, broker_name: str, runner: TopicTargetRunner, topic: str
) -> None:
    if not BROKERS[broker_name].can_encrypt:
        pytest.skip(f"the server of {broker_name} has no TLS")
    broker = start_broker(broker_name, encrypted=True)
    await broker.create(topic)
    succeeded(await runner(topic_call(broker.target(topic), PAYLOAD)))
    assert [message.payload for message in await broker.read(topic)] == [PAYLOAD]
    strange = failed(await runner(topic_call(broker.target(topic, tls=UNSET), PAYLOAD)))
    assert "certificate" in strange.error


def test_illegal_topics_are_refused_at_registration(broker: Broker) -> None:
    for illegal in broker.illegal_topics:
        with pytest.raises(TargetError) as refused:
            check_target(broker.target(illegal))
        assert refused.value.pointer == "/target/topic", illegal


@pytest.mark.parametrize(
    "count", [pytest.param(500, id="500"), pytest.param(20_000, id="20,000", marks=pytest.mark.long)]
)
async def test_messages_of_many_runs_all_arrive_though_the_broker_is_killed(
    broker: Broker, runner: TopicTargetRunner, topic: str, count: int
) -> None:
    """Each run is retried with its own key until it succeeds; a key may arrive more than once only where the broker
    does not deduplicate."""
    await broker.create(topic)
    count //= broker.slow
    at_once = asyncio.Semaphore(200)
    sent = 0

    async def send(number: int) -> None:
        nonlocal sent
        call = topic_call(broker.target(topic, key=str(number % 7)), number)
        async with at_once:
            while not isinstance(outcome := await runner(call), Succeeded):
                assert isinstance(outcome, Failed), outcome
                assert outcome.retryable, outcome
                await asyncio.sleep(0.05)
            sent += 1

    sending = asyncio.gather(*(send(number) for number in range(count)))
    if broker.can_restart and broker.durable:
        for part in range(1, 1 + broker.kills * (1 if count < 1000 else 3)):
            await until(lambda part=part: sent >= count * part // 12, 120, "messages between two kills")
            broker.kill()
            await asyncio.to_thread(broker.start)
    await sending
    payloads = [message.payload for message in await broker.read(topic)]
    assert set(payloads) == set(range(count))
    if broker.deduplicates:
        assert len(payloads) == count


# --- helpers ---


async def _outcome(runner: TopicTargetRunner, broker: Broker, topic: str, payload: object) -> Outcome:
    outcome = await runner(topic_call(broker.target(topic), payload))
    assert isinstance(outcome, Succeeded | Failed)
    return outcome


async def _succeeds(runner: TopicTargetRunner, broker: Broker, topic: str, payload: object) -> bool:
    return isinstance(await _outcome(runner, broker, topic, payload), Succeeded)


def _secured(start_broker: Start, name: str) -> Broker:
    if not BROKERS[name].can_secure:
        pytest.skip(f"{name} asks for no credentials here")
    return start_broker(name, secured=True)


def _header(message: Received, name: str) -> str:
    if message.headers:
        return next(text for key, text in message.headers.items() if key.lower() == name)
    return str(json.loads(message.body)[name])


def _facts(message: Received) -> dict[str, str]:
    lowered = {name.lower(): text for name, text in message.headers.items()}
    return {name: text for name, text in lowered.items() if name.startswith(("detent-", "idempotency", "region"))}


def _of_event(message: Received, prefix: str) -> Iterator[tuple[str, str]]:
    """Names of attributes are lower-case letters and digits, those of facts are not."""
    for name, text in message.headers.items():
        if name.startswith(prefix) and re.fullmatch("[a-z0-9]+", name[len(prefix) :]):
            yield name, text
