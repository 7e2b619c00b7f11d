"""Calls of topic targets: each with a run and a key of its own, unless a test says otherwise."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from detent.domain.job import TopicTarget
from detent.domain.run import Call
from tests.targets.target_helpers import call_of


def topic_call(target: TopicTarget, payload: Any = None, **changes: Any) -> Call:
    run = str(uuid4())
    return call_of(target, payload, **({"run_id": run, "idempotency_key": f"key-{run}"} | changes))
