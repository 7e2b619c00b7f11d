"""Which host a target calls: one name for a server, however its URL is written."""

from __future__ import annotations

import pytest

from detent.domain.job import CeleryTarget, HttpTarget, Target, TopicTarget
from detent.domain.target_url import calls_host
from detent.targets.called_hosts import HostKey, host_of


def topic(url: str) -> TopicTarget:
    return TopicTarget(url=url, topic="orders")


@pytest.mark.parametrize(
    ("target", "host", "port"),
    [
        (topic("nats://broker.example.com"), "broker.example.com", 4222),
        (topic("nats://Broker.example.com:4222"), "broker.example.com", 4222),
        (topic("natss://broker.example.com"), "broker.example.com", 4222),
        (topic("kafkas://broker.example.com/?bootstrap=other.example.com"), "broker.example.com", 9093),
        (topic("rediss://[2606:4700::1]/0"), "2606:4700::1", 6379),
        (topic("sqs://eu-central-1/"), "sqs.eu-central-1.amazonaws.com", 443),
        (topic("sqs://127.0.0.1:4566/"), "127.0.0.1", 4566),
        (CeleryTarget("shop.report", broker_url="amqp://Broker.example.com/"), "broker.example.com", 5672),
        (CeleryTarget("shop.report", broker_url="rediss://[2606:4700::1]/1"), "2606:4700::1", 6379),
        (HttpTarget("https://example.com/orders"), "example.com", 443),
        (HttpTarget("http://example.com:8080/"), "example.com", 8080),
    ],
)
def test_a_server_has_one_circuit_by_which_its_runs_are_explained(target: Target, host: str, port: int) -> None:
    key = host_of(target, 1)
    assert key == HostKey(1, host, port)
    assert isinstance(target, HttpTarget | TopicTarget | CeleryTarget)
    url = target.broker_url if isinstance(target, CeleryTarget) else target.url
    assert url is not None
    assert calls_host(url, key.host, key.port)
    assert not calls_host(url, key.host, 0)
