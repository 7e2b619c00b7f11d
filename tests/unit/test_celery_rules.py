"""Which Celery targets are refused at registration, and with which sentence."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from detent.declarative.check import check
from detent.domain.celery_rules import shown_url
from detent.domain.job import CeleryTarget, needs_of
from detent.domain.serving import Unserved, place_of, unserved_sentence
from detent.domain.target_access import PUBLIC_ONLY, registration_fault
from detent.errors import UsageError

NOW = datetime(2026, 3, 1, tzinfo=UTC)
BROKER = "redis://redis.example.org:6379/0"


def job(payload: Any = None, **target: Any) -> dict[str, Any]:
    whole = {"type": "celery", "task": "shop.report", **target}
    return {"name": "report", "schedule": "0 6 * * *", "target": whole, "payload": payload}


@pytest.mark.parametrize(
    ("target", "pointer", "words"),
    [
        ({}, "/target/app", "neither is given; give exactly one"),
        ({"app": "shop:app", "broker_url": BROKER}, "/target/app", "both are given; give exactly one"),
        ({"app": "shop"}, "/target/app", "write MODULE:NAME"),
        ({"app": "shop:app", "result_backend": BROKER}, "/target/result_backend", "which has its own"),
        ({"broker_url": "kafka://host"}, "/target/broker_url", "schemes are redis, rediss, amqp, amqps"),
        ({"broker_url": "os.path:join://x"}, "/target/broker_url", "schemes are redis"),
        ({"broker_url": "redis://:secret@host/0"}, "/target/broker_url", "give credentials with a secret"),
        ({"broker_url": "redis://host/0?socket_timeout=1"}, "/target/broker_url", "more than a host and a path"),
        ({"broker_url": "redis://a/0;redis://b/0"}, "/target/broker_url", "more than a host and a path"),
        ({"broker_url": "redis://host/mine"}, "/target/broker_url", "write its number"),
        ({"broker_url": "redis://169.254.169.254/0"}, "/target/broker_url", "cannot be called"),
        ({"broker_url": BROKER, "result_backend": "rpc://"}, "/target/result_backend", "schemes are redis, rediss"),
        ({"broker_url": BROKER, "ignore_result": True}, "/target/ignore_result", "is for an app"),
        ({"broker_url": BROKER, "credentials": {"password": "p"}}, "/target/credentials/password", "secret set NAME"),
        ({"broker_url": BROKER, "credentials": {}}, "/target/credentials", "are empty"),
        ({"broker_url": BROKER, "args": [{"secret": "x"}]}, "/target/args", "move it into the payload"),
        ({"broker_url": BROKER, "queue": "a\nb"}, "/target/queue", "control characters"),
        ({"broker_url": BROKER, "priority": 256}, "/target/priority", "255"),
    ],
)
def test_a_bad_target_is_refused_with_its_place(target: dict[str, Any], pointer: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        check(job(**target), NOW)
    assert refused.value.pointer == pointer
    assert words in refused.value.message
    assert "secret@" not in refused.value.message


def test_a_payload_that_is_no_arguments_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        check(job("text", app="shop:app"), NOW)
    assert refused.value.pointer == "/payload"


@pytest.mark.parametrize("url", [BROKER, "rediss://host", "amqp://host/shop", "amqps://[2606:4700::1]:5671/a%2Fb"])
def test_brokers_that_can_be_used_are_accepted(url: str) -> None:
    check(job(broker_url=url, credentials={"username": "ada", "password": {"secret": "broker"}}), NOW)


def test_defaults_are_not_stored() -> None:
    prepared = check(job(app="shop:app"), NOW)
    assert '"target":{"type":"celery","task":"shop.report","app":"shop:app"}' in prepared.definition


@pytest.mark.parametrize(
    ("server", "pattern"),
    [
        ({"broker_url": "redis://redis.example.org"}, None),
        ({"broker_url": "amqps://rabbit.example.org"}, None),
        ({"broker_url": "redis://10.1.2.3"}, "10.1.2.3:6379"),
        ({"broker_url": "redis://redis.example.org:5432"}, "redis.example.org:5432"),
        ({"broker_url": "redis://redis.example.org", "result_backend": "redis://10.1.2.3/1"}, "10.1.2.3:6379"),
        ({"app": "shop:app"}, None),
    ],
)
def test_a_broker_obeys_the_rules_of_topics(server: dict[str, str], pattern: str | None) -> None:
    """Its own port is open at public addresses; a private one has to be allowed with its port."""
    fault = registration_fault(PUBLIC_ONLY, check(job(**server), NOW).spec)
    assert (fault and fault.pattern) == pattern


def test_only_workers_that_have_an_app_claim_its_runs() -> None:
    assert needs_of(CeleryTarget("t", app="shop:app")) == "celery:shop:app"
    assert needs_of(CeleryTarget("t", broker_url=BROKER)) == "celery"


def test_a_run_that_no_worker_serves_says_what_to_start() -> None:
    lack = Unserved(place_of("default", "celery:shop:app"), True, (), ())
    assert unserved_sentence(lack, tenant="team-a") == (
        "No worker sends tasks of the Celery app 'shop:app' for this tenant: start one with "
        "`detent worker --celery-apps shop:app@team-a`."
    )
    lack = Unserved(place_of("default", "celery"), True, (), ())
    assert "install `detent[celery]`" in unserved_sentence(lack)


def test_a_refused_url_is_shown_without_its_password() -> None:
    for password in ("hunter2", "hun/ter2", "hun@ter2"):
        assert shown_url(f"sqs://user:{password}@host/0") == "'sqs://…@host/0'"
