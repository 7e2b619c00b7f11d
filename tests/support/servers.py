"""Real etcd, ZooKeeper and Redis (others: `brokers.py`): each in a temporary folder, on a port that stays its own when
it is killed and started again. Where one is missing, root installs Debian's packages; others are told how; under CI
that is a failure.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import guardian
from tests.support.ports import free_port
from tests.support.waiting import until_sync

PACKAGES = (
    "etcd-server",
    "redis-server",
    "libzookeeper-java",
    "default-jre-headless",
    "rabbitmq-server",
    "mosquitto",
)
INSTALL = ("apt-get", "install", "-y", "--no-install-recommends", *PACKAGES)
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # the script on the PATH becomes another user
MOSQUITTO = Path("/usr/sbin/mosquitto")
JARS = Path("/usr/share/java")
ZOOKEEPER_JARS = ("zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-nop", "snappy-java", "metrics-core", "netty-all")
# A short-lived server of a few hundred nodes: it need not be fast later, only soon.
JAVA = ("-Xmx64m", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dzookeeper.forceSync=no")


class Server(ABC):
    name: str
    # What a server says when it is not only listening but serving: a question, and a part of the answer.
    question: bytes
    answer: bytes
    seconds = 30.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """As DETENT_COORDINATOR names it."""

    @abstractmethod
    def command(self) -> list[str]: ...

    def environ(self) -> dict[str, str] | None:
        return None

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), cwd=self.folder, stdout=log, stderr=log, env=self.environ()
            )
        until_sync(self._answers, self.seconds, f"{self.name} to answer")

    def ensure(self) -> None:
        if self._process is None:
            self.start()

    def kill(self) -> None:
        """As with a power cut: nothing is said and nothing is written."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 5)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} ended:\n{(self.folder / 'log').read_text()}"
        try:
            with self.connect() as probe:
                probe.sendall(self.question)
                return self.answer in probe.recv(4096)
        except OSError:
            return False


class Etcd(Server):
    name = "etcd"
    question = b"GET /health HTTP/1.0\r\n\r\n"
    answer = b"200 OK"

    @property
    def url(self) -> str:
        return f"etcd://127.0.0.1:{self.port}"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._peer = f"http://127.0.0.1:{free_port()}"

    def command(self) -> list[str]:
        # The shortest lease that etcd gives is one and a half times the time after which it elects.
        client = f"http://127.0.0.1:{self.port}"
        flags = {
            "data-dir": str(self.folder / "data"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": self._peer,
            "initial-advertise-peer-urls": self._peer,
            "initial-cluster": f"default={self._peer}",
            "heartbeat-interval": "20",
            "election-timeout": "200",
            "logger": "zap",
            "log-level": "error",
        }
        return ["etcd", *(f"--{name}={value}" for name, value in flags.items())]


class Redis(Server):
    """Nothing is kept on disk: a kill loses all, which is what our numbers have to survive."""

    name = "redis"
    question = b"PING\r\n"
    answer = b"PONG"

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        program = shutil.which("redis-server") or shutil.which("valkey-server") or "redis-server"
        return [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]


class ZooKeeper(Server):
    name = "zookeeper"
    question = b"srvr"
    answer = b"Mode: standalone"

    @property
    def url(self) -> str:
        return f"zookeeper://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        settings = {
            "tickTime": "200",  # sessions last from two to twenty of these
            "maxSessionTimeout": "60000",
            "dataDir": str(self.folder / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
        }
        (self.folder / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        jars = ":".join(str(JARS / f"{name}.jar") for name in ZOOKEEPER_JARS)
        return ["java", *JAVA, "-cp", jars, "org.apache.zookeeper.server.ZooKeeperServerMain", "zoo.cfg"]


@contextmanager
def running(kind: type[Server]) -> Iterator[Server]:
    require_servers()
    with tempfile.TemporaryDirectory(prefix="detent-test-", ignore_cleanup_errors=True) as folder:
        server = kind(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.kill()


def require_servers() -> None:
    missing = missing_servers()
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        install()
        missing = missing_servers()
    if missing:
        text = f"{' and '.join(missing)} must be installed: {' '.join(INSTALL)}"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)


def missing_servers() -> list[str]:
    found = {
        "etcd": shutil.which("etcd"),
        "Redis": shutil.which("redis-server") or shutil.which("valkey-server"),
        "ZooKeeper": all((JARS / f"{name}.jar").exists() for name in ZOOKEEPER_JARS),
        "Java": shutil.which("java"),
        "RabbitMQ": RABBITMQ.exists() and shutil.which("epmd"),
        "mosquitto": MOSQUITTO.exists() and shutil.which("mosquitto_passwd"),
    }
    return [name for name, there in found.items() if not there]


def install() -> None:
    with (guardian.SHARED / "detent-test-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of the parallel test processes installs, the others wait
        if missing_servers():
            environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for command in (("apt-get", "update"), INSTALL):
                subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
