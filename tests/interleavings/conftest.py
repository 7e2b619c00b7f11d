"""A stage for the actors: one database per module, since every performance begins with fresh rows anyway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.interleavings.harness import Stage

if TYPE_CHECKING:
    from tests.support.postgres import Postgres


@pytest.fixture(scope="module")
def stage_url(postgres: Postgres) -> Iterator[str]:
    with postgres.database_apart() as url:
        yield url


@pytest.fixture
async def stage(stage_url: str) -> AsyncIterator[Stage]:
    async with Stage.at(stage_url) as stage:
        yield stage
