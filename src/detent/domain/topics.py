"""The protocols of topic targets, by the scheme of their URL. No I/O."""

from __future__ import annotations

from typing import Literal, get_args

TopicProtocol = Literal["redis", "kafka", "sqs", "nats", "amqp", "pubsub", "mqtt"]

PROTOCOLS: tuple[TopicProtocol, ...] = get_args(TopicProtocol)

# With TLS. SQS and Pub/Sub are services with an HTTPS address of their own.
_SCHEMES: dict[str, TopicProtocol] = {
    **{protocol: protocol for protocol in PROTOCOLS},
    "rediss": "redis",
    "kafkas": "kafka",
    "natss": "nats",
    "amqps": "amqp",
    "mqtts": "mqtt",
}


def protocol_of(url: str) -> str:
    """The protocol of a URL. A scheme that is none of them stays as it is: registration refuses it."""
    scheme = url.partition(":")[0].lower()
    return _SCHEMES.get(scheme, scheme)


def has_tls(url: str) -> bool:
    scheme = url.partition(":")[0].lower()
    return scheme in _SCHEMES and scheme not in PROTOCOLS


def amqp_route(topic: str) -> tuple[str, str]:
    """The exchange and the routing key of a topic of RabbitMQ: `exchange/routing.key`, or the name of a queue, to which
    the default exchange routes. A queue with a slash in its name is written with one more in front."""
    exchange, slash, routing_key = topic.partition("/")
    return (exchange, routing_key) if slash else ("", topic)
