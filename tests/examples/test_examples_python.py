"""The Python examples do what they say: their own tests pass, run as a user would run them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from detent import AsyncClient
from detent.domain.job import JobSpec, PythonTarget
from detent.jobs import JobOperations
from detent.store import Store
from tests.support.serving import serving

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"


def test_the_tests_of_the_example_app_pass() -> None:
    environ = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
        "-c",
        os.devnull,
        "--rootdir=.",
        ".",
    ]
    done = subprocess.run(command, cwd=EXAMPLES, env=environ, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


async def test_a_worker_in_python_pulls_its_work(store: Store, server_url: str, tmp_path: Path) -> None:
    target = PythonTarget(function="send")
    await JobOperations(store).registration.add(
        [JobSpec(name="m", schedule="@daily", target=target, queue="mail", payload={"to": "ü"})]
    )
    environ = {"PATH": os.environ["PATH"], "DETENT_API_URL": server_url}
    with (tmp_path / "worker.log").open("wb") as log:
        command = [sys.executable, str(EXAMPLES / "pull_worker.py"), "mail"]
        worker = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
    try:
        async with AsyncClient(server_url) as client:
            run = await client.wait_for_run((await client.trigger_job("m")).id, timeout=60)
    finally:
        worker.kill()
        worker.wait()
    assert (run.status, run.node) == ("succeeded", "pull:pull-worker.py")
    assert run.result == {"to": "ü", "key": run.idempotency_key}


async def test_a_program_registers_a_job_and_waits_for_its_run(server_url: str, sink: str) -> None:
    environ = {"PATH": os.environ["PATH"], "DETENT_API_URL": server_url}
    for change in ("created", "unchanged"):
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, str(EXAMPLES / "report_now.py"), sink), env=environ, stdout=PIPE, stderr=PIPE
        )
        out, err = await program.communicate()
        assert program.returncode == 0, err.decode()
        assert out.decode().startswith(f"report: {change}, ")
        assert "succeeded after" in out.decode()


@pytest.fixture
async def sink() -> AsyncIterator[str]:
    """A target that answers every call."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()

    async with serving(answer) as port:
        yield f"http://127.0.0.1:{port}/"
