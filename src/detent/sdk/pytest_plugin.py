"""Fixtures for tests of jobs, which pytest finds by itself where detent is installed.

    [tool.pytest.ini_options]
    detent_app = "shop:app"

`detent_app` is the app, `detent_test` its test mode, and `detent_server` a real node. Until a test uses one of them,
this module imports nothing of detent: it is a part of every test session in the environment.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from detent.sdk.app import Detent
    from detent.sdk.testing import TestMode
    from detent.sdk.testing.server import ServerOfTests

OPTION = "detent_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(OPTION, "The app under test, as MODULE:NAME, for the fixtures detent_test and detent_server.")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "detent(start): the time at which the clock of detent_test starts")


@pytest.fixture(scope="session")
def detent_app(pytestconfig: pytest.Config) -> Detent:
    """The app under test: the one that the setting `detent_app` names. Override it to return another one."""
    reference = str(pytestconfig.getini(OPTION) or "")
    if not reference:
        raise pytest.UsageError(
            'Name the app under test: write detent_app = "MODULE:NAME" below [tool.pytest.ini_options] in '
            "pyproject.toml, or define a fixture detent_app that returns it."
        )
    from detent.errors import UsageError
    from detent.sdk.testing.server import app_at

    try:
        return app_at(reference)
    except UsageError as error:
        raise pytest.UsageError(error.message) from error


@pytest.fixture
def detent_test(detent_app: Detent, request: pytest.FixtureRequest) -> Iterator[TestMode]:
    """The app in test mode. `@pytest.mark.detent(start="2026-03-28T12:00:00Z")` sets the clock."""
    marker = request.node.get_closest_marker("detent")
    start = None if marker is None else marker.kwargs.get("start", *marker.args[:1])
    with detent_app.test(start) as mode:
        yield mode


@pytest.fixture(scope="session")
def detent_server(detent_app: Detent, pytestconfig: pytest.Config) -> Iterator[ServerOfTests]:
    """A real node with the app on a PostgreSQL of its own, for the whole session. The app enqueues there."""
    from detent.sdk.testing.server import MISSING, ServerOfTests, is_possible, reference_of

    if not is_possible():
        pytest.skip(MISSING)
    reference = str(pytestconfig.getini(OPTION) or "") or reference_of(detent_app, sys.modules)
    with ServerOfTests(detent_app, reference, pytestconfig.rootpath) as server:
        yield server
