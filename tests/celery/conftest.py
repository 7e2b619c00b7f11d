from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from detent.domain.target_access import OPERATOR
from detent.targets.celery.runner import CeleryTargetRunner
from detent.targets.policies import FixedPolicy
from tests.support.celery.stage import PROJECT, Shop, broker, shop
from tests.support.servers import Redis, Server

APP = ("shop:app", 1)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Server]:
    with broker(Redis) as server:
        yield server


@pytest.fixture(scope="session")
def running_shop(redis_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop(redis_server.url, redis_server.url, tmp_path_factory.mktemp("shop")) as running:
        yield running


@pytest.fixture
def importable(running_shop: Shop) -> Iterator[None]:
    """The app of the shop, as a worker of detent can import it. Its modules stay: Celery registers the tasks of a
    module with every app of the process, so a second import would find their names taken."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in running_shop.variables.items():
            patch.setenv(name, value)
        patch.syspath_prepend(str(PROJECT))
        yield


@pytest.fixture
async def runner() -> AsyncIterator[CeleryTargetRunner]:
    """Under the rules of the operator: any address."""
    made = CeleryTargetRunner(FixedPolicy(OPERATOR), [APP], max_result_bytes=2000)
    yield made
    await made.close()
