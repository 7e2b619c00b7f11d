"""The services, each started when a test first asks for it and stopped with the test process; a field of candidates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from detent.domain.run import Call, Outcome, Succeeded
from detent.node.session import Session
from detent.settings.settings import Settings
from detent.store import Store
from detent.store.db import connect
from detent.store.limits import REQUEST_LIMITS
from tests.coordination.candidates import Field
from tests.support.postgres import Postgres, run_apart
from tests.support.servers import Etcd, Redis, Server, ZooKeeper, running

SERVICES = ("etcd", "zookeeper", "redis")
ALL = ("postgres", "advisory", *SERVICES)


@pytest.fixture(scope="session")
def etcd_server() -> Iterator[Server]:
    with running(Etcd) as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[Server]:
    with running(ZooKeeper) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Server]:
    with running(Redis) as server:
        yield server


@pytest.fixture(params=SERVICES)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """One service after the other; a test may kill it, the next one finds it running."""
    found: Server = request.getfixturevalue(f"{request.param}_server")
    yield found
    found.ensure()


@pytest.fixture(params=ALL)
def coordinator(request: pytest.FixtureRequest) -> str:
    """What DETENT_COORDINATOR may be."""
    if request.param in SERVICES:
        url: str = request.getfixturevalue(f"{request.param}_server").url
        return url
    return str(request.param)


@pytest.fixture(scope="session")
def one_database(postgres: Postgres) -> Iterator[str]:
    with postgres.database_apart() as url:
        yield url


@pytest.fixture
def kept_database(one_database: str) -> str:
    """For tests without jobs: the same database again, as another cluster without nodes. A new one takes
    longer than most of these tests."""
    run_apart(reset_cluster(one_database))
    return one_database


async def reset_cluster(url: str) -> None:
    connection = await connect(url, "detent", REQUEST_LIMITS)
    await connection.execute("UPDATE partitions SET holder = NULL, nomination = 0")
    await connection.execute("DELETE FROM nodes")
    await connection.execute("UPDATE cluster SET id = gen_random_uuid()")
    await connection.close()


@pytest.fixture
async def field(store: Store, coordinator: str) -> AsyncIterator[Field]:
    entered = Field(store, coordinator)
    yield entered
    await entered.close()


@pytest.fixture
async def served(store: Store, server: Server) -> AsyncIterator[Field]:
    """As `field`, where a service outside of the database nominates."""
    entered = Field(store, server.url)
    yield entered
    await entered.close()


@pytest.fixture
async def start(store: Store) -> AsyncIterator[Callable[..., Awaitable[Session]]]:
    """Start sessions under a coordinator; those still open at the end are closed."""
    opened: list[Session] = []

    async def succeed(_call: Call) -> Outcome:
        return Succeeded()

    async def start_session(coordinator: str, ttl: float) -> Session:
        settings = Settings(coordinator=coordinator, lease_ttl_seconds=ttl, concurrency=10)
        session = Session(store, settings, ("scheduler", "worker"), {"http": succeed}, [])
        await session.open()
        opened.append(session)
        return session

    yield start_session
    for session in opened:
        if not session.closed:
            await session.close(0)
