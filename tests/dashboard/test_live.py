"""One rendering for all who look at the same page, and what each of them is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from detent.dashboard.live import Hub, Stream, event, message
from detent.errors import Unavailable
from waiting import until


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


async def test_fifty_who_look_at_one_page_share_each_rendering(hub: Hub) -> None:
    page = Counter()
    streams = [hub.stream("jobs", page) for _ in range(50)]
    opened = [each.__enter__() for each in streams]
    await hub._loop.abort()  # type: ignore[union-attr]  # from here on, passes are the test's own
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


async def test_who_comes_later_gets_everything(hub: Hub) -> None:
    page = Counter()
    with hub.stream("jobs", page) as first:
        await first.next()
        with hub.stream("jobs", page) as second:
            assert await second.next() == message({"fixed": "same", "changing": "a"})


async def test_nobody_looks_and_nothing_is_rendered(hub: Hub) -> None:
    page = Counter()
    with hub.stream("jobs", page) as stream:
        await stream.next()
    before = page.renderings
    hub.wake()
    assert await hub.tick() > 60
    assert page.renderings == before


def test_a_browser_that_is_too_slow_gets_everything_later() -> None:
    stream = Stream()
    stream.fresh = False
    for number in range(10):
        stream.send(str(number).encode())
    assert stream.fresh


async def test_trouble_is_told_and_the_next_message_has_everything(hub: Hub) -> None:
    broken = True

    async def render() -> dict[str, str]:
        if broken:
            raise Unavailable("The database is away.")
        return {"fixed": "same"}

    with hub.stream("jobs", render) as stream:
        assert await stream.next() == event("trouble", "The database is away.")
        broken = False
        hub.wake()
        assert await stream.next() == message({"fixed": "same"})


async def test_the_end_of_the_server_ends_every_stream() -> None:
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
        await hub._loop.abort()  # type: ignore[union-attr]  # as above
        monkeypatch.setattr("detent.dashboard.live.monotonic", lambda: next(times))
        assert await hub.tick() == 10.0


def test_text_with_line_ends_stays_one_message() -> None:
    assert message({"a": "one\ntwo\rthree"}).count(b"\n\n") == 1
    assert b"\r" not in message({"a": "one\ntwo\rthree"})
