"""Certificates in files. All tests of this folder run on both kinds of event loop that a node may have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from tests.support.certificates import Authority
from tests.tls.tls_server import CertificateFolder


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def folder(tmp_path: Path, authority: Authority) -> CertificateFolder:
    return CertificateFolder(tmp_path, authority)
