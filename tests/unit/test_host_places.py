"""Places for calls to a host: never more than the limit, the first first, and turns for those that return."""

from __future__ import annotations

import asyncio

from detent.targets.host_places import LONGEST_RETURN, MOST_WAITERS, SHORTEST_RETURN, HostLimit, HostPlaces

HOST = (1, "a.example", 443)


class Watch:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_a_call_enters_below_the_limit_and_the_next_one_when_it_leaves() -> None:
    places, limits = HostPlaces(), [HostLimit(HOST, 1)]
    assert await places.enter(limits, 1) == 0
    waiting = asyncio.create_task(places.enter(limits, 1))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await places.enter([HostLimit((1, "b.example", 443), 1)], 1) == 0
    places.leave(limits, 0.1)
    assert await waiting == 0
    places.leave(limits, 0.1)
    assert await places.enter(limits, 0) == 0


async def test_few_wait_and_the_others_return_to_turns_of_their_own() -> None:
    watch = Watch()
    places, limits = HostPlaces(watch), [HostLimit(HOST, 2)]
    assert [await places.enter(limits, 1) for _ in range(2)] == [0, 0]
    waiting = [asyncio.create_task(places.enter(limits, 10)) for _ in range(2)]
    await asyncio.sleep(0)
    returned = [round(await places.enter(limits, 10), 3) for _ in range(4)]
    assert returned == [0.2, 0.2, 0.3, 0.4]  # calls are expected to take 0.2 s, and two of them run
    watch.now += 0.2
    assert round(await places.enter(limits, 10), 3) == 0.3
    watch.now += 100
    assert await places.enter(limits, 10) == SHORTEST_RETURN
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_many_that_return_are_spread_over_a_bounded_time() -> None:
    places, limits = HostPlaces(Watch()), [HostLimit(HOST, 1)]
    assert await places.enter(limits, 1) == 0
    holder = asyncio.create_task(places.enter(limits, 10))
    await asyncio.sleep(0)
    waits = [await places.enter(limits, 10) for _ in range(1000)]
    assert max(waits) <= LONGEST_RETURN
    assert len(set(waits[400:])) > 500
    assert min(waits[400:]) >= LONGEST_RETURN / 2
    holder.cancel()


async def test_a_call_that_waits_too_long_or_is_cancelled_takes_no_place() -> None:
    places, limits = HostPlaces(), [HostLimit(HOST, 1)]
    assert await places.enter(limits, 1) == 0
    assert await places.enter(limits, 0.01) >= SHORTEST_RETURN
    cancelled = asyncio.create_task(places.enter(limits, 10))
    late = asyncio.create_task(places.enter(limits, 10))
    await asyncio.sleep(0)
    late.cancel()
    places.leave(limits, 0.1)
    cancelled.cancel()  # its turn has come, and it has not seen that yet
    await asyncio.gather(cancelled, late, return_exceptions=True)
    assert cancelled.cancelled()
    assert await places.enter(limits, 0) == 0


async def test_turns_follow_how_long_calls_take_and_not_how_soon_one_was_refused() -> None:
    places, limits = HostPlaces(Watch()), [HostLimit(HOST, 1)]
    for seconds in [4.0] * 40 + [None] * 40:
        assert await places.enter(limits, 1) == 0
        places.leave(limits, seconds)
    assert await places.enter(limits, 1) == 0
    assert 3.9 < await places.enter(limits, 0) < 4.1


async def test_a_call_needs_a_place_of_every_limit_and_keeps_none_if_one_is_full() -> None:
    places = HostPlaces()
    theirs, ours = HostLimit((2, *HOST[1:]), 5), HostLimit(HOST, 5)
    everyone = HostLimit((None, *HOST[1:]), 1)
    assert await places.enter([theirs, everyone], 1) == 0
    assert await places.enter([ours, everyone], 0.01) > 0
    places.leave([theirs, everyone], 0.1)
    for _ in range(5):
        assert await places.enter([ours], 0) == 0
    assert await places.enter([ours], 0) > 0


async def test_a_call_that_is_cancelled_while_it_waits_for_one_place_gives_back_the_others() -> None:
    places = HostPlaces()
    ours, everyone = HostLimit(HOST, 1), HostLimit((None, *HOST[1:]), 1)
    assert await places.enter([everyone], 1) == 0
    waiting = asyncio.create_task(places.enter([ours, everyone], 10))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()
    assert await places.enter([ours], 0) == 0


async def test_jobs_with_other_limits_for_the_same_host_count_together() -> None:
    places = HostPlaces()
    small, large = [HostLimit(HOST, 1)], [HostLimit(HOST, 2)]
    assert await places.enter(large, 1) == 0
    assert await places.enter(small, 0.01) > 0
    waiting = asyncio.create_task(places.enter(small, 10))
    await asyncio.sleep(0)
    assert await places.enter(large, 1) == 0  # one with a smaller limit does not hold it up
    places.leave(large, 0.1)
    await asyncio.sleep(0)
    assert not waiting.done()
    places.leave(large, 0.1)
    assert await waiting == 0


async def test_at_random_there_are_never_more_inside_than_the_limit() -> None:
    places, limits = HostPlaces(), [HostLimit(HOST, 3)]
    inside, most, done = 0, 0, 0

    async def one() -> None:
        nonlocal inside, most, done
        while await places.enter(limits, 0.05):
            await asyncio.sleep(0)
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.001)
        inside -= 1
        done += 1
        places.leave(limits, 0.001)

    await asyncio.gather(*(one() for _ in range(100)))
    assert (most, done) == (3, 100)
    assert MOST_WAITERS >= 1
