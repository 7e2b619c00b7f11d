"""Which failures of HTTP calls open the circuit of their host, and that the next calls are not made."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from detent.domain.job import HttpTarget, TargetTls
from detent.domain.masking import Mask
from detent.domain.run import Failed, NotBegun, Outcome, Succeeded
from detent.domain.target_access import PRIVATE_TOO
from detent.runtime.clock import monotonic
from detent.targets import breaker
from detent.targets.breaker import HostBreakers
from detent.targets.http import HttpTargetRunner
from detent.targets.policies import FixedPolicy
from detent.telemetry.metrics import Metrics
from tests.support.certificates import Authority
from tests.targets.target_helpers import Received, Sink, answer, call_of, eventually, http_call

LIMIT = 3


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def guarded(metrics: Metrics) -> AsyncIterator[HttpTargetRunner]:
    breakers = HostBreakers(LIMIT, 30.0, metrics)
    made = HttpTargetRunner(FixedPolicy(PRIVATE_TOO), breakers=breakers)
    yield made
    await made.close()


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


async def outcomes(runner: HttpTargetRunner, url: str, count: int = LIMIT + 1) -> list[Outcome | NotBegun]:
    return [await runner(http_call(url)) for _ in range(count)]


def attempts(found: list[Outcome | NotBegun]) -> int:
    return len([each for each in found if not isinstance(each, NotBegun)])


async def test_a_host_that_refuses_connections_is_not_called_after_so_many_failures(
    guarded: HttpTargetRunner, metrics: Metrics
) -> None:
    url = f"http://127.0.0.1:{closed_port()}/"
    *failures, last = await outcomes(guarded, url)
    assert all(isinstance(each, Failed) and each.retryable for each in failures)
    assert isinstance(last, NotBegun)
    assert last.retry_after > 0
    assert "does not answer: No connection" in last.why
    assert (metrics.circuits_open, metrics.circuits_opened) == (1, 1)


async def test_calls_that_find_no_connection_together_use_up_only_so_many_attempts(guarded: HttpTargetRunner) -> None:
    url = f"http://127.0.0.1:{closed_port()}/"
    found = await asyncio.gather(*(guarded(http_call(url)) for _ in range(50)))
    assert attempts(list(found)) == LIMIT


async def test_a_name_without_an_address_opens_it(guarded: HttpTargetRunner) -> None:
    assert attempts(await outcomes(guarded, "http://no-such-host.invalid/")) == LIMIT


@pytest.mark.parametrize("status", ["502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout"])
async def test_a_gateway_without_its_host_opens_it(guarded: HttpTargetRunner, sink: Sink, status: str) -> None:
    sink.answer = answer(status)
    assert attempts(await outcomes(guarded, sink.url, 10)) == LIMIT == len(sink.received)


@pytest.mark.parametrize("status", ["400 Bad Request", "404 Not Found", "429 Too Many", "500 Internal", "501 No"])
async def test_any_other_answer_shows_that_the_host_is_there(
    guarded: HttpTargetRunner, sink: Sink, status: str
) -> None:
    for _ in range(LIMIT):
        sink.answer = answer("503 Service Unavailable")
        assert attempts(await outcomes(guarded, sink.url, LIMIT - 1)) == LIMIT - 1
        sink.answer = answer(status)
        assert attempts(await outcomes(guarded, sink.url, 1)) == 1


async def test_a_connection_that_breaks_opens_it(guarded: HttpTargetRunner, sink: Sink) -> None:
    async def hang_up(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.close()

    sink.answer = hang_up
    assert attempts(await outcomes(guarded, sink.url, 10)) == LIMIT


async def interrupted(runner: HttpTargetRunner, sink: Sink, limit: float, after: float) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(after):
            await runner(http_call(sink.url, timeout_seconds=limit))


async def never(_: Received, writer: asyncio.StreamWriter) -> None:
    """Until the client has gone."""
    with contextlib.suppress(asyncio.CancelledError):
        while not writer.transport.is_closing():
            await asyncio.sleep(0.01)


async def test_a_time_limit_that_ran_out_opens_it_and_a_cancelled_call_does_not(
    guarded: HttpTargetRunner, sink: Sink
) -> None:
    sink.answer = never
    for _ in range(LIMIT + 1):
        await interrupted(guarded, sink, 60.0, 0.05)
    for _ in range(LIMIT):
        await interrupted(guarded, sink, 0.05, 0.05)
    assert isinstance(await guarded(http_call(sink.url)), NotBegun)


async def test_a_time_limit_that_ran_out_partly_in_the_wait_for_a_place_opens_it_too(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = HttpTargetRunner(FixedPolicy(PRIVATE_TOO), breakers=HostBreakers(1, 30.0, Metrics()), host_concurrency=1)
    release = asyncio.Event()

    async def slow(received: Received, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await answer()(received, writer)

    sink.answer = slow
    first = asyncio.create_task(runner(http_call(sink.url, timeout_seconds=60.0)))
    await eventually(lambda: len(sink.received) == 1, "the first call")
    second = asyncio.create_task(runner(http_call(sink.url, timeout_seconds=10.0)))
    await asyncio.sleep(0.3)  # of the second that it may wait for its place
    sink.answer = never
    release.set()
    assert isinstance(await first, Succeeded)
    await eventually(lambda: len(sink.received) == 2, "the second call")
    monkeypatch.setattr(breaker, "monotonic", lambda: monotonic() + 9.75)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert isinstance(await runner(http_call(sink.url)), NotBegun)
    await runner.close()


async def test_secrets_in_the_path_of_a_template_are_not_shown_with_the_circuit(
    guarded: HttpTargetRunner, sink: Sink
) -> None:
    sink.answer = answer("503 Service Unavailable")
    target = HttpTarget(url=sink.url + "/{{ payload.key }}")
    call = call_of(target, payload={"key": "k3y-of-the-shop"}, mask=Mask(("k3y-of-the-shop",)), filled=True)
    last = [await guarded(call) for _ in range(LIMIT + 1)][-1]
    assert isinstance(last, NotBegun)
    assert "k3y" not in last.why
    assert "HTTP 503" in last.why


@asynccontextmanager
async def encrypted(folder: Path) -> AsyncIterator[str]:
    """A server whose authority nobody knows."""
    issued = Authority().issue()
    (folder / "pair.pem").write_text(issued.text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "pair.pem")
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


async def test_certificates_of_a_job_that_are_not_accepted_say_nothing_about_the_host(
    guarded: HttpTargetRunner, tmp_path: Path
) -> None:
    async with encrypted(tmp_path) as url:
        target = HttpTarget(url=url, tls=TargetTls(ca=Authority().certificate))
        assert attempts([await guarded(call_of(target)) for _ in range(2 * LIMIT)]) == 2 * LIMIT
        for _ in range(LIMIT):  # they do not count between two calls that do
            assert isinstance(await guarded(call_of(target)), Failed)
            assert attempts(await outcomes(guarded, url, 1)) == 1
        assert attempts(await outcomes(guarded, url, 1)) == 0


async def test_it_is_called_again_when_it_is_back(sink: Sink) -> None:
    now = 100.0
    breakers = HostBreakers(LIMIT, 30.0, Metrics(), clock=lambda: now)
    runner = HttpTargetRunner(FixedPolicy(PRIVATE_TOO), breakers=breakers)
    sink.answer = answer("503 Service Unavailable")
    assert attempts(await outcomes(runner, sink.url, 10)) == LIMIT
    now += 1.0
    sink.answer = answer()
    found = await outcomes(runner, sink.url, 5)
    assert all(isinstance(each, Succeeded) for each in found)
    assert not breakers.troubled
    await runner.close()


async def test_a_host_of_one_tenant_is_not_closed_to_another(guarded: HttpTargetRunner, sink: Sink) -> None:
    sink.answer = answer("503 Service Unavailable")
    assert attempts(await outcomes(guarded, sink.url)) == LIMIT
    assert isinstance(await guarded(http_call(sink.url, tenant=2)), Failed)
