"""HTTP targets over the API: what is refused, what is stored, and what the audit log leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.api_client import ApiClient

API = "/api/v1"

TARGET = {"type": "http", "url": "https://example.org/{{ payload.id }}?d={{ scheduled_at.date }}"}


@pytest.mark.parametrize(
    ("target", "pointer", "words"),
    [
        ({"url": "https://example.org/{{ shceduled_at }}"}, "/target/url", "did you mean scheduled_at?"),
        ({"url": "https://{{ payload.host }}/"}, "/target/url", "must be written out"),
        ({"body": ["{{ payload.x"]}, "/target/body/0", "has no end"),
        ({"headers": {"X-A": "{{ env.HOME }}"}}, "/target/headers/X-A", "is not known"),
        ({"statuses": {"success": [409], "retry": [409]}}, "/target/statuses/retry", "in success and in retry"),
    ],
)
async def test_a_target_that_cannot_be_called_is_refused_and_nothing_is_stored(
    api: ApiClient, sql: Any, target: dict[str, Any], pointer: str, words: str
) -> None:
    job = {"schedule": "@daily", "target": {"type": "http", "url": "https://example.org/", **target}}
    problem = await api.problem("POST", f"{API}/jobs", 422, json=job)
    assert problem["pointer"] == pointer
    assert words in problem["detail"]
    assert await sql.fetchval("SELECT count(*) FROM jobs") == 0


async def test_a_target_comes_back_as_it_was_written_and_its_body_is_not_in_the_audit_log(
    api: ApiClient, sql: Any
) -> None:
    target = TARGET | {"body": {"key": "confidential"}, "statuses": {"retry": [409]}, "host_concurrency": 2}
    job = await api.create(name="templated", target=target, payload={"id": 7})
    assert {name: job["target"][name] for name in target} == target
    await api.good("PATCH", f"{API}/jobs/templated", json={"target": target | {"body": {"key": "private"}}})
    await api.good("PATCH", f"{API}/jobs/templated", json={"target": TARGET})
    events = await sql.fetch("SELECT before, after FROM audit_events WHERE action LIKE 'job.%'")
    assert len(events) == 3
    assert "confidential" not in str(events)
    assert "private" not in str(events)
