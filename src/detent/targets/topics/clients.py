"""Which module publishes to which protocol, and which client library it needs."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

from detent.domain.topics import PROTOCOLS
from detent.targets.topics.publisher import OpenPublisher


class TopicClient(NamedTuple):
    """`library` is what the module of the publisher imports."""

    module: str
    library: str


CLIENTS: dict[str, TopicClient] = {
    "redis": TopicClient("redis", "redis"),
    "nats": TopicClient("nats", "nats"),
    "kafka": TopicClient("kafka", "confluent_kafka"),
    "sqs": TopicClient("sqs", "aiohttp"),
    "amqp": TopicClient("amqp", "pamqp"),
    "mqtt": TopicClient("mqtt", "asyncio"),
    "pubsub": TopicClient("pubsub", "aiohttp"),
}


@cache
def available_protocols() -> tuple[str, ...]:
    """The protocols that this process can publish to. Nothing is imported: some clients take half a second."""
    return tuple(protocol for protocol in PROTOCOLS if _is_available(CLIENTS[protocol]))


def _is_available(client: TopicClient) -> bool:
    """`find_spec` of a package in a package that is missing raises."""
    try:
        return find_spec(client.library) is not None and find_spec(_module(client)) is not None
    except ModuleNotFoundError:
        return False


@cache
def opener_of(protocol: str) -> OpenPublisher:
    """KeyError: there is no such protocol. ImportError: its client is not installed."""
    if not _is_available(CLIENTS[protocol]):
        raise ImportError(CLIENTS[protocol].library)
    opener: OpenPublisher = import_module(_module(CLIENTS[protocol])).open_publisher
    return opener


def _module(client: TopicClient) -> str:
    return f"detent.targets.topics.{client.module}"
