"""HTTP targets that are refused at registration, and what their stored form says."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from detent.domain.registration import PreparedJob, prepare, read_document
from detent.errors import UsageError

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def prepared(target: dict[str, Any], **fields: Any) -> PreparedJob:
    document = {"schedule": "@daily", "target": {"type": "http", "url": "https://example.org/", **target}, **fields}
    return prepare(read_document(document), UUID(int=7), 7, NOW)


@pytest.mark.parametrize(
    ("target", "pointer", "words"),
    [
        ({"url": "https://example.org/{{ dat }}"}, "/target/url", "known are job"),
        ({"url": "https://{{ job }}/"}, "/target/url", "must be written out"),
        ({"headers": {"X-A": "{{ jbo }}"}}, "/target/headers/X-A", "did you mean job?"),
        ({"body": {"a": ["{{ jbo }}"]}}, "/target/body/a/0", "did you mean job?"),
        ({"body": "{{ job"}, "/target/body", "has no end"),
        ({"body": "plain"}, "/target/body", "is not JSON"),
        ({"body": {}, "method": "GET"}, "/target/body", "A GET call has no body"),
        ({"body": 5}, "/target/body", "text"),
        ({"body": "{}", "headers": {"Content-Type": "{{ job }}"}}, "/target/headers/Content-Type", "write it out"),
        ({"body": {"a": {"secret": "no good"}}}, "/target/body/a/secret", "is not the name of a secret"),
        ({"statuses": {}}, "/target/statuses", "is empty"),
        ({"statuses": {"success": []}}, "/target/statuses/success", "No status is a success"),
        ({"statuses": {"success": [409], "retry": [409]}}, "/target/statuses/retry", "in success and in retry"),
        ({"statuses": {"retry": ["5xx"], "no_retry": ["5XX"]}}, "/target/statuses/no_retry", "in retry and in no_ret"),
        ({"statuses": {"retry": [409, 409]}}, "/target/statuses/retry", "twice in retry"),
        ({"statuses": {"retry": ["6xx"]}}, "/target/statuses/retry/0", '"6xx"'),
        ({"statuses": {"retry": ["5xx\n"]}}, "/target/statuses/retry", "is not a class of statuses"),
        ({"statuses": {"retry": [99]}}, "/target/statuses/retry/0", "200"),
        ({"statuses": {"retrys": [500]}}, "/target/statuses/retrys", "did you mean retry?"),
        ({"host_concurrency": 0}, "/target/host_concurrency", "1 to 10000"),
    ],
)
def test_a_target_that_cannot_be_called_as_written_is_refused(target: dict[str, Any], pointer: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        prepared(target)
    assert (refused.value.pointer, words in refused.value.message) == (pointer, True), refused.value


def test_a_target_without_them_is_stored_without_them() -> None:
    stored = prepared({"headers": {"X-A": "b"}}).definition
    assert not any(name in stored for name in ("body", "statuses", "host_concurrency"))
    stored = prepared({"body": {"a": 1}, "statuses": {"retry": [409]}, "host_concurrency": 3}).definition
    assert '"body":{"a":1},"statuses":{"retry":[409]},"host_concurrency":3}' in stored


def test_secrets_in_a_body_are_secrets_of_the_job() -> None:
    assert prepared({"body": {"key": {"secret": "ours"}}}).secrets == ("ours",)


def test_a_template_of_a_credential_is_no_literal_one() -> None:
    payload = {"token": {"secret": "ours"}}
    assert prepared({"headers": {"Authorization": "Bearer {{ payload.token }}"}}, payload=payload).warnings == []
    assert len(prepared({"headers": {"Authorization": "Bearer abcdef"}}).warnings) == 1


def test_a_value_that_no_tick_will_find_is_a_warning() -> None:
    job = prepared(
        {"url": "https://example.org/{{ payload.id }}", "body": ["{{ payload.items.1 }}"]}, payload={"id": 1}
    )
    (warning,) = job.warnings
    assert "target.body names a value" in warning
    assert "payload.items" in warning
    (warning,) = prepared({"headers": {"X": "{{ window_start }}"}}, schedule=None).warnings
    assert "no tick precedes a run of a task" in warning
    assert prepared({"url": "https://example.org/{{ payload.id }}"}, schedule=None).warnings == []
