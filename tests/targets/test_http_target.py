"""What a called server receives, and what its answer means for the run."""

from __future__ import annotations

import asyncio
import json
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
import uvloop

from detent.domain.target_access import PRIVATE_TOO, PUBLIC_ONLY
from detent.domain.webhooks import Signing
from detent.targets.http import HttpTargetRunner, retry_after_seconds
from detent.targets.policies import FixedPolicy
from detent.version import __version__
from tests.support.serving import serving
from tests.targets.target_helpers import RUN_ID, Sink, answer, failed, http_call, result_of, succeeded


async def test_a_call_carries_the_facts_of_the_run(runner: HttpTargetRunner, sink: Sink) -> None:
    sink.answer = answer("200 OK", b"done")
    window: dict[str, Any] = {"window": lambda: datetime(2026, 2, 28, 6, 30, tzinfo=UTC)}
    outcome = await runner(http_call(sink.url + "/hook?x=1", {"a": [1, "ü"]}, attempt=3, **window))
    assert succeeded(outcome) == {"status": 200, "body": "done"}
    (request,) = sink.received
    assert (request.method, request.path) == ("POST", "/hook?x=1")
    assert json.loads(request.body) == {"a": [1, "ü"]}
    assert {
        name: request.header(name)
        for name in ("idempotency-key", "detent-run-id", "detent-job", "detent-job-id", "detent-scheduled-at")
    } == {
        "idempotency-key": "nightly-report:2026-03-01T06:30:00Z",
        "detent-run-id": RUN_ID,
        "detent-job": "nightly-report",
        "detent-job-id": "01987f2e-0000-7000-8000-000000000001",
        "detent-scheduled-at": "2026-03-01T06:30:00Z",
    }
    assert request.header("detent-window-start") == "2026-02-28T06:30:00Z"
    assert request.header("detent-window-end") == "2026-03-01T06:30:00Z"
    assert request.header("detent-attempt") == "3"
    assert request.header("detent-call") == "run"
    assert request.header("detent-token") == "8589934593"
    assert request.header("content-type") == "application/json"
    assert request.header("user-agent") == f"detent/{__version__}"
    assert request.header("accept-encoding") == "identity"
    assert request.header("host") == f"127.0.0.1:{sink.port}"


async def test_all_attempts_of_a_run_are_one_trace(runner: HttpTargetRunner, sink: Sink) -> None:
    for attempt in (1, 2):
        await runner(http_call(sink.url, attempt=attempt))
    versions, traces, spans, flags = zip(*(one.header("traceparent").split("-") for one in sink.received), strict=True)
    assert set(versions) == {"00"}
    assert set(traces) == {RUN_ID.replace("-", "")}
    assert len(set(spans)) == 2
    assert {len(span) for span in spans} == {16}
    assert set(flags) == {"01"}


async def test_names_and_instants_are_written_so_that_any_client_can_read_them(
    runner: HttpTargetRunner, sink: Sink
) -> None:
    instant = datetime(2026, 3, 1, 8, 30, 0, 250_000, tzinfo=UTC).astimezone(tz=None)
    await runner(http_call(sink.url, job="Zürich 100%/day\n", scheduled_at=instant, idempotency_key="a b"))
    (request,) = sink.received
    assert request.header("detent-job") == "Z%C3%BCrich%20100%25/day%0A"
    assert request.header("detent-scheduled-at") == "2026-03-01T08:30:00.250Z"
    assert request.header("idempotency-key") == "a%20b"


async def test_users_add_headers_and_may_replace_the_ordinary_ones(runner: HttpTargetRunner, sink: Sink) -> None:
    headers = {"Authorization": "Bearer x", "content-type": "application/vnd.x+json", "user-agent": "mine"}
    await runner(http_call(sink.url, {}, headers=headers))
    (request,) = sink.received
    assert request.header("authorization") == "Bearer x"
    assert request.header("content-type") == "application/vnd.x+json"
    assert request.header("user-agent") == "mine"


