"""One rendering for all visitors of a page, and the messages that each receives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from detent.dashboard.heartbeat import DatabaseHeartbeat, DatabaseSilent, while_answering, within
from detent.dashboard.live import Hub, Stream, event, message
from detent.errors import Unavailable
from tests.support.waiting import until


class Counter:
    """A page with two parts, one of which changes."""

    def __init__(self) -> None:
        self.renderings = 0
        self.changing = "a"

    async def __call__(self) -> dict[str, str]:
        self.renderings += 1
        return {"fixed": "same", "changing": self.changing}


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    made = Hub()
    yield made
    await made.close()


async def test_fifty_visitors_of_one_page_share_each_rendering(hub: Hub) -> None:
    page = Counter()
    streams = [hub.stream("jobs", page) for _ in range(50)]
    opened = [each.__enter__() for each in streams]
    await hub._loop.abort()  # from here on, passes are the test's own
    page.renderings = 0
    for stream in opened:
        stream.fresh = True
    await hub.tick()
    assert page.renderings == 1
    for stream in opened:
        assert b'hx-target="#fixed"' in (await stream.next() or b"")
    for each in streams:
        each.__exit__(None, None, None)
    assert hub.streams == 0


async def test_only_what_changed_is_sent_again(hub: Hub) -> None:
    page = Counter()
    with hub.stream("jobs", page) as stream:
        assert await stream.next() == message({"fixed": "same", "changing": "a"})
        page.changing = "b"
        hub.wake()
        assert await stream.next() == message({"changing": "b"})


async def test_a_later_visitor_gets_all_parts(hub: Hub) -> None:
    page = Counter()
    with hub.stream("jobs", page) as first:
        await first.next()
        with hub.stream("jobs", page) as second:
            assert await second.next() == message({"fixed": "same", "changing": "a"})


async def test_without_visitors_nothing_is_rendered(hub: Hub) -> None:
    page = Counter()
    with hub.stream("jobs", page) as stream:
        await stream.next()
    before = page.renderings
    hub.wake()
    assert await hub.tick() > 60
    assert page.renderings == before


def test_a_slow_browser_gets_all_parts_later() -> None:
    stream = Stream()
    stream.fresh = False
    for number in range(10):
        stream.send(str(number).encode())
    assert stream.fresh


async def test_an_error_is_sent_as_a_sentence_and_the_next_message_has_all_parts(hub: Hub) -> None:
    broken = True

    async def render() -> dict[str, str]:
        if broken:
            raise Unavailable("The database at postgresql://secret:5432/ cannot be reached (OSError).")
        return {"fixed": "same"}

    with hub.stream("jobs", render) as stream:
        assert await stream.next() == event("trouble", "Database not answering.")
        broken = False
        hub.wake()
        assert await stream.next() == message({"fixed": "same"})


async def test_closing_the_hub_ends_every_stream() -> None:
    hub = Hub()
    with hub.stream("jobs", Counter()) as stream:
        await stream.next()
        await hub.close()
        assert await stream.next() is None
    with pytest.raises(Unavailable), hub.stream("jobs", Counter()):
        pass


async def test_a_pass_that_takes_long_is_followed_by_a_longer_pause(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 2.0])
    with hub.stream("jobs", Counter()) as stream:
        await stream.next()
        await until(lambda: hub._loop is not None)
        await hub._loop.abort()  # as above
        monkeypatch.setattr("detent.dashboard.live.monotonic", lambda: next(times))
        assert await hub.tick() == 10.0


class Asked:
    """A database whose answers the test controls."""

    def __init__(self) -> None:
        self.questions = 0
        self.fails = False
        self.at = datetime(2026, 11, 16, 1, 35, 10, tzinfo=UTC)

    async def __call__(self, seconds: float) -> datetime:
        self.questions += 1
        if self.fails:
            raise Unavailable("It hangs.")
        return self.at


async def test_a_heartbeat_is_sent_only_for_an_answer_of_the_database() -> None:
    asked, times = Asked(), iter(range(100))
    hub = Hub(DatabaseHeartbeat(asked, clock=lambda: float(next(times))))
    page = Counter()
    with hub.stream("jobs", page) as stream:
        await until(lambda: page.renderings)
        await hub._loop.abort()  # as above
        await hub._beats.abort()
        while not stream._waiting.empty():
            await stream.next()
        await hub.beat()
        assert await stream.next() == event("beat", "2026-11-16T01:35:10Z")
        asked.fails = True
        before = page.renderings
        await hub.beat()
        await hub.tick()
        assert stream._waiting.empty()
        assert page.renderings == before  # no statement is added to those that hang
        asked.fails = False
        await hub.beat()
        assert await stream.next() == event("beat", "2026-11-16T01:35:10Z")
        await hub.tick()
        assert page.renderings == before + 1
    await hub.close()


async def test_concurrent_heartbeat_requests_share_one_statement() -> None:
    asked = Asked()
    heartbeat = DatabaseHeartbeat(asked, clock=lambda: 0.0)
    assert await asyncio.gather(*(heartbeat.answer() for _ in range(50))) == [asked.at] * 50
    assert asked.questions == 1


async def test_a_page_waits_for_a_hanging_statement_only_until_its_timeout() -> None:
    """Also if the statement is slow to cancel."""
    cancelled, released = asyncio.Event(), asyncio.Event()

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
            await released.wait()

    with pytest.raises(DatabaseSilent):
        await within(0.01, hangs())
    await cancelled.wait()
    released.set()


async def test_a_change_may_take_long_while_the_database_answers_heartbeats() -> None:
    asked, times, done = Asked(), iter(range(100)), asyncio.Event()
    heartbeat = DatabaseHeartbeat(asked, clock=lambda: float(next(times)))

    async def slow() -> str:
        await done.wait()
        return "done"

    change = asyncio.ensure_future(while_answering(heartbeat, 0.01, slow()))
    await until(lambda: asked.questions > 3)
    assert not change.done()
    done.set()
    assert await change == "done"
    asked.fails = True
    done.clear()
    with pytest.raises(DatabaseSilent):
        await while_answering(heartbeat, 0.01, slow())


def test_text_with_line_ends_stays_one_message() -> None:
    assert message({"a": "one\ntwo\rthree"}).count(b"\n\n") == 1
    assert b"\r" not in message({"a": "one\ntwo\rthree"})
