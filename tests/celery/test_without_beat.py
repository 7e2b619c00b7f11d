"""Two nodes in place of beat, killed with -9: every tick has one task. `chaos/celery.py` does it for longer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.celery.stage import RabbitMq, require
from tests.support.servers import Redis

ROOT = Path(__file__).parents[2]


def play(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "chaos.celery", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.system
def test_every_tick_has_one_task_although_a_node_is_killed() -> None:
    require(Redis)
    assert "1\tjob\tevery-second\t" in play("--seconds", "2", "--kills", "1")


@pytest.mark.long
@pytest.mark.system
@pytest.mark.timeout(400)
@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_every_tick_has_one_task_although_nodes_are_killed_again_and_again(broker: str) -> None:
    require(Redis, *([RabbitMq] if broker == "rabbitmq" else []))
    play("--broker", broker, "--seconds", "40", "--kills", "8")
