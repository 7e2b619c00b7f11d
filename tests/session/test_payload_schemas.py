"""A payload that does not match its schema does not reach the target, however its run was enqueued."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.session.test_on_demand import Recorder, StartSession, ended, enqueue
from tests.support import factories
from tests.support.threads import threads_that_check

HTTP = {"type": "http", "url": "http://127.0.0.1:9/"}
SCHEMA = {"type": "object", "required": ["customer"]}


async def test_a_run_that_sql_enqueued_with_a_wrong_payload_is_dead_without_a_call(
    look: Any, start: StartSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    checking = threads_that_check(monkeypatch)
    await factories.add_task(look, name="mail", definition={"target": HTTP, "payload_schema": SCHEMA})
    target = Recorder()
    await start(target)
    await enqueue(look, "mail", [{"payload": {"n": 1}}, {"payload": {"customer": "ada"}}, {}])
    rows = await ended(look, 3)
    assert [call.payload for call in target.calls] == [{"customer": "ada"}]
    assert [(row["status"], row["reason"]) for row in rows] == [
        (2, "not retryable"),
        (1, None),
        (2, "not retryable"),
    ]
    errors = await look.fetch("SELECT error FROM attempts ORDER BY serial")
    assert [row["error"] for row in errors] == [
        'The payload has no "customer": add what is missing.',
        "The payload is null, and payload_schema asks for an object: send an object.",
    ]
    assert checking and threading.current_thread().name not in checking
