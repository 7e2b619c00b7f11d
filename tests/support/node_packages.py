"""Node.js with the packages of tests/support/node, in a folder of the test's own."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import guardian

LOCKED = Path(__file__).with_name("node")
INSTALL_SECONDS = 300
INSTALL = ("apt-get", "install", "-y", "--no-install-recommends", "nodejs", "npm")


def folder_with_packages(folder: Path, script: Path, purpose: str) -> Path:
    """The folder, with the script and the packages that it may import. Where they cannot be had, the test is skipped;
    in CI it fails. `purpose`: what is not tested then."""
    require_node(purpose)
    for file in (script, LOCKED / "package.json", LOCKED / "package-lock.json"):
        shutil.copy(file, folder)
    command = ["npm", "ci", "--no-audit", "--no-fund", "--silent"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        missing(f"npm could not install the packages within {INSTALL_SECONDS} s", purpose)
    if done.returncode != 0:
        missing(f"npm could not install the packages: {done.stderr.decode()[-200:]}", purpose)
    return folder


def require_node(purpose: str) -> None:
    """Install node and npm where that is possible; else the test is skipped, and in CI it fails."""
    if not _is_there() and os.geteuid() == 0 and shutil.which("apt-get"):
        _install()
    if not _is_there():
        missing("node and npm are not installed", purpose)


def _is_there() -> bool:
    return shutil.which("node") is not None and shutil.which("npm") is not None


def _install() -> None:
    with (guardian.SHARED / "detent-test-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of the parallel test processes installs, the others wait
        if not _is_there():
            environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for command in (("apt-get", "update"), INSTALL):
                subprocess.run(command, env=environ, check=False, stdout=subprocess.DEVNULL)


def missing(what: str, purpose: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}, and CI must test {purpose}")
    pytest.skip(f"{what}: {purpose} was not tested")
