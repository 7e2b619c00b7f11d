"""Runners that may call this machine, and a server that answers byte by byte as a test says."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from detent.targets.guard import AddressPolicy
from detent.targets.http import HttpTargetRunner
from detent.targets.shell import ShellTargetRunner
from tests.targets.target_helpers import Sink


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    async with Sink() as server:
        yield server


@pytest.fixture
async def runner() -> AsyncIterator[HttpTargetRunner]:
    made = HttpTargetRunner(AddressPolicy(allow_private=True), max_result_bytes=1000)
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def strict() -> AsyncIterator[HttpTargetRunner]:
    made = HttpTargetRunner(AddressPolicy())
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def shell() -> AsyncIterator[ShellTargetRunner]:
    made = ShellTargetRunner({1: "default"}, max_result_bytes=10_000, grace_seconds=0.3)
    await made.start()
    yield made
    await made.close()
