"""`detent job create` with a topic, and how a job with one is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.command_line import Finished
from tests.cli.contract_server import ContractServer

Run = Callable[..., Finished]
CREATE = ("job", "create", "hello", "--every", "1h")


def sent(server: ContractServer) -> Any:
    return server.requests[-1].body


def test_a_topic_with_every_option(inside: Run, server: ContractServer, tmp_path: Any) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    done = inside(
        *CREATE, "--topic-url", "natss://broker:4222", "--topic", "orders.new", "--topic-key", "eu",
        "--topic-format", "cloudevents", "--topic-user", "detent", "--topic-password", "nats-password",
        "--header", "Region: eu", "--tls-ca", str(tmp_path / "ca.pem"), "--payload", "[1]",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert sent(server)["target"] == {
        "type": "topic",
        "url": "natss://broker:4222",
        "topic": "orders.new",
        "key": "eu",
        "format": "cloudevents",
        "headers": {"Region": "eu"},
        "credentials": {"username": "detent", "password": {"secret": "nats-password"}},
        "tls": {"ca": "-----BEGIN CERTIFICATE-----\n"},
    }


def test_only_what_is_given_is_sent(inside: Run, server: ContractServer) -> None:
    assert inside(*CREATE, "--topic-url", "redis://broker", "--topic", "orders").code == 0
    assert sent(server)["target"] == {"type": "topic", "url": "redis://broker", "topic": "orders"}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--topic-url", "redis://broker"), "--topic-url is given without --topic"),
        (("--url", "https://h/", "--topic", "orders"), "--topic is given without --topic-url"),
        (("--shell", "true", "--topic-key", "k"), "--topic-key is given without --topic-url"),
        (("--topic-url", "redis://b", "--topic", "o", "--method", "PUT"), "--method is given without --url"),
        (("--topic-url", "redis://b", "--topic", "o", "--url", "https://h/"), "--url and --topic-url are both given"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(inside: Run, flags: tuple[str, ...], words: str) -> None:
    done = inside(*CREATE, *flags)
    assert (done.code, words in done.err) == (2, True), done.err


def test_a_job_with_a_topic_is_shown_on_one_line(inside: Run, server: ContractServer) -> None:
    flags = ("--topic-url", "nats://broker:4222", "--topic", "orders.new", "--topic-password", "nats-password")
    done = inside(*CREATE, *flags)
    assert done.code == 0, done.err
    rows = dict(row for row in inside("job", "get", "hello").rows if len(row) == 2)
    assert rows["target"] == "topic orders.new at nats://broker:4222"
    assert rows["credentials"] == "password"
