"""The settings of the Kafka client for an address, the names of topics, and what errors of the client mean. No I/O."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from detent.transports.answering import ANSWER_SECONDS

DEFAULT_PARTITIONS = 12
# A lost worker leaves the group after so long, and its partitions go to others.
SESSION_SECONDS = 10
# A run that still waits is offered again every 30 s: without an end, a topic that no worker reads would only grow.
KEPT_SECONDS = 600
SEGMENT_SECONDS = 300

# After such an error nothing works until the operator or the cluster changes something; others pass by themselves.
AWAY = frozenset({"_ALL_BROKERS_DOWN", "_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL", "_FATAL"})
FORBIDDEN = frozenset({"TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"})
MISSING_TOPIC = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})


class KafkaAddress(NamedTuple):
    """`kafka://user:password@host:9092,host:9092/?sasl=SCRAM-SHA-512&partitions=12&replication=3`"""

    servers: str
    username: str | None
    password: str | None
    secure: bool
    sasl: str
    partitions: int
    replication: int
    """-1: as many copies as the cluster makes by default."""

    def __repr__(self) -> str:
        """Without the password."""
        return f"KafkaAddress({self.servers!r})"


def read_kafka_address(address: str) -> KafkaAddress:
    parts = urlsplit(address)
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    secure = parts.scheme == "kafkas"
    port = 9093 if secure else 9092
    servers = ",".join(host if _has_port(host) else f"{host}:{port}" for host in hosts.split(","))
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    return KafkaAddress(
        servers,
        unquote(user) if user else None,
        unquote(password) if user else None,
        secure,
        query.get("sasl", "PLAIN"),
        int(query.get("partitions", DEFAULT_PARTITIONS)),
        int(query.get("replication", -1)),
    )


def _has_port(host: str) -> bool:
    return host.rpartition(":")[2].isdigit() and not host.endswith("]")


def common_settings(address: KafkaAddress, on_error: Callable[[Any], None]) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": address.servers,
        "client.id": "detent",
        "socket.connection.setup.timeout.ms": round(ANSWER_SECONDS * 1000),
        "reconnect.backoff.max.ms": 1_000,
        "topic.metadata.refresh.interval.ms": 10_000,
        "error_cb": on_error,
        "log_level": 0,  # errors come to error_cb; the client would write to stderr
        "security.protocol": f"{'SASL_' if address.username else ''}{'SSL' if address.secure else 'PLAINTEXT'}",
    }
    if address.secure:
        settings["ssl.endpoint.identification.algorithm"] = "https"
        trusted = ssl.get_default_verify_paths().cafile  # where SSL_CERT_FILE says, as for all other clients
        if trusted is not None:
            settings["ssl.ca.location"] = trusted
    if address.username:
        settings |= {"sasl.mechanism": address.sasl, "sasl.username": address.username}
        settings["sasl.password"] = address.password or ""
    return settings


def producer_settings(common: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **common,
        "acks": "all",
        "linger.ms": 1,  # offers come in batches already
        "delivery.timeout.ms": round(ANSWER_SECONDS * 1000),
        "topic.metadata.propagation.max.ms": 1_000,
        "partitioner": "murmur2_random",  # as clients of other languages choose partitions
    }


def consumer_settings(common: Mapping[str, Any], group: str) -> dict[str, Any]:
    return {
        **common,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
        "partition.assignment.strategy": "cooperative-sticky",  # a worker that comes does not stop the others
        "session.timeout.ms": SESSION_SECONDS * 1000,
        "heartbeat.interval.ms": 1_000,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 100,
        "queued.max.messages.kbytes": 1024,  # what is fetched ahead is lost for others
    }


TOPIC_SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": str(KEPT_SECONDS * 1000),
    "segment.ms": str(SEGMENT_SECONDS * 1000),
}


def kafka_words(error: Any) -> str:
    """In one line, with the name that the client gives to the error."""
    return f"{' '.join(str(error.str()).split()).rstrip('.')[:300]} ({error.name().lstrip('_')})"
