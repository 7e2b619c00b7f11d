"""The options of `detent job create` for topic targets, and the target that they describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from detent.cli.base import option
from detent.domain.topics import SCHEMES
from detent.errors import UsageError

TOPIC_FLAGS = {
    "topic": "--topic",
    "topic_key": "--topic-key",
    "topic_format": "--topic-format",
    "topic_user": "--topic-user",
    "topic_password": "--topic-password",
}

TOPIC_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    option(
        "--topic-url",
        metavar="URL",
        help=f"Send a message to the broker at this address: {', '.join(SCHEMES)}.",
        panel="Target",
    ),
    option("--topic", metavar="NAME", help="With --topic-url: the topic, queue, stream or subject.", panel="Target"),
    option(
        "--topic-key",
        metavar="TEXT",
        help="With --topic-url: messages with the same key keep their order. [the id of the job]",
        panel="Target",
    ),
    option("--topic-format", metavar="plain|cloudevents", help="With --topic-url. [plain]", panel="Target"),
    option("--topic-user", metavar="NAME", help="With --topic-url: the user name for the broker.", panel="Target"),
    option(
        "--topic-password",
        metavar="SECRET",
        help="With --topic-url: the secret with the password for the broker.",
        panel="Target",
    ),
)


def check_topic_flags(flags: Mapping[str, Any]) -> None:
    """For a job with another target."""
    for key, flag in TOPIC_FLAGS.items():
        if flags[key]:
            raise UsageError(f"{flag} is given without --topic-url: it applies to topics only.")


def topic_target(flags: Mapping[str, Any], headers: dict[str, Any], tls: dict[str, Any]) -> dict[str, Any]:
    if not flags["topic"]:
        raise UsageError("--topic-url is given without --topic: name the topic, queue, stream or subject with --topic.")
    credentials: dict[str, Any] = {}
    if flags["topic_user"]:
        credentials["username"] = flags["topic_user"]
    if flags["topic_password"]:
        credentials["password"] = {"secret": flags["topic_password"]}
    parts = {
        "key": flags["topic_key"],
        "format": flags["topic_format"],
        "headers": headers,
        "credentials": credentials,
        "tls": tls,
    }
    chosen = {name: value for name, value in parts.items() if value}
    return {"type": "topic", "url": flags["topic_url"], "topic": flags["topic"], **chosen}
