"""A server whose clock the test sets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.fleet.servers import install_faketime


class Clock:
    """What the server takes for the time is set by a file."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.set("+0")

    def set(self, offset: str) -> None:
        written = self._file.with_suffix(".new")
        written.write_text(f"{offset}\n")
        written.chmod(0o644)
        written.replace(self._file)

    def variables(self) -> dict[str, str]:
        """What a server needs in its environment; without the library the test is skipped."""
        return {
            "LD_PRELOAD": str(_library()),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
        }


def _library() -> Path:
    library = install_faketime()
    if library is None:
        missing = "libfaketime is not here, and only root can install it: apt-get install -y faketime"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return library
