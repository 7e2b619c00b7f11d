"""Requests generated from the description of the API, valid and invalid ones, against a running server.

Every check that schemathesis has, and one of our own (`schemathesis_hooks.py`): no answer is a 5xx, every answer is as
described, nothing that the description forbids is accepted, nothing works without a key, and no NUL character or half
of a surrogate pair is taken.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from detent.store.jobs import DEFAULT_TENANT
from tests.api.api_server import Readiness, serving

HERE = Path(__file__).parent
PROGRAM = Path(sys.executable).with_name("st")


async def cases(database_url: str, readiness: Readiness, folder: Path, *options: str) -> int:
    """How many requests were made; fails with what schemathesis says."""
    async with serving(database_url, readiness, require_keys=True, requests_per_second=0) as api:
        key = (await api.store.keys.add("admin", tenant=DEFAULT_TENANT)).key
        process = await asyncio.create_subprocess_exec(
            *(str(PROGRAM), "--config-file", str(HERE / "schemathesis.toml"), "run", f"{api.url}/openapi.json"),
            *("--header", f"Authorization: Bearer {key}", "--checks", "all", "--continue-on-failure"),
            *("--generation-database", "none", "--warnings", "off", "--no-color", *options),
            cwd=folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(HERE)},
        )
        try:
            said = (await process.communicate())[0].decode()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, said
    count = re.search(r"(\d+) generated", said)
    assert count is not None, said
    return int(count[1])


@pytest.mark.timeout(300)
async def test_generated_requests_find_nothing_wrong(database_url: str, readiness: Readiness, tmp_path: Path) -> None:
    options = ("--phases", "fuzzing", "--max-examples", "2")
    assert await cases(database_url, readiness, tmp_path, *options) >= 100


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_two_thousand_generated_requests_find_nothing_wrong(
    database_url: str, readiness: Readiness, tmp_path: Path
) -> None:
    assert await cases(database_url, readiness, tmp_path, "--max-examples", "50") >= 2000
