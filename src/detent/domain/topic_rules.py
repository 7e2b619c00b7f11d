"""Checks of a topic target at registration. No I/O.

Each protocol has its own rules: what its URL may say, what a topic may be called, how large a message may be. A broker
may be configured otherwise; the limits here are its defaults.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec import UnsetType
from yarl import URL

from detent.domain.job import TargetCredentials, TopicTarget
from detent.domain.refusal import pointer_to
from detent.domain.target_url import TargetError, UrlForm, parse_url
from detent.domain.topics import PROTOCOLS, SCHEMES, amqp_route, has_tls, protocol_of

TOPIC_FORM = UrlForm(
    frozenset(SCHEMES),
    "redis://broker.example.com:6379",
    f"a topic has one of {', '.join(SCHEMES)}",
    'give them as credentials: {"username": "…", "password": {"secret": "NAME"}}',
)

# What the facts of a run take at least, as headers: a broker counts them.
LEAST_FACT_BYTES = 400

Check = Callable[[URL], None]
Fault = Callable[[str], str | None]


class TopicRules(NamedTuple):
    """The rules of one protocol. `fault`: why a topic cannot be called so. `check_url`: raises TargetError.
    `max_bytes`: of one message; None: it has no limit below that of a payload. `check_whole`: what concerns several
    members; raises TargetError."""

    fault: Fault
    check_url: Check
    max_bytes: int | None = None
    check_whole: Callable[[TopicTarget], None] | None = None


def check_topic(target: TopicTarget) -> None:
    """Raise TargetError if no worker can send to this topic."""
    url = parse_topic_url(target.url)
    rules = RULES[protocol_of(target.url)]
    rules.check_url(url)
    fault = rules.fault(target.topic)
    if fault is not None:
        raise TargetError(pointer_to("target", "topic"), f"{fault}{_without_templates(target.topic)}")
    if not isinstance(target.credentials, UnsetType):
        _check_credentials(target.credentials)
    if rules.check_whole is not None:
        rules.check_whole(target)


def _without_templates(topic: str) -> str:
    return " Only HTTP targets have templates: here {{ is a part of the name." if "{{" in topic else ""


def parse_topic_url(url: str) -> URL:
    """The parsed URL of a server; raises TargetError."""
    return parse_url(url, TOPIC_FORM)


def check_message_size(target: TopicTarget, payload_bytes: int) -> None:
    """Raise TargetError if the broker cannot take a message with a payload of this size."""
    protocol = protocol_of(target.url)
    limit = RULES[protocol].max_bytes if protocol in RULES else None
    if limit is None:
        return
    own = sum(len(name) + len(value) for name, value in target.headers.items() if isinstance(value, str))
    if payload_bytes + own + LEAST_FACT_BYTES > limit:
        raise TargetError(
            pointer_to("payload"),
            f"The payload has {payload_bytes:,} bytes, and a message to {protocol} has at most {limit:,} with its "
            "headers; send less, or send a reference to where it is stored.",
        )


def _check_credentials(credentials: TargetCredentials) -> None:
    if credentials.username is None and credentials.password is None:
        raise TargetError(
            pointer_to("target", "credentials"), "credentials is empty; give username or password, or remove it."
        )
    if isinstance(credentials.password, str):
        raise TargetError(
            pointer_to("target", "credentials", "password"),
            "The password is given as plain text; store it with `detent secret set NAME`, and write "
            '{"secret": "NAME"}.',
        )


# --- what several protocols share ---


def check_query(url: URL, allowed: Mapping[str, Callable[[str], str | None]]) -> None:
    """Refuse parameters that the protocol does not have. Each of `allowed` says what is wrong with a value."""
    for name, value in url.query.items():
        known = allowed.get(name)
        if known is None:
            may = f"it may have {' and '.join(allowed)}" if allowed else "it has none"
            raise TargetError(pointer_to("target", "url"), f"The URL has an unknown parameter {name!r}; {may}.")
        fault = known(value)
        if fault is not None:
            raise TargetError(pointer_to("target", "url"), f"The URL's parameter {name} is {value!r}; {fault}.")


def one_of(*values: str) -> Callable[[str], str | None]:
    return lambda value: None if value in values else f"it must be {' or '.join(values)}"


def positive_number(value: str) -> str | None:
    good = re.fullmatch("[0-9]{1,12}", value) and int(value)
    return None if good else "it must be a positive number"


def check_no_path(url: URL, example: str) -> None:
    if url.path.strip("/"):
        raise TargetError(
            pointer_to("target", "url"), f"The URL has a path, which means nothing here; write {example}."
        )


def _any_topic(topic: str) -> str | None:
    return None


def _any_url(url: URL) -> None:
    return None


# --- Redis ---


def _redis_url(url: URL) -> None:
    database = url.path.strip("/")
    if database and not re.fullmatch("[0-9]{1,5}", database):
        raise TargetError(
            pointer_to("target", "url"),
            f"The URL's path is {database!r}; it must be the number of a database, as in redis://host:6379/0.",
        )
    check_query(url, {"mode": one_of("stream", "list"), "maxlen": positive_number})
    if url.query.get("mode") == "list" and "maxlen" in url.query:
        raise TargetError(pointer_to("target", "url"), "maxlen is for streams; remove it or write mode=stream.")


def _redis_key(topic: str) -> str | None:
    if re.search(r"[\s\x00-\x1f\x7f]", topic):
        return "The topic contains a space or a control character; remove it."
    return None


# --- NATS ---


def _nats_url(url: URL) -> None:
    check_no_path(url, "nats://host:4222")
    check_query(url, {})


def _nats_subject(topic: str) -> str | None:
    if re.search(r"[\s\x00-\x1f\x7f]", topic):
        return "The subject contains a space or a control character; remove it."
    if "*" in topic or ">" in topic:
        return "The subject contains a wildcard (* or >); a message goes to one subject, so name it."
    if not all(topic.split(".")):
        return "The subject has an empty part; write names with single full stops between them, as in orders.new."
    if topic.startswith("$"):
        return "Subjects that begin with $ belong to the server; choose another name."
    return None


# --- RabbitMQ ---

_MAX_AMQP_NAME_BYTES = 255


def _amqp_url(url: URL) -> None:
    check_query(url, {})


def _amqp_topic(topic: str) -> str | None:
    if re.search(r"[\x00-\x1f\x7f]", topic):
        return "The topic contains a control character; remove it."
    exchange, routing_key = amqp_route(topic)
    if not exchange and not routing_key:
        return "The topic names no queue; write the name of a queue, or exchange/routing.key."
    for kind, name in (("exchange", exchange), ("routing key" if exchange else "queue", routing_key)):
        if len(name.encode()) > _MAX_AMQP_NAME_BYTES:
            return f"The name of the {kind} has more than {_MAX_AMQP_NAME_BYTES} bytes; choose a shorter one."
    return None


# --- MQTT ---


def _mqtt_url(url: URL) -> None:
    check_no_path(url, "mqtt://host:1883")
    check_query(url, {})


def _mqtt_topic(topic: str) -> str | None:
    if re.search(r"[\x00-\x1f\x7f-\x9f]", topic):
        return "The topic contains a control character; remove it."
    if "+" in topic or "#" in topic:
        return "The topic contains a wildcard (+ or #); a message goes to one topic, so name it."
    if topic.startswith("$"):
        return "Topics that begin with $ belong to the broker; choose another name."
    return None


# --- Kafka ---

KAFKA_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def _kafka_url(url: URL) -> None:
    check_no_path(url, "kafka://host:9092")
    check_query(url, {"sasl": one_of(*KAFKA_MECHANISMS), "bootstrap": _server_list})


def _server_list(value: str) -> str | None:
    for server in value.split(","):
        try:
            good = not parse_topic_url(f"kafka://{server}").path.strip("/")
        except TargetError:
            good = False
        if not good:
            return f"{server!r} is not a server; write hosts with their ports and commas between them"
    return None


def _kafka_topic(topic: str) -> str | None:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic) or topic in (".", ".."):
        return "A topic of Kafka has up to 249 letters, digits, full stops, underscores and hyphens; rename it."
    return None


def _kafka_whole(target: TopicTarget) -> None:
    if "sasl" in parse_topic_url(target.url).query and _username(target) is None:
        raise TargetError(pointer_to("target", "credentials"), "sasl needs credentials; give username and password.")


# --- SQS ---


def _sqs_url(url: URL) -> None:
    check_no_path(url, "sqs://eu-central-1/ or sqs://host:port/?region=eu-central-1")
    check_query(url, {"region": _region, "delay_seconds": _sqs_delay, "scheme": one_of("https", "http")})


def _region(value: str) -> str | None:
    return None if re.fullmatch(r"[a-z0-9-]{1,50}", value) else "it must be a region, such as eu-central-1"


def _sqs_delay(value: str) -> str | None:
    good = re.fullmatch("[0-9]{1,3}", value) and int(value) <= 900
    return None if good else "it must be a number of seconds from 0 to 900"


def _sqs_queue(topic: str) -> str | None:
    name = topic
    if "://" in topic:
        parts = re.fullmatch(r"https?://[A-Za-z0-9.:-]+/[^/?#]+/(?P<name>[^/?#]+)", topic)
        name = parts["name"] if parts else ""
    if not re.fullmatch(r"(?=.{1,80}\Z)[A-Za-z0-9_-]+(\.fifo)?", name):
        return (
            "The topic is neither the name of an SQS queue nor its URL; a name has up to 80 letters, digits, hyphens "
            "and underscores, and may end in .fifo."
        )
    return None


def _sqs_whole(target: TopicTarget) -> None:
    credentials = target.credentials
    if not isinstance(credentials, UnsetType) and (credentials.username is None or credentials.password is None):
        raise TargetError(
            pointer_to("target", "credentials"),
            "SQS needs the access key id as username and the secret access key as password; give both.",
        )


# --- Pub/Sub ---

PUBSUB_VALUE_BYTES = 1024


def _pubsub_url(url: URL) -> None:
    if not re.fullmatch(r"/[a-z0-9][a-z0-9.:-]*/?", url.path):
        raise TargetError(
            pointer_to("target", "url"),
            "The URL's path has to name the project, as in pubsub://pubsub.googleapis.com/my-project.",
        )
    check_query(url, {"scheme": one_of("https", "http"), "ordering": one_of("true", "false")})


def _pubsub_topic(topic: str) -> str | None:
    name = re.sub(r"\Aprojects/[a-z0-9][a-z0-9.:-]*/topics/", "", topic)
    if not re.fullmatch(r"(?!goog)[A-Za-z][A-Za-z0-9._~%+-]{2,254}", name):
        return (
            "A topic of Pub/Sub has 3 to 255 letters, digits and the characters -._~%+, begins with a letter and not "
            "with goog; rename it."
        )
    return None


def _pubsub_whole(target: TopicTarget) -> None:
    secure, given = has_tls(target.url), not isinstance(target.credentials, UnsetType)
    if given and not secure:
        raise TargetError(
            pointer_to("target", "credentials"),
            "The URL has a port, so it is an emulator without TLS, which gets no credentials; remove them, or add "
            "?scheme=https to the URL.",
        )
    if secure and (isinstance(target.credentials, UnsetType) or target.credentials.password is None):
        raise TargetError(
            pointer_to("target", "credentials"),
            "Pub/Sub needs credentials; store the JSON key of a service account with `detent secret set NAME`, and "
            'give {"password": {"secret": "NAME"}}.',
        )
    for name, value in target.headers.items():
        if isinstance(value, str) and len(value.encode("utf-8", "surrogatepass")) > PUBSUB_VALUE_BYTES:
            raise TargetError(
                pointer_to("target", "headers", name),
                f"The header {name} is longer than the {PUBSUB_VALUE_BYTES} bytes that Pub/Sub takes; shorten it.",
            )


def _username(target: TopicTarget) -> object:
    return None if isinstance(target.credentials, UnsetType) else target.credentials.username


RULES: dict[str, TopicRules] = {
    **{protocol: TopicRules(_any_topic, _any_url) for protocol in PROTOCOLS},
    "redis": TopicRules(_redis_key, _redis_url),
    "nats": TopicRules(_nats_subject, _nats_url, 1_048_576),
    "amqp": TopicRules(_amqp_topic, _amqp_url),
    "mqtt": TopicRules(_mqtt_topic, _mqtt_url),
    "kafka": TopicRules(_kafka_topic, _kafka_url, 1_000_000, _kafka_whole),
    "sqs": TopicRules(_sqs_queue, _sqs_url, 1_048_576, _sqs_whole),
    "pubsub": TopicRules(_pubsub_topic, _pubsub_url, 10_000_000, _pubsub_whole),
}
