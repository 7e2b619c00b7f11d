"""What the parts of a node make of a broker that refuses, or whose client fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from detent.telemetry.metrics import Metrics
from detent.transports import link as links
from detent.transports.link import TransportLink
from detent.transports.redis import open_transport
from detent.transports.transport import TransportAwayError
from tests.support.waiting import until
from tests.topics.brokers import RedisBroker
from tests.topics.conftest import Start
from tests.transports.offers import offer_of


@pytest.fixture
def broker(start_broker: Start) -> RedisBroker:
    found = start_broker("redis")
    assert isinstance(found, RedisBroker)
    return found


@pytest.fixture
async def client(broker: RedisBroker) -> AsyncIterator[Any]:
    async with broker.client() as client:
        yield client
        await client.config_set("maxmemory", 0)


@pytest.fixture
async def link(broker: RedisBroker, cluster: str) -> AsyncIterator[TransportLink]:
    made = TransportLink(open_transport(broker.url, cluster), Metrics())
    yield made
    await made.close()


async def refused(link: TransportLink) -> None:
    """One offer, as soon as the link tries again."""
    await until(link.ensure)
    try:
        await link.transport.send([offer_of(1)])
    except TransportAwayError as error:
        link.away(error)


async def test_a_broker_that_answers_and_refuses_all_work_is_reported_twice_and_not_for_ever(
    link: TransportLink, client: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.config_set("maxmemory", 1)
    for _ in range(2):  # that it comes back once is no wonder
        await refused(link)
    opened = link.opened
    for _ in range(3):
        await refused(link)
        assert (link.up, link.steady, link._metrics.transport_up) == (False, False, False)
    assert (link.opened, link._metrics.transport_fallbacks, link._failing.count) == (opened, 2, 4)
    log = capsys.readouterr().out
    assert (log.count("the broker is away"), log.count("the broker is back")) == (2, 1)

    await client.config_set("maxmemory", 0)
    monkeypatch.setattr(links, "STEADY_SECONDS", 0.3)
    await refused(link)
    assert (link.up, link._metrics.transport_up) == (True, False)
    await until(lambda: _is_steady(link), what="the end of the trial")
    assert (link._metrics.transport_up, link.opened) == (True, opened + 1)
    assert capsys.readouterr().out.count("the broker is back") == 1


async def _is_steady(link: TransportLink) -> bool:
    await link.ensure()
    return link.steady


async def test_a_broker_that_was_away_is_back_at_once(
    link: TransportLink, client: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    await client.config_set("maxmemory", 1)
    await refused(link)
    await client.config_set("maxmemory", 0)
    await refused(link)
    assert link.steady
    assert capsys.readouterr().out.count("the broker is back") == 1


async def test_a_client_library_that_fails_in_its_own_way_is_a_broker_that_is_away() -> None:
    class Failing:
        name = "failing"

        async def open(self) -> None:
            raise LookupError("no such profile")

        async def close(self) -> None:
            raise LookupError("not even that")

    transport: Any = Failing()
    link = TransportLink(transport, Metrics())
    assert not await link.ensure()
    assert link._failing.error == "The client of failing failed: no such profile."
    await link.close()


async def test_a_cancelled_opening_stays_cancelled(link: TransportLink) -> None:
    opening = asyncio.create_task(link.ensure())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
