"""The receivers in Python and JavaScript, with the reference libraries of Standard Webhooks, against signed calls."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from detent.domain.run import Call, Failed, Succeeded
from detent.domain.target_access import PRIVATE_TOO
from detent.domain.webhooks import Signing, read_signing_key
from detent.runtime.envelope import generate_signing_key
from detent.targets.http import HttpTargetRunner
from detent.targets.policies import FixedPolicy
from tests.support.node_packages import folder_with_packages
from tests.support.waiting import until_sync
from tests.targets.target_helpers import http_call, result_of

EXAMPLES = Path(__file__).parents[2] / "examples"
LISTENING = re.compile(r"^listening on (\d+)$", re.MULTILINE)
OLD, NEW, FORGED = generate_signing_key(), generate_signing_key(), generate_signing_key()

Receiver = Callable[[str], Any]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the receiver in JavaScript, and the library that it imports."""
    folder = tmp_path_factory.mktemp("receiver")
    return folder_with_packages(folder, EXAMPLES / "javascript" / "receiver.mjs", "the receiver in JavaScript")


@pytest.fixture(params=["python", "javascript"])
def receiver(request: pytest.FixtureRequest, tmp_path: Path) -> Receiver:
    if request.param == "python":
        return lambda secret: running([sys.executable, str(EXAMPLES / "python" / "receiver.py")], tmp_path, secret)
    folder = request.getfixturevalue("library")
    return lambda secret: running([str(shutil.which("node")), str(folder / "receiver.mjs")], tmp_path, secret)


@contextmanager
def running(command: list[str], folder: Path, secret: str) -> Iterator[tuple[str, Path]]:
    """Its address, and what it prints."""
    log = folder / "receiver.log"
    environ = {"PATH": os.environ["PATH"], "PORT": "0", "WEBHOOK_SECRET": secret}
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environ, stdout=out, stderr=subprocess.DEVNULL)
    try:
        found = until_sync(lambda: LISTENING.search(log.read_text()), 30, "the receiver to listen")
        yield f"http://127.0.0.1:{found[1]}/", log
    finally:
        process.kill()
        process.wait()


@pytest.fixture
async def runner() -> AsyncIterator[HttpTargetRunner]:
    made = HttpTargetRunner(FixedPolicy(PRIVATE_TOO))
    yield made
    await made.close()


def signed_call(url: str, *secrets: str, payload: Any, at: datetime | None = None) -> Call:
    keys = tuple(key for key in map(read_signing_key, secrets) if key is not None)
    signing = Signing(keys, at or datetime.now(UTC)) if keys else None
    return msgspec.structs.replace(http_call(url, payload), signing=signing)


async def test_a_receiver_accepts_what_is_signed_with_its_secret(receiver: Receiver, runner: HttpTargetRunner) -> None:
    with receiver(OLD) as (url, log):
        for secrets in ([OLD], [NEW, OLD]):
            outcome = await runner(signed_call(url, *secrets, payload={"text": "grüße"}))
            assert isinstance(outcome, Succeeded), outcome
        assert log.read_text().count("received") == 1  # the second was a repetition of the same run
        assert "gr" in log.read_text()


async def test_a_receiver_refuses_everything_else(receiver: Receiver, runner: HttpTargetRunner) -> None:
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    with receiver(OLD) as (url, log):
        for call in (
            signed_call(url, payload=1),
            signed_call(url, FORGED, payload=1),
            signed_call(url, OLD, payload=1, at=long_ago),
        ):
            outcome = await runner(call)
            assert isinstance(outcome, Failed), outcome
            assert result_of(outcome)["status"] == 401
        assert "received" not in log.read_text()
