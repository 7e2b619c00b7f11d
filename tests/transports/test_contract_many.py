"""What every transport promises to many workers at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

import pytest
import uvloop

from detent.transports.transport import Transport, TransportAwayError
from tests.support.waiting import until
from tests.transports.carriers import Carrier
from tests.transports.conftest import Connect
from tests.transports.offers import NOW, QUEUE, jobs_of, offer_of, opened_again, take_all

FEW, MANY = 300, 20_000
COUNTS = [pytest.param(FEW, id="300"), pytest.param(MANY, id="20,000", marks=pytest.mark.long)]
SECONDS = {FEW: 100.0, MANY: 600.0}


async def test_many_workers_share_the_offers_and_none_is_with_two(carrier: Carrier, connect: Connect) -> None:
    workers = [await connect() for _ in range(4)]
    count = FEW // carrier.slow
    await workers[0].send([offer_of(number) for number in range(count)])
    found: list[int] = []

    async def work(transport: Transport) -> None:
        while len(found) < count:
            found.extend(jobs_of(await transport.take([QUEUE], 7, NOW, 0.2)))

    async with asyncio.timeout(SECONDS[FEW]):
        await asyncio.gather(*map(work, workers))
    assert set(found) == set(range(count))
    if not carrier.may_double:
        assert len(found) == count


@pytest.mark.parametrize("count", COUNTS)
async def test_offers_are_sent_and_taken_at_the_same_time(carrier: Carrier, connect: Connect, count: int) -> None:
    seconds = SECONDS[count]
    count //= carrier.slow
    senders = [await connect() for _ in range(2)]
    workers = [await connect() for _ in range(3)]
    found: Counter[int] = Counter()

    async def send(transport: Transport, parity: int) -> None:
        for first in range(parity, count, 100):
            await transport.send([offer_of(number) for number in range(first, min(first + 100, count), 2)])

    async def work(transport: Transport) -> None:
        while len(found) < count:
            taken = await transport.take([QUEUE], 50, NOW, 0.2)
            found.update(jobs_of(taken))
            await transport.finish(taken)

    async with asyncio.timeout(seconds):
        await asyncio.gather(send(senders[0], 0), send(senders[1], 1), *map(work, workers))
    assert set(found) == set(range(count))
    if not carrier.may_double:
        assert found.total() == count


@pytest.mark.parametrize("count", COUNTS)
async def test_everything_arrives_though_the_broker_is_killed_and_emptied(
    carrier: Carrier, connect: Connect, cluster: str, count: int
) -> None:
    """The sender offers again what nobody has taken, as the scan of a scheduler does."""
    # A broker that keeps all copies would get more of them than workers can take.
    pause = 1.0 + carrier.forgets_seconds if carrier.deduplicates else max(1.0, count / 2000)
    seconds = SECONDS[count]
    count //= carrier.slow
    sender, *workers = [await connect() for _ in range(4)]
    found: set[int] = set()

    async def send() -> None:
        while waiting := [number for number in range(count) if number not in found]:
            try:
                await sender.send([offer_of(number) for number in waiting])
                await asyncio.sleep(pause)
            except TransportAwayError:
                await opened_again(sender)

    async def work(transport: Transport) -> None:
        while len(found) < count:
            try:
                taken = await transport.take([QUEUE], 20, NOW, 0.2)
                found.update(jobs_of(taken))
                await transport.finish(taken)
            except TransportAwayError:
                await opened_again(transport)

    async def disturb() -> None:
        await until(lambda: len(found) > count // 5, seconds, "some offers to be taken")
        with suppress(TransportAwayError):
            await carrier.empty(cluster)
        await until(lambda: len(found) > count // 2, seconds, "half of the offers to be taken")
        if carrier.broker.can_restart:
            carrier.broker.kill()
            await asyncio.to_thread(carrier.broker.start)

    async with asyncio.timeout(seconds):
        await asyncio.gather(send(), disturb(), *map(work, workers))
    assert found == set(range(count))


def test_offers_arrive_on_the_loop_of_nodes(carrier: Carrier, cluster: str) -> None:
    """Nodes run on uvloop, whose transports are not those of asyncio."""

    async def exchange() -> list[int]:
        transport = carrier.transport(cluster)
        await transport.open()
        await transport.send([offer_of(number) for number in range(20)])
        taken = await take_all(transport, 20)
        await transport.finish(taken)
        await transport.close()
        return jobs_of(taken)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert sorted(runner.run(exchange())) == list(range(20))