async def test_what_signs_a_call_replaces_headers_of_the_job_with_its_names(
    runner: HttpTargetRunner, sink: Sink
) -> None:
    signing = Signing((b"key",), datetime(2026, 3, 1, 6, 30, tzinfo=UTC))
    await runner(http_call(sink.url, {}, headers={"Webhook-Id": "mine", "X-Kept": "yes"}, signing=signing))
    (request,) = sink.received
    assert request.header("webhook-id") == "nightly-report:2026-03-01T06:30:00Z"
    assert request.header("webhook-timestamp") == "1772346600"
    assert request.header("x-kept") == "yes"
    assert request.body == b"{}"


async def test_a_header_that_was_never_checked_is_not_sent(runner: HttpTargetRunner, sink: Sink) -> None:
    outcome = failed(await runner(http_call(sink.url, headers={"Detent-Token": "1"})))
    assert not outcome.retryable
    assert "set by detent" in outcome.error
    assert sink.received == []


@pytest.mark.parametrize(
    ("method", "payload", "body"),
    [
        ("POST", None, b""),
        ("POST", 0, b"0"),
        ("POST", {}, b"{}"),
        ("PUT", "x", b'"x"'),
        ("PATCH", [1], b"[1]"),
        ("DELETE", None, b""),
        ("DELETE", [1], b"[1]"),
        ("GET", [1], b""),
        ("HEAD", [1], b""),
    ],
)
async def test_the_body_is_the_payload_where_the_method_has_one(
    runner: HttpTargetRunner, sink: Sink, method: str, payload: object, body: bytes
) -> None:
    async def plain(_: object, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    sink.answer = plain
    assert succeeded(await runner(http_call(sink.url, payload, method=method))) == {"status": 204, "body": ""}
    (request,) = sink.received
    assert (request.method, request.body) == (method, body)
    assert ("content-type" in request.headers) == bool(body)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_every_2xx_is_a_success(runner: HttpTargetRunner, sink: Sink, status: int) -> None:
    sink.answer = answer(f"{status} Whatever")
    assert succeeded(await runner(http_call(sink.url)))["status"] == status


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
async def test_a_passing_trouble_is_retried(runner: HttpTargetRunner, sink: Sink, status: int) -> None:
    sink.answer = answer(f"{status} Whatever", b"try later")
    outcome = failed(await runner(http_call(sink.url + "/a/b?token=secret#part")))
    assert outcome.error == f"HTTP {status} from {sink.url}/a/b"
    assert outcome.retryable
    assert outcome.retry_after is None
    assert result_of(outcome) == {"status": status, "body": "try later"}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422, 451, 600, 999])
async def test_a_refusal_is_not_retried(runner: HttpTargetRunner, sink: Sink, status: int) -> None:
    sink.answer = answer(f"{status} Whatever", b"no", "Retry-After: 5")
    outcome = failed(await runner(http_call(sink.url)))
    assert not outcome.retryable
    assert outcome.retry_after is None
    assert result_of(outcome)["body"] == "no"


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
@pytest.mark.parametrize("location", ["http://169.254.169.254/latest", "/elsewhere", "http://127.0.0.1:1/"])
async def test_a_redirect_is_a_failed_delivery(
    runner: HttpTargetRunner, sink: Sink, status: int, location: str
) -> None:
    sink.answer = answer(f"{status} Go", b"", f"Location: {location}")
    outcome = failed(await runner(http_call(sink.url)))
    assert outcome.error.startswith(f"HTTP {status} from {sink.url}: redirects are not followed")
    assert not outcome.retryable
    assert len(sink.received) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("86401", 86_400.0),
        ("9" * 5000, 86_400.0),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("\u0663", None),
        (None, None),
        ("Sun, 01 Mar 2026 06:31:00 GMT", 60.0),
        ("Sun, 01 Mar 2026 06:31:00 -0000", 60.0),
        ("Sun, 01 Mar 2026 06:29:00 GMT", 0.0),
        ("Sun, 01 Mar 2099 06:29:00 GMT", 86_400.0),
        ("Sun, 99 Mar 2026 06:29:00 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_by_the_servers_own_clock(value: str | None, expected: float | None) -> None:
    assert retry_after_seconds(value, "Sun, 01 Mar 2026 06:30:00 GMT") == expected


@pytest.mark.parametrize("date", [None, "yesterday"])
def test_retry_after_without_a_date_of_the_answer_uses_our_clock(date: str | None) -> None:
    text = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    wait = retry_after_seconds(text, date)
    assert wait is not None
    assert 3000 < wait <= 3600


async def test_retry_after_reaches_the_outcome(runner: HttpTargetRunner, sink: Sink) -> None:
    sink.answer = answer("503 Busy", b"", "Retry-After: 17")
    assert failed(await runner(http_call(sink.url))).retry_after == 17.0


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"a\0b", "a\ufffdb"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("grün".encode(), "grün"),
        (b'{"n":"\\u0000"}', None),
    ],
)
async def test_an_answer_is_stored_as_text_that_the_database_can_hold(
    runner: HttpTargetRunner, sink: Sink, body: bytes, text: str | None
) -> None:
    sink.answer = answer("200 OK", body)
    outcome = await runner(http_call(sink.url))
    stored = json.loads(outcome.result or "")
    assert "\0" not in stored["body"]
    assert stored["body"] == (text if text is not None else body.decode())


