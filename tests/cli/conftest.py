"""A server that implements the API's contract, and a command line that uses it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from detent.cli import main
from tests.cli.command_line import CommandLine, Finished
from tests.cli.contract_server import ContractServer


@pytest.fixture
def server() -> Iterator[ContractServer]:
    with ContractServer() as running:
        yield running


@pytest.fixture
def detent(server: ContractServer, tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, server.url)


@pytest.fixture
def inside(
    detent: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Finished]:
    """The same command line inside this process: for the many cases in which only words and codes matter."""
    monkeypatch.chdir(detent.folder)
    for name in os.environ:
        if name.startswith("DETENT_"):
            monkeypatch.delenv(name)
    for name, value in detent.environ.items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str) -> Finished:
        monkeypatch.setattr(sys, "argv", ["detent", *arguments])
        code = main()
        captured = capsys.readouterr()
        return Finished(code, captured.out, captured.err)

    return run
