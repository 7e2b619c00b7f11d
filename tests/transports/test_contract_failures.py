"""What every transport promises when the broker is away, refuses, or is killed in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest

from detent.transports.transport import Transport, TransportAwayError
from tests.support.brokers import PASSWORD, USER
from tests.support.ports import free_port
from tests.support.relay import relay_to
from tests.topics.conftest import Start
from tests.transports.carriers import CARRIERS, Carrier
from tests.transports.conftest import Connect
from tests.transports.offers import NOW, PATIENCE, QUEUE, jobs_of, offer_of, opened_again, take_all, take_nothing


async def _refused(call: Awaitable[object], carrier: Carrier) -> str:
    """The sentence with which the call fails in bounded time."""
    async with asyncio.timeout(carrier.away_seconds):
        with pytest.raises(TransportAwayError) as refused:
            await call
    sentence = str(refused.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


@asynccontextmanager
async def _silent_server() -> AsyncIterator[int]:
    """It accepts connections and says nothing."""
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.close()


async def test_a_broker_that_is_not_there_is_named(carrier: Carrier, cluster: str) -> None:
    port = free_port()
    transport = carrier.transport(cluster, carrier.address(port=port))
    sentence = await _refused(transport.open(), carrier)
    assert str(port) in sentence
    await _refused(transport.send([offer_of(1)]), carrier)
    await _refused(transport.take([QUEUE], 1, NOW, 0.1), carrier)
    await transport.close()


@pytest.mark.long
async def test_a_broker_that_does_not_answer_is_not_waited_for(carrier: Carrier, cluster: str) -> None:
    async with _silent_server() as port:
        transport = carrier.transport(cluster, carrier.address(port=port))
        await _refused(transport.open(), carrier)
        async with asyncio.timeout(carrier.away_seconds):
            await transport.close()


async def test_a_broker_that_is_killed_is_used_again_when_it_is_back(
    carrier: Carrier, transport: Transport, connect: Connect
) -> None:
    if not carrier.broker.can_restart:
        pytest.skip(f"{carrier.broker.name} runs in the process of the test")
    other = await connect()
    await transport.send([offer_of(1), offer_of(2)])
    held = await take_all(transport, 1)
    waiting = asyncio.create_task(other.take([9], 1, NOW, 60.0))
    await take_nothing(transport, [8])
    carrier.broker.kill()
    await _refused(waiting, carrier)
    await _refused(transport.send([offer_of(3)]), carrier)
    await _refused(transport.take([QUEUE], 5, NOW, 1.0), carrier)
    await _refused(transport.finish(held), carrier)
    await _refused(transport.depth([QUEUE]), carrier)
    await asyncio.to_thread(carrier.broker.start)
    await opened_again(transport)
    await opened_again(other)
    await asyncio.sleep(carrier.forgets_seconds)
    await transport.send([offer_of(number) for number in range(10, 20)])
    found: set[int] = set()
    async with asyncio.timeout(PATIENCE):
        while not found >= set(range(10, 20)):
            taken = await other.take([QUEUE], 20, NOW, 1.0)
            found |= set(jobs_of(taken))
            await other.finish(taken)
    assert found <= {1, 2, 3, *range(10, 20)}


@pytest.mark.long
async def test_a_broker_that_stops_in_the_middle_is_not_waited_for(carrier: Carrier, cluster: str) -> None:
    """As a machine that hangs: its connections stay open and nothing is answered."""
    if not carrier.relayed:
        pytest.skip(f"{carrier.broker.name} tells its clients where to connect")
    async with relay_to(carrier.broker.port) as relay:
        transport = carrier.transport(cluster, carrier.address(port=relay.port))
        try:
            await transport.open()
            await transport.send([offer_of(1)])
            relay.answers = False
            await _refused(transport.send([offer_of(2)]), carrier)
            await _refused(transport.take([QUEUE], 1, NOW, 0.1), carrier)
        finally:
            async with asyncio.timeout(carrier.away_seconds):
                await transport.close()


async def test_wrong_credentials_fail_with_the_words_of_the_broker(
    start_broker: Start, carrier_name: str, cluster: str
) -> None:
    kind = CARRIERS[carrier_name]
    if not kind.can_secure:
        pytest.skip(f"{carrier_name} asks for no credentials here")
    carrier = kind(start_broker(kind.broker_name, secured=True))
    right = carrier.transport(cluster)
    await right.open()
    await right.send([offer_of(1)])
    assert jobs_of(await take_all(right, 1)) == [1]
    await right.close()
    for user, password in ((USER, "wrong-password"), ("nobody", PASSWORD)):
        wrong = carrier.transport(cluster, carrier.address(user, password))
        sentence = await _refused(wrong.open(), carrier)
        assert password not in sentence
        await _refused(wrong.send([offer_of(2)]), carrier)
        await wrong.close()


async def test_tls_with_an_authority_that_the_operator_trusts(
    start_broker: Start, carrier_name: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = CARRIERS[carrier_name]
    if not kind.can_encrypt:
        pytest.skip(f"the server of {carrier_name} has no TLS")
    carrier = kind(start_broker(kind.broker_name, encrypted=True))
    strange = carrier.transport(cluster)
    await _refused(strange.open(), carrier)
    await strange.close()
    monkeypatch.setenv("SSL_CERT_FILE", str(carrier.broker.folder / "server.ca"))
    trusted = carrier.transport(cluster)
    await trusted.open()
    await trusted.send([offer_of(1)])
    assert jobs_of(await take_all(trusted, 1)) == [1]
    await trusted.close()


async def test_a_take_that_is_cancelled_loses_nothing(carrier: Carrier, connect: Connect) -> None:
    transport, other = (
        await connect(hold_seconds=carrier.hold_seconds),
        await connect(hold_seconds=carrier.hold_seconds),
    )
    for number in range(10):
        taking = asyncio.create_task(other.take([QUEUE], 5, NOW, 60.0))
        await transport.send([offer_of(number)])
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
    found: set[int] = set()
    async with asyncio.timeout(PATIENCE):
        while len(found) < 10:
            taken = await transport.take([QUEUE], 20, NOW, 1.0)
            found |= set(jobs_of(taken))
            await transport.finish(taken)
