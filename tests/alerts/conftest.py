"""Rules, events and the parts that report them, one pass at a time; sessions in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from detent.domain.secret_keys import read_master_keys
from detent.domain.target_access import PRIVATE_TOO
from detent.runtime.envelope import MasterKeys, generate_master_key
from detent.store import Store
from detent.targets.messenger import Messenger
from detent.targets.policies import FixedPolicy
from detent.worker.secrets import SecretValues
from tests.alerts.desk import AlertDesk
from tests.observability.receiver import Receiver, receiving
from tests.support.sessions import looking_often, start

__all__ = ["looking_often", "start"]


@pytest.fixture
def keys() -> MasterKeys:
    return MasterKeys(read_master_keys(generate_master_key()))


@pytest.fixture
async def desk(store: Store, sql: Any, keys: MasterKeys) -> AsyncIterator[AlertDesk]:
    messenger = Messenger(FixedPolicy(PRIVATE_TOO))
    yield AlertDesk(store, sql, keys, messenger, SecretValues(store.secrets, keys))
    await messenger.close()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made
