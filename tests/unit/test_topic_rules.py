"""What registration refuses about topic targets, and what it says; which addresses they may reach."""

from __future__ import annotations

from typing import Any

import pytest
from yarl import URL

from detent.domain.http_rules import template_warnings
from detent.domain.job import JobSpec, TargetCredentials, TargetTls, TopicTarget, needs_of
from detent.domain.registration import read_document
from detent.domain.secret_ref import SecretRef
from detent.domain.serving import Unserved, WaitingPlace, unserved_sentence
from detent.domain.target_access import PRIVATE_TOO, PUBLIC_ONLY, TargetRules, registration_fault
from detent.domain.target_patterns import read_pattern
from detent.domain.target_rules import check_target
from detent.domain.target_url import TargetError
from detent.domain.topic_rules import check_message_size
from detent.domain.topics import PROTOCOLS, server_of

REDIS = "redis://broker.example.com:6379"
GOOD: list[dict[str, Any]] = [
    {"url": REDIS, "topic": "orders"},
    {"url": "redis://broker.example.com/3?mode=list", "topic": "queue:{eu}:orders"},
    {"url": "rediss://broker.example.com:6380/0?mode=stream&maxlen=1000", "topic": "o", "tls": TargetTls(ca="x" * 20)},
    {"url": "redis://[2606:4700::1111]:7000/", "topic": "o"},
    {"url": "nats://broker.example.com", "topic": "orders.eu.new"},
    {"url": REDIS, "topic": "o", "credentials": TargetCredentials("detent", SecretRef("redis-password"))},
    {"url": REDIS, "topic": "o", "key": "customer-17", "headers": {"Region": "eu", "Token": SecretRef("t")}},
]
BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "another scheme": ({"url": "stomp://h:61613"}, "/target/url", "a topic has one of redis, kafka, sqs, nats, amqp"),
    "HTTP": ({"url": "https://example.com"}, "/target/url", "scheme is 'https'; a topic has one of"),
    "no scheme": ({"url": "broker:6379"}, "/target/url", "scheme is 'broker'"),
    "no host": ({"url": "redis:///0"}, "/target/url", "no host; write it out, for example redis://"),
    "a password in the URL": ({"url": "redis://u:p@h:6379"}, "/target/url", "give them as credentials"),
    "a port out of range": ({"url": "redis://h:70000"}, "/target/url", "from 1 to 65535"),
    "a metadata address": ({"url": "redis://169.254.169.254:6379"}, "/target/url", "cannot be called"),
    "a space in the URL": ({"url": "redis://h/ 0"}, "/target/url", "a space"),
    "a database that is no number": ({"url": "redis://h/orders"}, "/target/url", "the number of a database"),
    "an unknown parameter": ({"url": "redis://h?db=3"}, "/target/url", "'db'; it may have mode and maxlen"),
    "a bad mode": ({"url": "redis://h?mode=set"}, "/target/url", "it must be stream or list"),
    "a bad length": ({"url": "redis://h?maxlen=0"}, "/target/url", "a positive number"),
    "a length of a list": ({"url": "redis://h?mode=list&maxlen=5"}, "/target/url", "maxlen is for streams"),
    "a path of NATS": ({"url": "nats://h/x", "topic": "o"}, "/target/url", "write nats://host:4222"),
    "a key with spaces": ({"topic": "two words"}, "/target/topic", "The topic contains a space or a control character"),
    "a template": ({"topic": "x-{{ job }}"}, "/target/topic", "Only HTTP targets have templates: here {{ is a part"),
    "a wildcard": ({"url": "nats://h", "topic": "orders.*"}, "/target/topic", "a wildcard"),
    "an empty part": ({"url": "nats://h", "topic": "orders..new"}, "/target/topic", "an empty part"),
    "a subject of the server": ({"url": "nats://h", "topic": "$JS.API"}, "/target/topic", "belong to the server"),
    "a plain password": (
        {"credentials": TargetCredentials("u", "hunter2")},
        "/target/credentials/password",
        "store it with `detent secret set NAME`",
    ),
    "empty credentials": ({"credentials": TargetCredentials()}, "/target/credentials", "credentials is empty"),
    "TLS without TLS": (
        {"tls": TargetTls(ca="-----BEGIN CERTIFICATE-----")},
        "/target/tls",
        "does not begin with rediss://, kafkas://, natss://, amqps:// or mqtts://",
    ),
    "an empty tls": ({"url": "rediss://h", "tls": TargetTls()}, "/target/tls", "tls is empty"),
    "our header": ({"headers": {"Detent-Job": "x"}}, "/target/headers/Detent-Job", "is set by detent"),
    "a header with a line break": ({"headers": {"A": "b\nc"}}, "/target/headers/A", "a line break"),
    "a header that is no name": ({"headers": {"a b": "c"}}, "/target/headers/a b", "not a header name"),
}


