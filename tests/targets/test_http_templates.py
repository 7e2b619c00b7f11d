"""What a real server receives from targets with templates, and what its statuses mean."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import msgspec
import pytest

from detent.domain.job import HttpTarget
from detent.domain.masking import Mask
from detent.domain.references import references_of, with_values
from detent.domain.registration import read_document
from detent.domain.run import Call
from detent.targets.http import HttpTargetRunner
from detent.targets.http_requests import headers_of
from detent.worker.execute import execute
from tests.targets.target_helpers import Sink, answer, call_of, failed, result_of, succeeded

SECRET = 'zq/9 "{{ job }}" ü&<7>'


def templated(payload: Any = None, *, timezone: str = "UTC", **target: Any) -> Call:
    return call_of(msgspec.convert({"type": "http", **target}, HttpTarget), payload, timezone=timezone)


async def test_url_headers_and_body_are_rendered_for_each_call(runner: HttpTargetRunner, sink: Sink) -> None:
    target: dict[str, Any] = {
        "url": sink.url + "/c/{{ payload.id }}?day={{ scheduled_at.date }}",
        "headers": {"X-Run": "{{ run_id }}", "X-Plain": "as it is"},
        "body": {"day": "{{ scheduled_at | %d.%m.%Y }}", "id": "{{ payload.id }}", "try": "{{ attempt }}"},
    }
    call = templated({"id": "a/b"}, timezone="America/Los_Angeles", **target)
    assert succeeded(await runner(call))["status"] == 200
    again = msgspec.structs.replace(call, attempt=2, payload={"id": 9})
    await runner(again)
    first, second = sink.received
    assert (first.path, second.path) == ("/c/a%2Fb?day=2026-02-28", "/c/9?day=2026-02-28")
    assert (first.header("x-run"), first.header("x-plain")) == (call.run_id, "as it is")
    assert first.header("content-type") == "application/json"
    assert json.loads(first.body) == {"day": "28.02.2026", "id": "a/b", "try": 1}
    assert json.loads(second.body) == {"day": "28.02.2026", "id": 9, "try": 2}
    assert headers_of(again)["X-Run"] == call.run_id


async def test_a_text_is_the_body_as_its_content_type_says(runner: HttpTargetRunner, sink: Sink) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    await runner(templated("a&b=c", url=sink.url, headers=form, body="x={{ payload }}"))
    await runner(templated("<&", url=sink.url, headers={"content-type": "text/xml"}, body="<x>{{ payload }}</x>"))
    await runner(templated("<&", url=sink.url, headers={"content-type": "text/plain"}, body="{{ payload }}"))
    await runner(templated("<&", url=sink.url, method="PUT", body={"always": "the same"}))
    assert [one.body for one in sink.received] == [
        b"x=a%26b%3Dc",
        b"<x>&lt;&amp;</x>",
        b"<&",
        b'{"always":"the same"}',
    ]
    assert sink.received[0].header("content-type") == "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"url": "/{{ payload.customer.id }}"}, "target.url could not be rendered"),
        ({"headers": {"X-Id": "{{ payload.customer.id }}"}}, "target.headers.X-Id could not be rendered"),
        ({"body": {"id": "{{ payload.customer.id }}"}}, "target.body could not be rendered"),
    ],
)
async def test_a_missing_value_fails_the_attempt_without_a_retry_and_is_named(
    runner: HttpTargetRunner, sink: Sink, target: dict[str, Any], words: str
) -> None:
    target = {**target, "url": sink.url + target.get("url", "/")}
    outcome = failed(await runner(templated({"customer": {}}, **target)))
    assert not outcome.retryable
    assert words in outcome.error
    assert "payload.customer.id is missing in the payload" in outcome.error
    assert sink.received == []


async def test_a_value_of_the_payload_cannot_choose_the_host(strict: HttpTargetRunner, sink: Sink) -> None:
    """Rules of addresses apply to what is called in the end."""
    outcome = failed(await strict(templated("@evil.example/", url=sink.url + "/{{ payload }}")))
    assert not outcome.retryable
    assert f"{sink.url}/%40evil.example%2F was not called" in outcome.error
    assert sink.received == []


async def test_a_secret_is_sent_as_it_is_and_masked_wherever_a_template_puts_it(
    runner: HttpTargetRunner, sink: Sink
) -> None:
    """Its value is no template, though it looks like one."""
    spec = read_document(
        {
            "target": {
                "type": "http",
                "url": sink.url + "/{{ payload.token }}",
                "headers": {"X-Both": "Bearer {{ payload.token }}", "X-Own": {"secret": "ours"}},
                "body": {"in": "{{ payload.token }}", "part": "<{{ payload.token }}>", "own": {"secret": "ours"}},
            },
            "payload": {"token": {"secret": "ours"}},
        }
    )
    assert len(list(references_of(spec))) == 3
    target, payload = with_values(spec.target, spec.payload, lambda _: SECRET)
    call = call_of(target, payload, mask=Mask([SECRET]), filled=True)

    async def echo(request: Any, writer: Any) -> None:
        heads = "\n".join(f"{name}: {values}" for name, values in request.headers.items())
        await answer("500 No", f"{request.path}\n{heads}\n".encode() + request.body)(request, writer)

    sink.answer = echo
    outcome = failed(await execute(call, {"http": runner}))
    (request,) = sink.received
    assert request.header("x-own") == SECRET
    assert request.header("x-both") == f"Bearer {SECRET}"
    assert json.loads(request.body) == {"in": SECRET, "part": f"<{SECRET}>", "own": SECRET}
    for text in (outcome.error, str(result_of(outcome)["body"])):
        assert "********" in text
        assert "zq" not in text, text


@pytest.mark.parametrize(
    ("status", "statuses", "expected"),
    [
        (304, {"success": ["2xx", 304]}, "success"),
        (200, {"success": [200, 304]}, "success"),
        (201, {"success": [200, 304]}, "no_retry"),
        (404, {"success": ["4xx"], "no_retry": [403]}, "success"),
        (403, {"success": ["4XX"], "no_retry": [403]}, "no_retry"),
        (409, {"retry": [409]}, "retry"),
        (429, {"retry": [409]}, "retry"),
        (503, {"retry": [409]}, "retry"),
        (501, {"no_retry": [501]}, "no_retry"),
        (502, {"no_retry": [501]}, "retry"),
        (503, {"no_retry": ["5xx"], "retry": [503]}, "retry"),
        (202, {"retry": [202]}, "retry"),
        (410, {"retry": [409]}, "gone"),
        (410, {"no_retry": ["4xx"]}, "gone"),
        (410, {"no_retry": [410]}, "no_retry"),
        (410, {"retry": [410]}, "retry"),
        (410, {"retry": ["4xx"]}, "retry"),
        (410, {"success": ["2xx", 410]}, "success"),
    ],
)
async def test_a_target_says_what_its_statuses_mean(
    runner: HttpTargetRunner, sink: Sink, status: int, statuses: dict[str, Any], expected: str
) -> None:
    sink.answer = answer(f"{status} Whatever", b"" if status in (204, 304) else b"body", "Retry-After: 7")
    outcome = await runner(templated(url=sink.url, statuses=statuses))
    if expected == "success":
        assert succeeded(outcome)["status"] == status
        return
    found = failed(outcome)
    assert (found.retryable, found.gone) == (expected == "retry", expected == "gone")
    assert found.retry_after == (7 if expected == "retry" else None)


async def test_without_lists_only_410_says_that_the_target_is_gone(runner: HttpTargetRunner, sink: Sink) -> None:
    for status in (400, 404, 409, 410, 422, 501):
        sink.answer = answer(f"{status} Whatever")
        assert failed(await runner(templated(url=sink.url))).gone == (status == 410)


@pytest.mark.parametrize("status", [429, 503])
async def test_the_wait_that_a_server_asks_for_may_be_a_date_and_has_a_bound(
    runner: HttpTargetRunner, sink: Sink, status: int
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    date = f"Date: {format_datetime(now - timedelta(days=9), usegmt=True)}"
    for wait, seconds in ((timedelta(seconds=90), 90), (timedelta(days=400), 86_400), (-timedelta(days=1), 0)):
        until = format_datetime(now - timedelta(days=9) + wait, usegmt=True)
        sink.answer = answer(f"{status} Later", b"", date, f"Retry-After: {until}")
        assert failed(await runner(templated(url=sink.url))).retry_after == seconds
    for text, expected in (("120", 120), ("9" * 30, 86_400), ("soon", None), ("-5", None)):
        sink.answer = answer(f"{status} Later", b"", f"Retry-After: {text}")
        assert failed(await runner(templated(url=sink.url))).retry_after == expected
