"""What only Redis or only NATS does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from detent.domain.job import TargetCredentials, TopicTarget
from detent.targets.topics.nats import NatsPublisher
from detent.targets.topics.publisher import BrokerAddress, Receipt, TopicMessage
from detent.targets.topics.runner import TopicTargetRunner
from tests.support.waiting import until
from tests.targets.target_helpers import failed, succeeded
from tests.topics.brokers import NatsBroker, RedisBroker, running_broker
from tests.topics.cloud_servers import direct_dial
from tests.topics.conftest import Start
from tests.topics.topic_calls import topic_call


async def test_a_stream_is_trimmed_to_about_its_length(
    start_broker: Start, runner: TopicTargetRunner, topic: str
) -> None:
    redis = start_broker("redis")
    target = redis.target(topic, url=f"{redis.url}/0?maxlen=100")
    await asyncio.gather(*(runner(topic_call(target, number)) for number in range(1000)))
    assert 100 <= len(await redis.read(topic)) < 400


async def test_messages_go_to_the_database_of_the_url(
    start_broker: Start, runner: TopicTargetRunner, topic: str
) -> None:
    redis = start_broker("redis")
    assert isinstance(redis, RedisBroker)
    succeeded(await runner(topic_call(redis.target(topic, url=f"{redis.url}/3"))))
    assert await redis.read(topic) == []
    async with redis.client(3) as client:
        assert await client.xlen(topic) == 1


async def test_a_database_that_is_not_there_is_refused_in_words(
    start_broker: Start, runner: TopicTargetRunner, topic: str
) -> None:
    redis = start_broker("redis")
    refused = failed(await runner(topic_call(redis.target(topic, url=f"{redis.url}/99"))))
    assert not refused.retryable
    assert "DB index is out of range" in refused.error


async def test_a_key_of_another_type_fails_alone(start_broker: Start, runner: TopicTargetRunner, topic: str) -> None:
    redis = start_broker("redis")
    assert isinstance(redis, RedisBroker)
    async with redis.client() as client:
        await client.set(topic, "text")
    wrong, right = await asyncio.gather(
        runner(topic_call(redis.target(topic))), runner(topic_call(redis.target(f"{topic}-2")))
    )
    assert not failed(wrong).retryable
    assert "wrong kind of value" in failed(wrong).error
    assert succeeded(right)["stream"] == f"{topic}-2"


async def test_a_full_redis_is_tried_again(start_broker: Start, runner: TopicTargetRunner, topic: str) -> None:
    redis = start_broker("redis")
    assert isinstance(redis, RedisBroker)
    async with redis.client() as client:
        await client.config_set("maxmemory", "1")
        full = failed(await runner(topic_call(redis.target(topic))))
        await client.config_set("maxmemory", "0")
    assert full.retryable
    assert "maxmemory" in full.error
    succeeded(await runner(topic_call(redis.target(topic))))


async def test_a_user_without_the_right_is_told_so(start_broker: Start, runner: TopicTargetRunner, topic: str) -> None:
    redis = start_broker("redis")
    assert isinstance(redis, RedisBroker)
    async with redis.client() as client:
        await client.execute_command("ACL", "SETUSER", "reader", "on", ">pw-of-reader", "~*", "+@read", "+client")
    target = redis.target(topic, credentials=TargetCredentials("reader", "pw-of-reader"))
    refused = failed(await runner(topic_call(target)))
    assert not refused.retryable
    assert "permissions" in refused.error


async def test_the_receipt_of_a_stream_of_nats_names_it(
    start_broker: Start, runner: TopicTargetRunner, topic: str
) -> None:
    nats = start_broker("nats")
    await nats.create(topic)
    call = topic_call(nats.target(topic))
    assert succeeded(await runner(call)) == {"stream": topic, "sequence": 1}
    assert succeeded(await runner(call)) == {"stream": topic, "sequence": 1, "duplicate": True}


async def test_a_subject_that_no_stream_takes_is_named_with_the_cure(
    start_broker: Start, runner: TopicTargetRunner, topic: str
) -> None:
    nats = start_broker("nats")
    lost = failed(await runner(topic_call(nats.target(topic))))
    assert f"takes the subject '{topic}': create one with `nats stream add" in lost.error


async def test_a_stream_with_a_smaller_limit_refuses_for_good(
    start_broker: Start, runner: TopicTargetRunner, topic: str
) -> None:
    nats = start_broker("nats")
    assert isinstance(nats, NatsBroker)
    client = await nats.client()
    await client.jetstream().add_stream(name=topic, subjects=[topic], max_msg_size=2000)
    await client.close()
    refused = failed(await runner(topic_call(nats.target(topic), "x" * 3000)))
    assert not refused.retryable
    assert "message size exceeds maximum allowed" in refused.error


async def test_a_password_is_not_sent_to_a_server_without_tls(
    start_broker: Start, runner: TopicTargetRunner, topic: str
) -> None:
    nats = start_broker("nats")
    target = TopicTarget(
        url=f"natss://127.0.0.1:{nats.port}", topic=topic, credentials=TargetCredentials("u", "planted-password")
    )
    refused = failed(await runner(topic_call(target)))
    assert "secure connection required" in refused.error.lower()


async def test_a_subject_that_the_user_may_not_use_is_refused_in_words(runner: TopicTargetRunner, topic: str) -> None:
    class Limited(NatsBroker):
        def command(self) -> list[str]:
            program = super().command()
            conf = Path(program[-1])
            allowed = 'permissions: { publish: ["ok.>", "$JS.API.>"], subscribe: ">" }'
            user = f'{{ user: "limited", password: "pw-of-limited", {allowed} }}'
            conf.write_text(conf.read_text() + f"\nauthorization {{ users: [ {user} ] }}\n")
            return program

    with running_broker(Limited) as nats:
        target = nats.target(topic, credentials=TargetCredentials("limited", "pw-of-limited"))
        refused = failed(await runner(topic_call(target)))
    assert not refused.retryable
    assert "permissions violation for publish" in refused.error


async def test_a_token_is_a_password_without_a_user_name(runner: TopicTargetRunner, topic: str) -> None:
    class WithToken(NatsBroker):
        def command(self) -> list[str]:
            program = super().command()
            conf = Path(program[-1])
            conf.write_text(conf.read_text() + '\nauthorization { token: "token-of-nats" }\n')
            return program

        def who(self) -> dict[str, Any]:
            return {"token": "token-of-nats"}

    with running_broker(WithToken) as nats:
        await nats.create(topic)
        good = nats.target(topic, credentials=TargetCredentials(None, "token-of-nats"))
        succeeded(await runner(topic_call(good)))
        bad = failed(await runner(topic_call(nats.target(topic, credentials=TargetCredentials(None, "another")))))
    assert not bad.retryable
    assert "Authorization Violation" in bad.error


@pytest.mark.parametrize("mode", ["plain", "cloudevents"])
async def test_an_element_of_a_list_is_one_json_document(
    start_broker: Start, runner: TopicTargetRunner, topic: str, mode: Any
) -> None:
    redis = start_broker("redis-list")
    assert isinstance(redis, RedisBroker)
    receipt = succeeded(await runner(topic_call(redis.target(topic, format=mode), {"a": 1})))
    assert receipt == {"list": topic, "length": 1}
    (message,) = await redis.read(topic)
    assert (message.payload["data"] if mode == "cloudevents" else message.payload) == {"a": 1}


async def test_a_connection_of_nats_that_ends_late_does_not_take_the_next_one_with_it(
    start_broker: Start, topic: str
) -> None:
    nats = start_broker("nats")
    await nats.create(topic)
    publisher = NatsPublisher(BrokerAddress(URL(nats.url)), direct_dial)
    message = TopicMessage(topic, b"1", {}, "key", "first")
    assert isinstance((await publisher.publish([message]))[0], Receipt)
    former, ended = publisher._client, asyncio.Event()
    assert former is not None
    former._transport.wait_closed = ended.wait  # type: ignore[method-assign]
    ending = asyncio.create_task(former.close())
    await until(lambda: former.is_closed, 10, "the connection to end")
    assert isinstance((await publisher.publish([message]))[0], Receipt)
    current = publisher._client
    ended.set()
    await ending
    assert publisher._client is current
    await publisher.close()