@pytest.mark.parametrize("fields", GOOD, ids=lambda fields: str(fields["url"]))
def test_targets_that_can_be_sent_to_are_accepted(fields: dict[str, Any]) -> None:
    if "tls" in fields:
        fields = {**fields, "tls": TargetTls(ca="-----BEGIN CERTIFICATE-----\n")}
    check_target(TopicTarget(**fields))


@pytest.mark.parametrize("what", BAD)
def test_targets_that_no_worker_can_send_to_are_refused(what: str) -> None:
    fields, pointer, words = BAD[what]
    with pytest.raises(TargetError) as refused:
        check_target(TopicTarget(**{"url": REDIS, "topic": "orders", **fields}))
    assert refused.value.pointer == pointer
    assert words in refused.value.message
    assert "hunter2" not in refused.value.message


def test_what_looks_like_a_template_of_a_message_is_a_warning() -> None:
    target = TopicTarget(url=REDIS, topic="o", key="{{ job }}", headers={"Day": "{{ at }}", "Token": SecretRef("t")})
    assert template_warnings(JobSpec(target=target)) == [
        f"{where} has {{{{, which is sent as it is: only HTTP targets have templates."
        for where in ("target.key", "target.headers.Day")
    ]
    assert template_warnings(JobSpec(target=TopicTarget(url=REDIS, topic="queue:{eu}:orders"))) == []


def test_a_payload_over_the_limit_of_the_broker_is_refused() -> None:
    nats = TopicTarget(url="nats://h", topic="orders")
    check_message_size(nats, 1_048_000)
    with pytest.raises(TargetError, match="1,048,300 bytes, and a message to nats has at most 1,048,576") as refused:
        check_message_size(nats, 1_048_300)
    assert refused.value.pointer == "/payload"


def test_every_protocol_is_a_need_of_its_own() -> None:
    for protocol in PROTOCOLS:
        assert needs_of(TopicTarget(url=f"{protocol}://h", topic="t")) == f"topic:{protocol}"
    assert needs_of(TopicTarget(url="REDISS://h", topic="t")) == "topic:redis"


def test_a_missing_client_is_named_with_its_extra() -> None:
    lack = Unserved(WaitingPlace("default", "topic:amqp"), True, [], [])
    sentence = unserved_sentence(lack)
    assert sentence.startswith("No worker has the client for amqp: run `pip install 'detent[rabbitmq]'`")


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("redis://h", "h", 6379),
        ("rediss://h:7000/1", "h", 7000),
        ("nats://h", "h", 4222),
        ("amqps://h", "h", 5671),
        ("mqtts://h", "h", 8883),
        ("sqs://eu-central-1", "sqs.eu-central-1.amazonaws.com", 443),
        ("sqs://127.0.0.1:5000", "127.0.0.1", 5000),
    ],
)
def test_the_server_of_a_url(url: str, host: str, port: int) -> None:
    assert server_of(URL(url)) == (host, port)


def _spec(url: str) -> JobSpec:
    return read_document({"schedule": "every 1h", "target": {"type": "topic", "url": url, "topic": "t"}})


@pytest.mark.parametrize(
    ("rules", "url", "pattern"),
    [
        (PUBLIC_ONLY, "redis://203.0.114.7:6379", None),
        (PUBLIC_ONLY, "redis://broker.example.com", None),
        (PUBLIC_ONLY, "redis://10.1.2.3", "10.1.2.3:6379"),
        (PUBLIC_ONLY, "nats://[fd00::1]:4222", "[fd00::1]:4222"),
        (PRIVATE_TOO, "redis://10.1.2.3", None),
        (PRIVATE_TOO, "redis://broker.example.com:5432", "broker.example.com:5432"),
        (PRIVATE_TOO, "nats://10.1.2.3:6379", "10.1.2.3:6379"),
        (TargetRules([read_pattern("10.1.2.0/24")]), "redis://10.1.2.3", "10.1.2.3:6379"),
        (TargetRules([read_pattern("10.1.2.0/24")]), "redis://10.1.2.3:7000", None),
        (TargetRules([read_pattern("private:6379")]), "redis://10.1.2.3", None),
        (TargetRules([read_pattern("10.1.2.0/24:6379")]), "redis://10.1.2.3", None),
        (TargetRules([read_pattern("10.1.2.0/24:22")]), "redis://10.1.2.3", "10.1.2.3:6379"),
    ],
)
def test_private_addresses_and_foreign_ports_are_warned_of(rules: TargetRules, url: str, pattern: str | None) -> None:
    """The port of the protocol itself is open: what listens there expects such a client. A private address has to be
    allowed with it, because a network that was allowed for HTTP calls has other services too."""
    fault = registration_fault(rules, _spec(url))
    assert (None if fault is None else fault.pattern) == pattern
