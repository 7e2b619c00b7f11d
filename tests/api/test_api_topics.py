"""Topic targets over the API: refusals, warnings, what is stored and shown."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.api.api_client import ApiClient
from tests.support.factories import add_node
from tests.support.ports import free_port

TOPIC = {"type": "topic", "url": "nats://127.0.0.1:4222", "topic": "orders.new"}


def job(**target: Any) -> dict[str, Any]:
    return {"name": "j", "schedule": "every 1h", "target": {**TOPIC, **target}}


@pytest.mark.parametrize(
    ("target", "pointer", "words"),
    [
        ({"url": "stomp://h"}, "/target/url", "redis, kafka, sqs, nats, amqp, pubsub, mqtt"),
        ({"url": "nats://u:p@h"}, "/target/url", "give them as credentials"),
        ({"topic": "orders.*"}, "/target/topic", "wildcard"),
        ({"topic": ""}, "/target/topic", ""),
        ({"format": "avro"}, "/target/format", "cloudevents"),
        ({"credentials": {"password": "plain"}}, "/target/credentials/password", "detent secret set"),
        ({"credentials": {"token": "x"}}, "/target/credentials", "token"),
        ({"tls": {"ca": "-----BEGIN CERTIFICATE-----"}}, "/target/tls", "has no TLS; remove tls"),
        ({"topics": "x"}, "/target", "topics"),
    ],
)
async def test_a_target_that_cannot_be_sent_to_is_refused(
    api: ApiClient, target: dict[str, Any], pointer: str, words: str
) -> None:
    problem = await api.problem("POST", "/api/v1/jobs", 422, json=job(**target))
    assert problem["pointer"].startswith(pointer), problem
    assert words in str(problem)
    assert (await api.good("GET", "/api/v1/jobs"))["items"] == []


async def test_a_payload_over_the_limit_of_the_broker_is_refused(api: ApiClient) -> None:
    body = json.dumps({**job(), "payload": "x" * 1_048_300})
    problem = await api.problem("POST", "/api/v1/jobs", 422, data=body, headers={"Content-Type": "application/json"})
    assert problem["pointer"] == "/payload"
    assert "a message to nats has at most 1,048,576" in problem["detail"]


async def test_a_broker_that_is_away_is_named_in_a_warning(api: ApiClient) -> None:
    port = free_port()
    made = await api.good("POST", "/api/v1/jobs", 201, json=job(url=f"nats://127.0.0.1:{port}"))
    assert any(f"The broker at 127.0.0.1:{port} cannot be reached" in text for text in made["warnings"])
    assert any("connection refused" in text for text in made["warnings"])
    changed = await api.good("PATCH", "/api/v1/jobs/j", 200, json={"priority": 7})
    assert any(f"127.0.0.1:{port} cannot be reached" in text for text in changed["warnings"])


async def test_brokers_of_celery_and_of_dead_letters_are_tried_too(api: ApiClient) -> None:
    port, other = free_port(), free_port()
    celery = {"type": "celery", "task": "shop.report", "broker_url": f"redis://127.0.0.1:{port}/0"}
    dead = {"url": f"nats://127.0.0.1:{other}", "topic": "dead"}
    document = {"name": "j", "schedule": "every 1h", "target": celery, "dead_letter_topic": dead}
    made = await api.good("POST", "/api/v1/jobs", 201, json=document)
    away = [text for text in made["warnings"] if "cannot be reached from here now" in text]
    assert [text.split()[3] for text in away] == [f"127.0.0.1:{port}", f"127.0.0.1:{other}"]


async def test_a_broker_that_answers_causes_no_warning(api: ApiClient) -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        made = await api.good("POST", "/api/v1/jobs", 201, json=job(url=f"redis://127.0.0.1:{port}"))
    assert [text for text in made["warnings"] if "cannot be reached" in text] == []


async def test_in_a_batch_a_few_brokers_are_tried(api: ApiClient) -> None:
    port = free_port()
    jobs = [{**job(url=f"nats://127.0.0.1:{port}"), "name": f"j{number}"} for number in range(3)]
    answer = await api.good("POST", "/api/v1/jobs/batch", 200, json={"jobs": jobs})
    for item in answer["items"]:
        assert any("cannot be reached" in text for text in item["warnings"])


async def test_a_worker_without_the_client_is_reported(api: ApiClient, sql: Any) -> None:
    await add_node(sql, 7)
    change = "UPDATE nodes SET roles = '{worker}', queues = '{default}', capabilities = '{topic:redis}' WHERE node = 7"
    await sql.execute(change)
    made = await api.good("POST", "/api/v1/jobs", 201, json=job())
    assert any(
        "No worker has the client for nats: run `pip install 'detent[nats]'`" in text for text in made["warnings"]
    )


async def test_jobs_are_found_by_the_kind_of_their_target(api: ApiClient) -> None:
    await api.create(name="calls")
    await api.good("POST", "/api/v1/jobs", 201, json=job())
    for query in ("target=topic", "search=target:topic"):
        found = await api.good("GET", f"/api/v1/jobs?{query}")
        assert [item["name"] for item in found["items"]] == ["j"], query


async def test_a_literal_credential_in_a_header_is_warned_of_and_masked_for_readers(api: ApiClient) -> None:
    made = await api.good("POST", "/api/v1/jobs", 201, json=job(headers={"X-Api-Key": "literal-value"}))
    assert any("X-Api-Key is stored as plain text" in text for text in made["warnings"])


async def test_pull_workers_do_not_get_topic_runs(api: ApiClient) -> None:
    problem = await api.problem(
        "POST", "/api/v1/queues/default/claim", 422, json={"worker": "w", "targets": ["http", "topic"]}
    )
    assert "/targets/1" in str(problem)
