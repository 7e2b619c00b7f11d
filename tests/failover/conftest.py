"""Servers that are promoted, copied, and whose clocks are set."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from detent.store.servers import servers_of
from tests.failover.database_servers import Base, Servers
from tests.support import guardian
from tests.support.postgres import run_apart

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def workshop() -> Iterator[Path]:
    """A folder that the user of a server can enter, which those of pytest are not when root runs it."""
    # In memory where there is such a folder: these tests make many servers, and no disk is tested.
    with tempfile.TemporaryDirectory(
        prefix="detent-test-", dir=guardian.in_memory(), ignore_cleanup_errors=True
    ) as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture(scope="session")
def base(workshop: Path) -> Base:
    made = Base(workshop, "base")
    run_apart(made.make())
    return made


@pytest.fixture
def folder(workshop: Path) -> Iterator[Path]:
    made = workshop / f"test_{next(_numbers)}"
    made.mkdir(mode=0o711)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def servers(folder: Path, base: Base) -> Iterator[Servers]:
    with closing(Servers(folder, base)) as made:
        yield made
    servers_of.cache_clear()
