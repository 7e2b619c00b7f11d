"""The address is checked where the connection is made: names whose addresses change, literal addresses, and
mixtures."""

from __future__ import annotations

import socket

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from detent.domain.target_access import PRIVATE_TOO, PUBLIC_ONLY
from detent.targets import connectors
from detent.targets.connectors import IDLE_SECONDS, MANY_CONNECTORS, GuardedConnectors
from detent.targets.http import HttpTargetRunner
from detent.targets.policies import FixedPolicy
from tests.support.waiting import until
from tests.targets.target_helpers import Sink, failed, http_call, succeeded


class Names(AbstractResolver):
    """Answers each question with the next list of addresses, and the last one for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0) for address in answer
        ]

    async def close(self) -> None:
        pass


async def call_by_name(
    sink: Sink, names: Names, *, policy: FixedPolicy, times: int = 1, dns_cache_seconds: int = 0
) -> list[object]:
    runner = HttpTargetRunner(policy, resolver=names, dns_cache_seconds=dns_cache_seconds)
    try:
        return [await runner(http_call(f"http://rebind.example:{sink.port}/")) for _ in range(times)]
    finally:
        await runner.close()


def closing(sink: Sink) -> Sink:
    """Every call needs a new connection, and so a new answer of the resolver."""

    async def answer(_: object, writer: object) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")  # type: ignore[attr-defined]
        writer.close()  # type: ignore[attr-defined]

    sink.answer = answer
    return sink


async def test_a_name_that_turns_to_the_metadata_address_is_refused_at_that_call(sink: Sink) -> None:
    names = Names(["127.0.0.1"], ["169.254.169.254"], ["127.0.0.1"], ["fe80::1"])
    outcomes = await call_by_name(closing(sink), names, policy=FixedPolicy(PRIVATE_TOO), times=4)
    succeeded(outcomes[0])  # type: ignore[arg-type]
    succeeded(outcomes[2])  # type: ignore[arg-type]
    for position, kind in ((1, "cloud metadata"), (3, "link-local")):
        refused = failed(outcomes[position])  # type: ignore[arg-type]
        assert kind in refused.error
        assert not refused.retryable
    assert len(sink.received) == 2
    assert names.asked == 4


async def test_only_the_good_addresses_of_a_name_are_called(sink: Sink) -> None:
    for answer in (["169.254.169.254", "127.0.0.1"], ["127.0.0.1", "fd00:ec2::254", "0.0.0.0"]):
        (outcome,) = await call_by_name(closing(sink), Names(answer), policy=FixedPolicy(PRIVATE_TOO))
        succeeded(outcome)  # type: ignore[arg-type]


async def test_a_name_whose_good_address_is_down_is_worth_a_retry() -> None:
    async with Sink() as closed:
        pass
    names = Names(["127.0.0.1", "169.254.169.254"])
    (outcome,) = await call_by_name(closed, names, policy=FixedPolicy(PRIVATE_TOO))
    refused = failed(outcome)  # type: ignore[arg-type]
    assert refused.retryable
    assert "connection refused" in refused.error


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["::1", "10.0.0.1"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["not-an-address"],
        ["127.1"],
    ],
)
async def test_a_name_with_only_refused_addresses_is_not_called(sink: Sink, addresses: list[str]) -> None:
    (outcome,) = await call_by_name(sink, Names(addresses), policy=FixedPolicy(PUBLIC_ONLY))
    refused = failed(outcome)  # type: ignore[arg-type]
    assert not refused.retryable
    assert refused.error.startswith(f"http://rebind.example:{sink.port}/ was not called: ")
    assert sink.connections == 0


async def test_a_cached_dns_answer_is_checked_again(sink: Sink) -> None:
    policy = FixedPolicy(PRIVATE_TOO)
    names = Names(["127.0.0.1"])
    runner = HttpTargetRunner(policy, resolver=names, dns_cache_seconds=600)
    call = http_call(f"http://rebind.example:{closing(sink).port}/")
    succeeded(await runner(call))
    policy.rules = PUBLIC_ONLY
    assert not failed(await runner(call)).retryable
    await runner.close()
    assert (names.asked, sink.connections) == (2, 1)  # other rules have answers of their own


async def test_a_name_without_addresses_is_worth_a_retry(sink: Sink) -> None:
    (outcome,) = await call_by_name(sink, Names([]), policy=FixedPolicy(PUBLIC_ONLY))
    nothing = failed(outcome)  # type: ignore[arg-type]
    assert nothing.retryable
    assert "could not be resolved: the name has no address." in nothing.error


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "localhost", "[64:ff9b::7f00:1]"])
async def test_a_literal_address_is_checked_like_a_name(strict: HttpTargetRunner, sink: Sink, host: str) -> None:
    refused = failed(await strict(http_call(f"http://{host}:{sink.port}/")))
    assert "loopback address" in refused.error
    assert "detent tenant allow default " in refused.error
    assert not refused.retryable
    assert sink.connections == 0


@pytest.mark.parametrize("host", ["169.254.169.254", "[fd00:ec2::254]", "[::ffff:a9fe:a9fe]", "169.254.1.1", "0.0.0.0"])
async def test_metadata_and_link_local_literals_are_refused_even_when_private_is_allowed(
    runner: HttpTargetRunner, host: str
) -> None:
    refused = failed(await runner(http_call(f"http://{host}/")))
    assert not refused.retryable


async def test_connectors_of_tenants_that_call_nothing_are_closed_and_those_with_calls_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(connectors, "monotonic", lambda: now[0])
    made = GuardedConnectors(connections=0)
    with made.connector(1, PUBLIC_ONLY, "a.example") as idle:
        pass
    with made.connector(2, PUBLIC_ONLY, "a.example") as busy:
        now[0] = IDLE_SECONDS
        with made.connector(3, PUBLIC_ONLY, "a.example"):
            await until(lambda: idle.closed)
        assert not busy.closed
    for tenant in range(4, MANY_CONNECTORS + 3):
        with made.connector(tenant, PUBLIC_ONLY, "a.example"):
            pass
    await until(lambda: busy.closed, what="the connector to make way for others")
    await made.close()
