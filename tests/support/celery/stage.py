"""Starts real brokers and real Celery workers, each in a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from tests.support.ports import free_port
from tests.support.servers import Redis, Server
from tests.support.waiting import until_sync

PROJECT = Path(__file__).parent / "project"


class RabbitMq(Server):
    name = "rabbitmq"
    question = b"AMQP\x00\x00\x09\x01"
    answer = b"\x00\x0a\x00\x0a"  # connection.start

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._distribution = free_port()

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}/"

    def command(self) -> list[str]:
        settings = {
            "HOME": str(self.folder),
            "RABBITMQ_NODENAME": f"detent{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
        (self.folder / "plugins").write_text("[].\n")
        program = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # the other one changes its user first
        return ["env", *(f"{name}={value}" for name, value in settings.items()), str(program)]

    def kill(self) -> None:
        if self._process is not None:
            subprocess.run(["pkill", "-KILL", "-P", str(self._process.pid)], check=False)
        super().kill()


PROGRAMS = {Redis: ("redis-server",), RabbitMq: ("rabbitmq-server",)}


def require(*kinds: type[Server]) -> None:
    """Skipped for a user who has not installed them; a failure under CI."""
    for program in (program for kind in kinds for program in PROGRAMS[kind]):
        if shutil.which(program) is None:
            text = f"{program} must be installed: apt-get install {program}"
            if os.environ.get("CI") == "true":
                pytest.fail(text)
            pytest.skip(text)


@contextmanager
def broker(kind: type[Server]) -> Iterator[Server]:
    require(kind)
    with tempfile.TemporaryDirectory(prefix="detent-test-", ignore_cleanup_errors=True) as folder:
        server = kind(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.kill()


class Shop(NamedTuple):
    """The app `shop:app` with its worker. `variables` are the environment in which others can import it."""

    variables: dict[str, str]
    record_url: str

    def executed(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.store.lrange("executed", 0, -1)]

    def finished(self) -> list[str]:
        return [line.decode() for line in self.store.lrange("finished", 0, -1)]

    @property
    def store(self) -> Any:
        return redis.Redis.from_url(self.record_url)


@contextmanager
def shop(broker_url: str, record_url: str, folder: Path, *, results: bool = True, workers: int = 1) -> Iterator[Shop]:
    """`record_url`: a Redis, where tasks record their executions; it is also the result backend."""
    variables = {
        "SHOP_BROKER": broker_url,
        "SHOP_RECORD": record_url,
        "PYTHONPATH": str(PROJECT),
        **({"SHOP_BACKEND": record_url} if results else {}),
    }
    started = [_worker(folder, variables, number) for number in range(workers)]
    try:
        for number, process in enumerate(started):
            _await_ready(process, folder / f"celery-{number}.log")
        yield Shop(variables, record_url)
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


def _await_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    def is_ready() -> bool:
        assert process.poll() is None, f"a Celery worker ended:\n{log.read_text()}"
        return " ready." in log.read_text()

    until_sync(is_ready, 60, "a Celery worker")


def _worker(folder: Path, variables: dict[str, str], number: int) -> subprocess.Popen[bytes]:
    options = ("-A", "shop", "worker", "-c", "2", "-Q", "shop,reports,other", "-n", f"w{number}@%h", "-l", "INFO")
    with (folder / f"celery-{number}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "celery", *options],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "C_FORCE_ROOT": "1", **variables},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
