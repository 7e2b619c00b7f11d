"""A stranger's path: every command of the README, copied into a clean shell beside a checkout with nothing set up."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.docs_pages import ROOT, blocks_of
from tests.docs.docs_shell import Shell
from tests.docs.test_code_blocks import ADDRESS, DATABASE_URL, check_or_run
from tests.support.ports import free_port

INSTALL_SECONDS = 900
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".detent", ".*_cache", ".cache", ".hypothesis", "build", "dist")


@pytest.fixture
def stranger(empty_database_url: str) -> Iterator[Shell]:
    with tempfile.TemporaryDirectory(prefix="detent-stranger-", ignore_cleanup_errors=True) as name:
        home = Path(name)
        home.chmod(0o711)
        shutil.copytree(ROOT, home / "detent", ignore=LEFT_OUT, symlinks=True)
        address = f"127.0.0.1:{free_port()}"
        variables = {
            "HOME": os.environ["HOME"],  # where pip is told from where to install
            "PATH": clean_path(),
            "DETENT_PORT": address.partition(":")[2],
            "DETENT_API_URL": f"http://{address}",
            **{key: value for key, value in os.environ.items() if key.startswith(("PIP_", "UV_", "SSL_"))},
        }
        rewrites = {ADDRESS: address, DATABASE_URL: empty_database_url}
        shell = Shell(home, home / "detent", variables, rewrites, patience=INSTALL_SECONDS)
        yield shell
        shell.stop_servers()


def clean_path() -> str:
    return ":".join(folder for folder in os.environ["PATH"].split(":") if not Path(folder, "activate").exists())


@pytest.mark.long
@pytest.mark.timeout(INSTALL_SECONDS + 120)
def test_every_command_of_the_readme_works_in_a_clean_shell(stranger: Shell, database_url: str) -> None:
    blocks = blocks_of("README.md")
    served = " ".join(block.text for block in blocks)
    for block in blocks:
        check_or_run(block, stranger, database_url, served)
