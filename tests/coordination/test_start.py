"""A process whose coordinator setting is wrong does not start, and says why; one whose coordinator is down does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.waiting import until_sync


def environment(home: Path, **variables: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **variables}


def test_an_address_that_cannot_be_right_is_refused_at_the_start(tmp_path: Path) -> None:
    environ = environment(tmp_path, DETENT_COORDINATOR="zoo://h:2181")
    command = [sys.executable, "-m", "detent", "scheduler"]
    refused = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2, refused.stderr
    assert "DETENT_COORDINATOR" in refused.stderr and "zookeeper://host:2181" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    "kind", ["etcd", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("zookeeper", "redis"))]
)
def test_a_process_whose_service_is_away_starts_says_so_and_stops_in_good_order(
    tmp_path: Path, database_url: str, kind: str
) -> None:
    environ = environment(
        tmp_path,
        DETENT_COORDINATOR=f"{kind}://127.0.0.1:{free_port()}",
        DETENT_DATABASE_URL=database_url,
        DETENT_LEASE_TTL_SECONDS="1",
    )
    log = tmp_path / "log"
    with log.open("w") as out:
        node = subprocess.Popen(
            [sys.executable, "-m", "detent", "scheduler"], cwd=tmp_path, env=environ, stdout=out, stderr=out
        )
    try:
        until_sync(lambda: "partitions taken" in log.read_text() or node.poll() is not None, 60, "the node to lead")
        assert node.poll() is None, log.read_text()
        node.send_signal(signal.SIGTERM)
        assert node.wait(30) == 0
    finally:
        node.kill()
        node.wait()
    said = log.read_text()
    assert '"event": "coordinator not reached"' in said
    assert "Traceback" not in said, said
