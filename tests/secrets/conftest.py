"""An API with a secret key, sessions with the same one, and a target that sends back all it gets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from detent.domain.secret_keys import read_master_keys
from detent.runtime.envelope import MasterKeys, generate_master_key
from tests.api.api_client import ApiClient
from tests.api.api_server import Readiness, serving
from tests.secrets.echo import Echo
from tests.support.sessions import looking_often, start

__all__ = ["looking_often", "start"]


@pytest.fixture
def secret_key() -> str:
    return generate_master_key()


@pytest.fixture
def keys(secret_key: str) -> MasterKeys:
    return MasterKeys(read_master_keys(secret_key))


@pytest.fixture
async def api(database_url: str, secret_key: str) -> AsyncIterator[ApiClient]:
    async with serving(database_url, Readiness({"database": True}), secret_key=secret_key) as client:
        yield client


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    async with Echo() as server:
        yield server
