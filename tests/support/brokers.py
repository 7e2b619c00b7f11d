"""Real message brokers of Debian: RabbitMQ and mosquitto, each in a temporary folder on ports of its own."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from pathlib import Path

from detent.devtools.bench.broker_servers import rabbitmq_environ, rabbitmq_names
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.servers import MOSQUITTO, RABBITMQ, Server

MAX_MESSAGE_BYTES = 200_000
"""Of both brokers, below their defaults, so that a test can exceed it."""

USER, PASSWORD = "publisher", "correct-horse"
READER = "reader"
"""A user of RabbitMQ that may not publish."""


class RabbitMQ(Server):
    """The default virtual host has the durable queues `orders` and `audit`, and the exchange `events`, of the type
    topic, which routes `order.#` to `orders`. A second virtual host is named `tenants/one`."""

    name = "RabbitMQ"
    question = b"AMQP\x00\x00\x09\x01"
    answer = b"RabbitMQ"
    seconds = 90.0  # an Erlang machine beside other tests

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.tls_port = free_port()
        self.authority = _with_certificate(folder)
        self._mapper: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}/"

    def environ(self) -> dict[str, str]:
        return dict(rabbitmq_environ(self.folder, self.port))

    def command(self) -> list[str]:
        self.folder.joinpath("plugins").write_text("[].\n")
        self.folder.joinpath("definitions.json").write_text(json.dumps(_definitions()))
        self.folder.joinpath("rabbitmq.conf").write_text(
            f"load_definitions = {self.folder / 'definitions.json'}\n"
            f"max_message_size = {MAX_MESSAGE_BYTES}\n"
            f"listeners.ssl.default = 127.0.0.1:{self.tls_port}\nssl_options.verify = verify_none\n"
            f"ssl_options.cacertfile = {self.folder}/server.ca\nssl_options.certfile = {self.folder}/server.crt\n"
            f"ssl_options.keyfile = {self.folder}/server.key\n"
            "log.console.level = warning\nlog.file = false\ndisk_free_limit.absolute = 1MB\n"
        )
        return [str(RABBITMQ)]

    def start(self) -> None:
        names = rabbitmq_names(self.folder, self.port)
        self._mapper = subprocess.Popen(names, cwd=self.folder, env=self.environ())
        super().start()

    def kill(self) -> None:
        super().kill()
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait()
            self._mapper = None


def _definitions() -> dict[str, object]:
    queues = [
        {"name": name, "vhost": vhost, "durable": True, "auto_delete": False, "arguments": arguments}
        for name, vhost, arguments in (
            ("orders", "/", {}),
            ("audit", "/", {}),
            ("orders", "tenants/one", {}),
            ("one", "/", {"x-max-length": 1, "x-overflow": "reject-publish"}),
        )
    ]
    exchange = {"name": "events", "vhost": "/", "type": "topic", "durable": True, "auto_delete": False}
    binding = {"source": "events", "vhost": "/", "destination": "orders", "destination_type": "queue"}
    all_rights = {"configure": ".*", "write": ".*", "read": ".*"}
    return {
        "users": [
            {"name": name, "password_hash": _hash(password), "tags": "administrator"}
            for name, password in (("guest", "guest"), (USER, PASSWORD), (READER, PASSWORD))
        ],
        "vhosts": [{"name": "/"}, {"name": "tenants/one"}],
        "permissions": [
            *({"user": user, "vhost": "/", **all_rights} for user in ("guest", USER)),
            {"user": "guest", "vhost": "tenants/one", **all_rights},
            {"user": READER, "vhost": "/", "configure": "", "write": "", "read": ".*"},
        ],
        "queues": queues,
        "exchanges": [{**exchange, "internal": False, "arguments": {}}],
        "bindings": [{**binding, "routing_key": "order.#", "arguments": {}}],
    }


def _hash(password: str) -> str:
    salt = b"salt"
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


class Mosquitto(Server):
    """Three listeners: one for everybody, one with TLS, and one that knows USER only, who may not publish below
    `forbidden/`."""

    name = "mosquitto"
    # CONNECT of MQTT 5 with a clean start and an empty client id; a CONNACK with "success".
    question = b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x00"
    answer = b"\x20"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.guarded_port = free_port()
        self.tls_port = free_port()
        self.authority = _with_certificate(folder)

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    @property
    def guarded_url(self) -> str:
        return f"mqtt://127.0.0.1:{self.guarded_port}"

    def command(self) -> list[str]:
        passwords, rights = self.folder / "passwords", self.folder / "rights"
        subprocess.run(["mosquitto_passwd", "-c", "-b", str(passwords), USER, PASSWORD], check=True)
        rights.write_text(f"topic readwrite #\n\nuser {USER}\ntopic readwrite #\ntopic deny forbidden/#\n")
        tls = "".join(f"{name}file {self.folder}/server.{end}\n" for name, end in (("cert", "crt"), ("key", "key")))
        self.folder.joinpath("mosquitto.conf").write_text(
            "per_listener_settings true\nuser root\n"
            # Sessions are there after kill -9, though not all that was acknowledged.
            f"persistence true\npersistence_location {self.folder}/\nautosave_interval 1\nautosave_on_changes true\n"
            f"max_packet_size {MAX_MESSAGE_BYTES}\nmax_queued_messages 0\n"
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\n"
            f"listener {self.tls_port} 127.0.0.1\nallow_anonymous true\n{tls}"
            f"listener {self.guarded_port} 127.0.0.1\nallow_anonymous false\n"
            f"password_file {passwords}\nacl_file {rights}\n"
        )
        return [str(MOSQUITTO), "-c", str(self.folder / "mosquitto.conf")]


def _with_certificate(folder: Path) -> Authority:
    authority = Authority()
    issued = authority.issue()
    for name, text in (("ca", authority.certificate), ("crt", issued.certificate), ("key", issued.key)):
        (folder / f"server.{name}").write_text(text)
    return authority
