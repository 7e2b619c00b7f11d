"""Runners that may call this machine, and a server that answers byte by byte as a test says."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from detent.domain.target_access import PRIVATE_TOO, PUBLIC_ONLY
from detent.targets.http import HttpTargetRunner
from detent.targets.policies import FixedPolicy
from detent.targets.shell import ShellTargetRunner
from tests.targets.target_helpers import Sink


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    async with Sink() as server:
        yield server


@pytest.fixture
async def runner() -> AsyncIterator[HttpTargetRunner]:
    made = HttpTargetRunner(FixedPolicy(PRIVATE_TOO), max_result_bytes=1000)
    yield made
    await made.close()


@pytest.fixture
async def strict() -> AsyncIterator[HttpTargetRunner]:
    made = HttpTargetRunner(FixedPolicy(PUBLIC_ONLY))
    yield made
    await made.close()


@pytest.fixture
async def shell() -> AsyncIterator[ShellTargetRunner]:
    made = ShellTargetRunner({1: "default"}, max_result_bytes=10_000, grace_seconds=0.3)
    await made.start()
    yield made
    await made.close()
