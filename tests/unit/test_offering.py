"""The sender and the scan of offers, with a transport that only records: what is sent, when, and what is announced."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from detent.domain.offer import Offer, QueueOffer, RunOffer
from detent.runtime.wakeups import Wakeups
from detent.scheduler import offering
from detent.scheduler.offer_scan import OfferScan
from detent.scheduler.offering import OfferSender, SharedQueues
from detent.store.cursors import Cursor
from detent.store.queues import QueueRow
from detent.telemetry.metrics import Metrics
from detent.transports.link import TransportLink
from detent.transports.transport import TransportAwayError
from tests.support.waiting import until

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = 1 << 22 | 1
SECOND = timedelta(seconds=1)


class Recorder:
    """A transport that keeps what it is sent, or is away."""

    name = "recorder"

    def __init__(self, *, delays: bool = True) -> None:
        self.delays = delays
        self.away = False
        self.broken = False
        self.silent: asyncio.Event | None = None
        self.seconds = 0.0
        self.sending = 0
        self.sent: list[Offer] = []

    async def open(self) -> None:
        if self.away:
            raise TransportAwayError("It is away.")

    async def send(self, offers: Sequence[Offer]) -> None:
        await self.open()
        self.sending += 1
        try:
            await asyncio.sleep(self.seconds)
            if self.silent is not None:
                await self.silent.wait()
        finally:
            self.sending -= 1
        if self.broken:
            raise RuntimeError("a fault of the client library")
        self.sent += offers

    async def close(self) -> None: ...


class Clock:
    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> datetime:
        return self.at

    def seconds(self) -> float:
        return self.at.timestamp()


class Sending:
    def __init__(self, *, delays: bool = True, rows: Sequence[QueueRow] = ()) -> None:
        self.transport = Recorder(delays=delays)
        self.clock = Clock()
        self.wakeups = Wakeups()
        self.metrics = Metrics()
        book: Any = SimpleNamespace(version=1, rows={row.queue: row for row in rows})
        transport: Any = self.transport
        clock: Any = self.clock
        self.link = TransportLink(transport, self.metrics)
        self.sender = OfferSender(self.link, clock, book=book, wakeups=self.wakeups, metrics=self.metrics)
        self.announced = 0
        self.wakeups.runs_queued.subscribe(self._announce)

    def _announce(self) -> None:
        self.announced += 1


def cursor(job: int, queue: int = 1) -> Cursor:
    return Cursor(job, NOW, NOW, 1, False, queue, 1, 1, 0, 0, 5, 1, False)


def row(queue: int, tenant: int, name: str = "default", limits: tuple[int, ...] = ()) -> QueueRow:
    return QueueRow(queue, tenant, name, "", 1, limits, True)


def offer(job: int, due: datetime = NOW, **fields: Any) -> RunOffer:
    given = {"queue": 1, "lane": 0, "scheduled_at": due, "serial": 0, "token": TOKEN, "revision": 1, "priority": 5}
    return RunOffer(job=job, due=due, **{**given, **fields})


@pytest.fixture
async def sending() -> Sending:
    made = Sending()
    await made.sender.tick()
    return made


async def test_runs_that_were_fired_are_offered_and_not_announced(sending: Sending) -> None:
    sending.sender.fired([(cursor(1), 0), (cursor(2), 3)], TOKEN)
    await sending.sender.tick()
    assert [(one.job, one.lane, one.token, one.due) for one in sending.transport.sent if isinstance(one, RunOffer)] == [
        (1, 0, TOKEN, NOW),
        (2, 3, TOKEN, NOW),
    ]
    assert (sending.announced, sending.metrics.offers_sent) == (0, 2)


async def test_what_the_broker_does_not_acknowledge_is_announced(sending: Sending) -> None:
    sending.transport.away = True
    sending.sender.fired([(cursor(1), 0)], TOKEN)
    await sending.sender.tick()
    assert (sending.announced, sending.link.up, sending.metrics.transport_fallbacks) == (1, False, 1)
    sending.sender.fired([(cursor(2), 0)], TOKEN)
    assert sending.announced == 2


async def test_runs_are_announced_while_a_broker_takes_long_to_acknowledge(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offering, "SLOW_SECONDS", 0.01)
    sending.transport.silent = asyncio.Event()
    sending.sender.fired([(cursor(1), 0)], TOKEN)
    passing = asyncio.create_task(sending.sender.tick())
    await until(lambda: sending.announced)
    sending.transport.silent.set()
    await passing
    assert len(sending.transport.sent) == 1


async def test_while_programs_wait_in_the_api_runs_are_announced_too(sending: Sending) -> None:
    sending.wakeups.programs_pull(True)
    sending.sender.fired([(cursor(1), 0)], TOKEN)
    await sending.sender.tick()
    assert (sending.announced, len(sending.transport.sent)) == (1, 1)


async def test_runs_that_are_not_claimed_by_key_are_announced_and_their_queue_is_offered_once() -> None:
    sending = Sending(rows=[row(1, 1), row(2, 2), row(3, 1, "own")])
    await sending.sender.tick()
    sending.sender.fired([(cursor(1), 0), (cursor(2), 0), (cursor(3, 2), 0), (cursor(4, 3), 0)], TOKEN)
    await sending.sender.tick()
    named = [one.queue for one in sending.transport.sent if isinstance(one, QueueOffer)]
    assert [one.job for one in sending.transport.sent if isinstance(one, RunOffer)] == [4]
    assert sorted(named) == [1, 2]
    assert sending.announced == 1
    sending.sender.fired([(cursor(5), 0)], TOKEN)
    pause = await sending.sender.tick()
    assert len(sending.transport.sent) == 3  # the queue was named a moment ago
    assert 0 < pause <= 1


def test_shared_are_queues_with_limits_and_names_of_several_tenants() -> None:
    rows = [row(1, 1), row(2, 2), row(3, 1, "own"), row(4, 1, "limited", (7,))]
    book: Any = SimpleNamespace(version=1, rows={each.queue: each for each in rows})
    shared = SharedQueues(book)
    assert shared.numbers() == {1, 2, 4}
    book.rows = {3: rows[2]}
    assert shared.numbers() == {1, 2, 4}
    book.version = 2
    assert shared.numbers() == set()


async def test_an_offer_that_the_transport_cannot_delay_is_sent_when_it_is_due() -> None:
    sending = Sending(delays=False)
    await sending.sender.tick()
    sending.sender.add([offer(1, NOW + 2 * SECOND), offer(2), QueueOffer(7, 5, NOW + SECOND)])
    await sending.sender.tick()
    assert sending.transport.sent == [offer(2)]
    sending.clock.at += SECOND
    await sending.sender.tick()
    assert sending.transport.sent[1:] == [QueueOffer(7, 5, NOW + SECOND)]
    sending.clock.at += SECOND
    await sending.sender.tick()
    assert sending.transport.sent[2:] == [offer(1, NOW + 2 * SECOND)]


async def test_a_transport_that_delays_gets_an_offer_before_it_is_due(sending: Sending) -> None:
    sending.sender.add([offer(1, NOW + 30 * SECOND)])
    await sending.sender.tick()
    assert sending.transport.sent == [offer(1, NOW + 30 * SECOND)]


async def test_what_is_left_at_the_end_is_sent_or_announced(sending: Sending) -> None:
    sending.sender.fired([(cursor(1), 0)], TOKEN)
    await sending.sender.close()
    assert (len(sending.transport.sent), sending.announced) == (1, 0)


async def test_a_long_line_of_offers_is_announced_and_lets_queues_and_due_offers_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offering, "BATCH", 10)
    monkeypatch.setattr(offering, "SLOW_SECONDS", 0.02)
    sending = Sending(delays=False)
    await sending.sender.tick()
    sending.transport.seconds = 0.01
    sending.sender.add([offer(1000, NOW + SECOND), QueueOffer(7, 5, NOW)])
    sending.sender.fired([(cursor(number), 0) for number in range(100)], TOKEN)
    sending.clock.at += SECOND
    sending.sender.add([offer(1001, NOW + 2 * SECOND)])
    passing = asyncio.create_task(sending.sender.tick())
    await until(lambda: sending.transport.sent)
    sending.clock.at += SECOND
    await passing
    assert sending.announced > 0
    sent = [one.queue if isinstance(one, QueueOffer) else one.job for one in sending.transport.sent]
    assert len(sent) == 103
    assert sent.index(7) < 50
    assert 1001 in sent


async def test_a_broker_that_hangs_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offering, "FINISH_SECONDS", 0.05)
    sending = Sending()
    sending.sender.loop.start()
    await until(lambda: sending.link.up)
    sending.transport.silent = asyncio.Event()
    sending.sender.fired([(cursor(1), 0)], TOKEN)
    await until(lambda: sending.transport.sending)
    sending.sender.fired([(cursor(2), 0)], TOKEN)
    async with asyncio.timeout(5):
        await sending.sender.close()
    assert sending.announced
    assert not sending.transport.sending


# --- the scan ---


class Scanning(Sending):
    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[RunOffer] = []
        self.leads = True
        store: Any = SimpleNamespace(
            offers=SimpleNamespace(waiting=self._waiting), tasks=SimpleNamespace(heads=self._heads)
        )
        membership: Any = SimpleNamespace(trusted=True)
        clock: Any = self.clock
        self.scan = OfferScan(store, membership, clock, self.sender, leads=lambda: self.leads, wakeups=self.wakeups)

    async def _waiting(self, _ahead: timedelta, _of_each: int, _limit: int) -> list[RunOffer]:
        return self.waiting

    async def _heads(self, *_asked: object) -> list[Any]:
        return []

    async def pass_by(self, seconds: float = 0.0) -> list[Offer]:
        """What a scan, so many seconds later, has sent."""
        self.clock.at += seconds * SECOND
        self.scan._next = 0.0
        await self.sender.tick()
        self.transport.sent.clear()
        await self.scan.tick()
        await self.sender.tick()
        return list(self.transport.sent)


async def test_the_scan_offers_what_waits_once_and_again_after_half_a_minute() -> None:
    scanning = Scanning()
    scanning.waiting = [offer(1, NOW - 5 * SECOND)]
    assert await scanning.pass_by() == scanning.waiting
    assert await scanning.pass_by(29) == []
    assert await scanning.pass_by(2) == scanning.waiting


async def test_an_offer_that_is_not_due_yet_is_repeated_only_after_it_was_due_for_half_a_minute() -> None:
    scanning = Scanning()
    scanning.waiting = [offer(1, NOW + 50 * SECOND, token=TOKEN + 1)]
    assert await scanning.pass_by() == scanning.waiting
    assert await scanning.pass_by(79) == []
    assert await scanning.pass_by(2) == scanning.waiting


async def test_a_tick_that_was_just_fired_is_left_to_its_fire() -> None:
    scanning = Scanning()
    fired, retried = offer(1), offer(2, token=TOKEN + 1)
    scanning.waiting = [fired, retried]
    assert await scanning.pass_by(1) == [retried]
    assert await scanning.pass_by(2) == [fired]


async def test_a_run_that_waits_under_another_token_or_until_another_time_is_another_offer() -> None:
    scanning = Scanning()
    first = offer(1, NOW - 5 * SECOND, token=TOKEN + 1)
    scanning.waiting = [first]
    assert await scanning.pass_by() == [first]
    for change in ({"token": TOKEN + 2}, {"due": NOW - 4 * SECOND}):
        scanning.waiting = [msgspec.structs.replace(first, **change)]
        assert await scanning.pass_by(1) == scanning.waiting


async def test_after_the_broker_was_away_everything_is_offered_again() -> None:
    scanning = Scanning()
    scanning.waiting = [offer(1, NOW - 5 * SECOND)]
    assert len(await scanning.pass_by()) == 1
    scanning.link.away(TransportAwayError("It was away."))
    await scanning.scan.tick()
    scanning.link._failing.over()
    await scanning.link.ensure()
    assert len(await scanning.pass_by(1)) == 1


async def test_a_broker_that_comes_and_goes_gets_nothing_twice() -> None:
    scanning = Scanning()
    scanning.waiting = [offer(1, NOW - 5 * SECOND)]
    for _ in range(2):  # the second time soon after the first
        assert len(await scanning.pass_by()) == 1
        scanning.link.away(TransportAwayError("It was away."))
        await until(scanning.link.ensure)
    for _ in range(2):
        assert await scanning.pass_by() == []
        scanning.link.away(TransportAwayError("It was away."))
        await scanning.scan.tick()
        await until(scanning.link.ensure)


async def test_a_node_that_does_not_lead_partition_0_reads_nothing() -> None:
    scanning = Scanning()
    scanning.waiting = [offer(1, NOW - 5 * SECOND)]
    scanning.leads = False
    assert await scanning.pass_by() == []


async def test_a_deep_queue_is_named() -> None:
    scanning = Scanning()
    scanning.waiting = [offer(number, NOW - 5 * SECOND) for number in range(200)]
    sent = await scanning.pass_by()
    assert [one for one in sent if isinstance(one, QueueOffer)] == [QueueOffer(1, 5, NOW)]
    assert len(sent) == 201


async def test_a_fault_of_the_client_library_announces_what_was_to_be_sent(sending: Sending) -> None:
    sending.transport.broken = True
    sending.sender.fired([(cursor(1), 0)], TOKEN)
    with pytest.raises(RuntimeError):
        await sending.sender.tick()
    assert sending.announced == 1
