"""A server that speaks the contract, and a command line that is pointed at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine
from contract_server import ContractServer


@pytest.fixture
def server() -> Iterator[ContractServer]:
    with ContractServer() as running:
        yield running


@pytest.fixture
def detent(server: ContractServer, tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, server.url)
