"""The API of a database of its own, and a connection that looks into that."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.api.api_client import ApiClient
from tests.api.api_server import Readiness, serving


@pytest.fixture
def readiness() -> Readiness:
    return Readiness({"database": True, "lease": True})


@pytest.fixture
async def api(database_url: str, readiness: Readiness) -> AsyncIterator[ApiClient]:
    async with serving(database_url, readiness) as client:
        yield client
