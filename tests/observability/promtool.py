"""Debian's promtool: where it is missing, root installs it, others are told how, and under CI that is a failure."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import guardian

FOLDER = Path(__file__).parents[2] / "observability"
INSTALL = ("apt-get", "install", "-y", "--no-install-recommends", "prometheus")


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run in the folder of the rules."""
    _require()
    return subprocess.run(
        ["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=110, check=False
    )


def _require() -> None:
    if not shutil.which("promtool") and os.geteuid() == 0 and shutil.which("apt-get"):
        _install()
    if not shutil.which("promtool"):
        text = f"promtool must be installed: {' '.join(INSTALL)}"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)


def _install() -> None:
    with (guardian.SHARED / "detent-test-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of the parallel test processes installs, the others wait
        if not shutil.which("promtool"):
            environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for command in (("apt-get", "update"), INSTALL):
                subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
