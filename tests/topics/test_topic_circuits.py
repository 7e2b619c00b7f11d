"""A broker that does not answer: its circuit opens, and runs wait without using up attempts."""

from __future__ import annotations

import asyncio
import socket

from detent.domain.job import TopicTarget
from detent.domain.run import Failed, NotBegun
from detent.domain.target_access import PRIVATE_TOO
from detent.targets.breaker import HostBreakers
from detent.targets.policies import FixedPolicy
from detent.targets.topics.runner import TopicTargetRunner
from detent.telemetry.metrics import Metrics
from tests.topics.topic_calls import topic_call

LIMIT = 3


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


async def test_a_broker_that_refuses_connections_uses_up_so_many_attempts_and_no_more() -> None:
    metrics = Metrics()
    runner = TopicTargetRunner(FixedPolicy(PRIVATE_TOO), breakers=HostBreakers(LIMIT, 30.0, metrics))
    port = closed_port()
    target = TopicTarget(url=f"redis://127.0.0.1:{port}", topic="orders")
    found = list(await asyncio.gather(*(runner(topic_call(target)) for _ in range(20))))
    found.append(await runner(topic_call(target)))
    assert len([each for each in found if isinstance(each, Failed)]) == LIMIT
    waiting = [each for each in found if isinstance(each, NotBegun)]
    assert len(waiting) == 21 - LIMIT
    assert all(each.retry_after > 0 and f"127.0.0.1:{port} does not answer" in each.why for each in waiting)
    assert metrics.circuits_open == 1
    await runner.close()
