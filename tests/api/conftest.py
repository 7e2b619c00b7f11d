"""The API on a separate database, and a connection to inspect that database."""

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
