"""Creates the configured transport. Its client library is imported only then."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from urllib.parse import urlsplit

from detent.errors import UsageError
from detent.transports.transport import Transport

POSTGRES = "postgres"

# By scheme: the module, which has a function `open_transport(address, cluster)`, and the extra with its client library.
_MODULES = {
    "redis": ("redis", "redis"),
    "rediss": ("redis", "redis"),
    "nats": ("nats", "nats"),
    "natss": ("nats", "nats"),
    "amqp": ("rabbitmq", "rabbitmq"),
    "amqps": ("rabbitmq", "rabbitmq"),
    "kafka": ("kafka", "kafka"),
    "kafkas": ("kafka", "kafka"),
    "sqs": ("sqs", "sqs"),
}

# A name without an address means the broker of this machine.
_LOCAL = {
    "redis": "redis://localhost:6379/0",
    "nats": "nats://localhost:4222",
    "rabbitmq": "amqp://guest:guest@localhost:5672",
    "kafka": "kafka://localhost:9092",
    "sqs": "sqs://",
}


def choose_transport(named: str, cluster: str) -> Transport | None:
    """`named` is as `Settings` has checked it; None: PostgreSQL is the queue. `cluster` identifies the cluster: several
    may use one broker."""
    if named == POSTGRES:
        return None
    address = _LOCAL.get(named, named)
    module, extra = _MODULES[urlsplit(address).scheme]
    try:
        opener: Callable[[str, str], Transport] = import_module(f"detent.transports.{module}").open_transport
        return opener(address, cluster)
    except ImportError as error:
        raise UsageError(
            f"DETENT_QUEUE names {module}, whose client is not installed: pip install 'detent[{extra}]'."
        ) from error
