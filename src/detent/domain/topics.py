"""The protocols of topic targets, by the scheme of their URL. No I/O."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from yarl import URL  # `Run` imports this module: loading yarl would cost users 30 ms

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


SCHEMES: tuple[str, ...] = tuple(_SCHEMES)


def protocol_of(url: str) -> str:
    """The protocol of a URL. A scheme that is none of them stays as it is: registration refuses it."""
    scheme = url.partition(":")[0].lower()
    return _SCHEMES.get(scheme, scheme)


def has_tls(url: str) -> bool:
    scheme = url.partition(":")[0].lower()
    if scheme in ("sqs", "pubsub"):
        return _SERVICE_WITHOUT_TLS.match(url) is None
    return scheme in _SCHEMES and scheme not in PROTOCOLS


# SQS and Pub/Sub have TLS, but for endpoints on a port of their own that do not ask for it: emulators have none.
_SERVICE_WITHOUT_TLS = re.compile(r"[^/?#:]*://(?:\[[^\]/?#]*\]|[^/?#:\[]*):(?!443\b)\d+(?![^#]*[?&]scheme=https\b)")


def tls_schemes() -> str:
    """Those with TLS, as a sentence lists them."""
    found = [f"{scheme}://" for scheme in SCHEMES if scheme not in PROTOCOLS]
    return f"{', '.join(found[:-1])} or {found[-1]}"


_OWN_PORTS: dict[str, frozenset[int]] = {
    "redis": frozenset({6379, 6380}),
    "kafka": frozenset({9092}),
    "nats": frozenset({4222}),
    "amqp": frozenset({5671, 5672}),
    "mqtt": frozenset({1883}),
    # Of mails that alert rules send. Port 25 is the one between mail servers: it has to be named.
    "smtp": frozenset({465, 587}),
}

_DEFAULT_PORTS: dict[str, int] = {
    "redis": 6379,
    "rediss": 6379,
    "nats": 4222,
    "natss": 4222,
    "kafka": 9092,
    "kafkas": 9093,
    "amqp": 5672,
    "amqps": 5671,
    "mqtt": 1883,
    "mqtts": 8883,
    "sqs": 443,
    "pubsub": 443,
}


def is_own_port(protocol: str, port: int) -> bool:
    """Whether this guarded port is the one of the protocol: what listens there expects such a client."""
    return port in _OWN_PORTS.get(protocol, ())


def default_port(scheme: str) -> int:
    return _DEFAULT_PORTS.get(scheme, 0)


def is_sqs_region(url: URL) -> bool:
    """`sqs://eu-central-1/` is SQS of AWS there; every other host is an endpoint."""
    return url.scheme == "sqs" and url.explicit_port is None and _REGION.fullmatch(url.raw_host or "") is not None


_REGION = re.compile(r"[a-z]{2,3}(-[a-z]+)+-[0-9]+")


def server_of(url: URL) -> tuple[str, int]:
    """The host and port that a worker connects to first."""
    host = url.raw_host or ""
    if is_sqs_region(url):
        host = f"sqs.{host}.amazonaws.com{'.cn' if host.startswith('cn-') else ''}"
    return host, url.explicit_port or default_port(url.scheme)


def extra_of(protocol: str) -> str:
    """The extra of the package that installs the client of a protocol."""
    return "rabbitmq" if protocol == "amqp" else protocol


def amqp_route(topic: str) -> tuple[str, str]:
    """The exchange and the routing key of a topic of RabbitMQ: `exchange/routing.key`, or the name of a queue, to which
    the default exchange routes. A queue with a slash in its name is written with one more in front."""
    exchange, slash, routing_key = topic.partition("/")
    return (exchange, routing_key) if slash else ("", topic)
