"""Real processes on a database of their own, a target that records every call, and a look at the tables."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from detent.store import migrate
from detent.store.db import connect
from detent.store.limits import REQUEST_LIMITS
from tests.support.pgbouncer import prepare_role, running_pgbouncer
from tests.support.postgres import run_apart
from tests.support.processes import Nodes, unexpected_tracebacks
from tests.support.sink import Sink

LEASE = "1.5"  # short, so that a take-over does not make a test long


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.system)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With a failure, what the processes had to say."""
    report = yield
    nodes = getattr(item, "funcargs", {}).get("nodes")
    if report.failed and isinstance(nodes, Nodes):
        report.sections += [(f"log of {name}", text) for name, text in nodes.logs]
    return report


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the user of an embedded server can enter, which those of pytest are not when root runs it."""
    with tempfile.TemporaryDirectory(prefix="detent-test-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture
def nodes(folder: Path) -> Iterator[Nodes]:
    """Starts processes. None outlives the test, and none may have logged an unexpected error."""
    settings = {"DETENT_DATA_DIR": str(folder / "data"), "DETENT_LEASE_TTL_SECONDS": LEASE}
    with closing(Nodes(folder, **settings)) as started:
        yield started
    for name, text in started.logs:
        assert not unexpected_tracebacks(text), f"{name} met an error:\n{text}"


@pytest.fixture
def cluster(nodes: Nodes, reach: dict[str, Any]) -> Iterator[Nodes]:
    """As `nodes`, on a migrated database that they share and that lives longer than they."""
    nodes.variables["DETENT_DATABASE_URL"] = reach["url"]
    if reach.get("pooled"):
        nodes.variables["DETENT_DATABASE_POOLER"] = "transaction"
    with closing(nodes):
        yield nodes


@pytest.fixture
def way(pooled: bool) -> Iterator[Callable[[str], dict[str, str]]]:
    """The settings with which processes reach a server of a test's own, which is migrated."""
    with ExitStack() as stack:

        def lead(server_url: str) -> dict[str, str]:
            run_apart(migrate_at(server_url))
            if not pooled:
                return {"database_url": server_url}
            bouncer = stack.enter_context(running_pgbouncer(server_url))
            run_apart(prepare_role(server_url))
            return {"database_url": bouncer.url(server_url), "database_pooler": "transaction"}

        yield lead


async def migrate_at(url: str) -> None:
    connection = await connect(url, "detent", REQUEST_LIMITS)
    try:
        await migrate.migrate(connection)
    finally:
        await connection.close()


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as running:
        yield running
