"""The settings of the Kafka client for a server, and what its errors mean. No I/O."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import Any

from detent.domain.run import Failed
from detent.domain.topics import has_tls
from detent.targets.breaker import Unanswered
from detent.targets.text import one_line
from detent.targets.topics.publisher import BrokerAddress

DELIVERY_SECONDS = 15

# A message to such a topic is refused again, whenever it is sent.
_HOPELESS = frozenset(
    {
        "MSG_SIZE_TOO_LARGE",
        "INVALID_MSG",
        "INVALID_MSG_SIZE",
        "RECORD_LIST_TOO_LARGE",
        "TOPIC_EXCEPTION",
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "INVALID_RECORD",
        "POLICY_VIOLATION",
        "_INVALID_ARG",
        "_UNKNOWN_TOPIC",
        "UNKNOWN_TOPIC_OR_PART",
    }
)
# The client's own errors: no broker has said anything about the message.
_NO_ANSWER = frozenset({"_MSG_TIMED_OUT", "_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE"})
REFUSED_CLIENT = frozenset(
    {"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE"}
)


def bootstrap_of(address: BrokerAddress, default_port: int) -> list[tuple[str, int]]:
    """The servers to begin with: the host of the URL, and those of its `bootstrap`, separated by commas."""
    url = address.url
    servers = [(url.raw_host or "", url.explicit_port or default_port)]
    for text in filter(None, url.query.get("bootstrap", "").split(",")):
        host, _, port = text.rpartition(":") if not text.endswith("]") and ":" in text else (text, "", "")
        servers.append((host.strip("[]"), int(port) if port else default_port))
    return servers


def joined(servers: Sequence[tuple[str, int]]) -> str:
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in servers)


def client_settings(
    address: BrokerAddress, servers: Sequence[tuple[str, int]], on_error: Callable[[Any], None]
) -> dict[str, Any]:
    secure = has_tls(str(address.url)) or address.tls is not None
    settings: dict[str, Any] = {
        "bootstrap.servers": joined(servers),
        "client.id": "detent",
        "enable.idempotence": True,  # which implies acks=all, and keeps the order of what is sent again
        "acks": "all",
        "linger.ms": 1,  # messages come in batches already
        "delivery.timeout.ms": DELIVERY_SECONDS * 1000,
        "socket.connection.setup.timeout.ms": 10_000,
        "topic.metadata.propagation.max.ms": 5_000,
        "reconnect.backoff.max.ms": 5_000,
        "error_cb": on_error,
        "log_level": 0,  # errors come to error_cb; the client would write to stderr
        "security.protocol": _security(secure=secure, sasl=address.username is not None),
    }
    if secure:
        settings |= _certificates(address)
    if address.username is not None:
        settings["sasl.mechanism"] = address.url.query.get("sasl", "PLAIN")
        settings["sasl.username"] = address.username
        settings["sasl.password"] = address.password or ""
    return settings


def _security(*, secure: bool, sasl: bool) -> str:
    return f"{'SASL_' if sasl else ''}{'SSL' if secure else 'PLAINTEXT'}"


def _certificates(address: BrokerAddress) -> dict[str, Any]:
    """As text: the client has its own TLS and cannot use a context of Python."""
    settings: dict[str, Any] = {"ssl.endpoint.identification.algorithm": "https"}
    trusted = ssl.get_default_verify_paths().cafile  # where SSL_CERT_FILE says, as for all other targets
    if address.ca is not None:
        settings["ssl.ca.pem"] = address.ca
    elif trusted is not None:
        settings["ssl.ca.location"] = trusted
    if address.client_certificate is not None:
        settings["ssl.certificate.pem"] = address.client_certificate
        settings["ssl.key.pem"] = address.client_certificate
    return settings


def failure_of(peer: str, error: Any) -> Failed | Unanswered:
    """In the words of the client or the broker."""
    name = error.name()
    failed = Failed(f"{peer} did not take the message: {words_of(error)}.", retryable=name not in _HOPELESS)
    return Unanswered(failed, sent=True) if name in _NO_ANSWER else failed


def words_of(error: Any) -> str:
    return f"{one_line(error.str()).rstrip('.')} ({error.name().lstrip('_')})"
