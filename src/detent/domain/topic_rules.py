"""Checks of a topic target at registration. No I/O.

Each protocol has its own rules: what its URL may say, what a topic may be called, how large a message may be. A broker
may be configured otherwise; the limits here are those that it has if nobody changes them.
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
from detent.domain.topics import PROTOCOLS, SCHEMES, protocol_of

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
    `max_bytes`: of one message; None: it has no limit below that of a payload."""

    fault: Fault
    check_url: Check
    max_bytes: int | None = None


def check_topic(target: TopicTarget) -> None:
    """Raise TargetError if no worker can send to this topic."""
    url = parse_topic_url(target.url)
    rules = RULES[protocol_of(target.url)]
    rules.check_url(url)
    fault = rules.fault(target.topic)
    if fault is not None:
        raise TargetError(pointer_to("target", "topic"), fault)
    if not isinstance(target.credentials, UnsetType):
        _check_credentials(target.credentials)


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
        return "The key contains a space or a control character; remove it."
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


RULES: dict[str, TopicRules] = {
    **{protocol: TopicRules(_any_topic, _any_url) for protocol in PROTOCOLS},
    "redis": TopicRules(_redis_key, _redis_url),
    "nats": TopicRules(_nats_subject, _nats_url, 1_048_576),
}