@pytest.mark.parametrize(
    ("body", "kept", "truncated"),
    [
        (b"x" * 999, 999, False),
        (b"x" * 1000, 1000, False),
        (b"x" * 1001, 1000, True),
        (b"x" * 500_000, 1000, True),
        ("€".encode() * 334, 333 * 3, True),
        (b"\xff" * 1000, 333 * 3, False),
    ],
)
async def test_the_stored_answer_has_a_limit(
    runner: HttpTargetRunner, sink: Sink, body: bytes, kept: int, truncated: bool
) -> None:
    sink.answer = answer("200 OK", body)
    stored = succeeded(await runner(http_call(sink.url)))
    assert len(stored["body"].encode()) == kept
    assert stored.get("truncated", False) is truncated


async def test_connections_are_used_again_and_cookies_are_not(runner: HttpTargetRunner, sink: Sink) -> None:
    sink.answer = answer("200 OK", b"", "Set-Cookie: a=b; Path=/")
    for _ in range(5):
        succeeded(await runner(http_call(sink.url)))
    assert sink.connections == 1
    assert all("cookie" not in request.headers for request in sink.received)


async def test_proxies_of_the_environment_are_ignored(
    runner: HttpTargetRunner, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    succeeded(await runner(http_call(sink.url)))


async def test_a_refused_connection_is_retried(runner: HttpTargetRunner) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        outcome = failed(await runner(http_call(f"http://127.0.0.1:{port}/x?token=secret")))
    assert outcome.error == f"No connection to 127.0.0.1:{port} could be made: connection refused."
    assert outcome.retryable


async def test_plain_http_on_a_secure_url_is_one_sentence(runner: HttpTargetRunner) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serving(greet) as port:
        outcome = failed(await runner(http_call(f"https://127.0.0.1:{port}/")))
    assert outcome.error.startswith(f"No secure connection to 127.0.0.1:{port} could be made: ")
    assert outcome.retryable


async def test_a_url_that_was_never_checked_is_not_called(runner: HttpTargetRunner) -> None:
    outcome = failed(await runner(http_call("ftp://example.com/")))
    assert not outcome.retryable
    assert "only http and https" in outcome.error


async def test_cancelling_a_call_closes_its_connection(runner: HttpTargetRunner, sink: Sink) -> None:
    arrived = asyncio.Event()

    async def never(_: object, writer: asyncio.StreamWriter) -> None:
        arrived.set()

    sink.answer = never
    task = asyncio.create_task(runner(http_call(sink.url)))
    await arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(sink.gone.wait(), 5)


def test_the_same_holds_on_the_faster_event_loop() -> None:
    async def scenario() -> None:
        open_runner, strict_runner = (
            HttpTargetRunner(FixedPolicy(PRIVATE_TOO)),
            HttpTargetRunner(FixedPolicy(PUBLIC_ONLY)),
        )
        async with Sink() as sink:
            sink.answer = answer("200 OK", b"x" * 70_000)
            assert succeeded(await open_runner(http_call(sink.url, {}))).get("truncated") is True
            refused = failed(await strict_runner(http_call(sink.url)))
            assert not refused.retryable
            assert len(sink.received) == 1
            for each in (open_runner, strict_runner):
                await each.close()

    uvloop.run(scenario())
