"""Loops that nothing but `stop` ends, and questions that are gathered into batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from functools import partial

import pytest

from detent.errors import Unavailable
from detent.runtime.service import FIRST_PAUSE, LONGEST_PAUSE, Batcher, Loop, do_each

FOR_EVER = 3600.0


class Ticks:
    """A tick that is counted, and that can be held up."""

    def __init__(self, pause: float = FOR_EVER) -> None:
        self.pause = pause
        self.count = 0
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.failure: Exception | None = None

    async def __call__(self) -> float:
        self.count += 1
        self.begun.set()
        await self.go_on.wait()
        if self.failure is not None:
            raise self.failure
        return self.pause

    async def next(self) -> None:
        self.begun.clear()
        async with asyncio.timeout(10):
            await self.begun.wait()


async def started(ticks: Ticks) -> Loop:
    loop = Loop("test", ticks)
    loop.start()
    await ticks.next()
    return loop


async def test_a_loop_ticks_again_after_the_pause_it_asked_for() -> None:
    ticks = Ticks(pause=0.001)
    loop = await started(ticks)
    for _ in range(3):
        await ticks.next()
    await loop.stop()
    assert ticks.count >= 4


async def test_a_wake_up_ends_the_wait() -> None:
    ticks = Ticks()
    loop = await started(ticks)
    for _ in range(3):
        loop.wake()
        await ticks.next()
    await loop.stop()
    assert ticks.count == 4


async def test_a_wake_up_during_the_tick_is_kept_and_several_are_one() -> None:
    ticks = Ticks()
    ticks.go_on.clear()
    loop = await started(ticks)
    for _ in range(5):
        loop.wake()
    ticks.go_on.set()
    await ticks.next()
    await asyncio.sleep(0)
    await loop.stop()
    assert ticks.count == 2


async def test_a_wake_up_before_the_start_costs_nothing() -> None:
    ticks = Ticks()
    loop = Loop("test", ticks)
    loop.wake()
    loop.start()
    await ticks.next()
    await loop.stop()
    assert ticks.count == 1


async def test_no_pause_gives_others_a_turn() -> None:
    ticks = Ticks(pause=0)
    loop = await started(ticks)
    for _ in range(3):
        await ticks.next()
    await loop.stop()
    assert ticks.count >= 4


@pytest.mark.parametrize("failure", [Unavailable("The database is closed."), RuntimeError("a bug")])
async def test_a_tick_that_fails_is_tried_again(failure: Exception) -> None:
    ticks = Ticks()
    ticks.failure = failure
    loop = await started(ticks)
    await ticks.next()
    ticks.failure = None
    loop.wake()
    await ticks.next()
    await loop.stop()
    assert ticks.count == 3


async def test_the_pause_after_failures_grows_to_its_longest_and_starts_anew_after_a_success() -> None:
    ticks = Ticks(pause=7)
    ticks.failure = RuntimeError("a bug")
    loop = Loop("test", ticks)
    for failures in range(1, 15):
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2**failures)
        assert longest / 2 <= await loop._pass() <= longest
    ticks.failure = None
    assert await loop._pass() == 7
    ticks.failure = RuntimeError("another bug")
    assert await loop._pass() <= FIRST_PAUSE * 2


async def test_a_stop_lets_the_tick_in_progress_end() -> None:
    ticks = Ticks()
    ticks.go_on.clear()
    loop = await started(ticks)
    stopping = asyncio.create_task(loop.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    ticks.go_on.set()
    async with asyncio.timeout(10):
        await stopping
    assert ticks.count == 1


async def test_a_stop_ends_the_wait() -> None:
    loop = await started(Ticks())
    async with asyncio.timeout(10):
        await loop.stop()


async def test_an_abort_ends_the_tick_itself() -> None:
    ticks = Ticks()
    ticks.go_on.clear()
    loop = await started(ticks)
    async with asyncio.timeout(10):
        await loop.abort()
    assert ticks.count == 1


async def test_a_loop_that_never_started_can_be_stopped_and_aborted() -> None:
    loop = Loop("test", Ticks())
    await loop.stop()
    await loop.abort()


# --- batches ---


class Answers:
    """A statement that answers with squares, and remembers what it was asked."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.failure: Exception | None = None

    async def __call__(self, items: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(items))
        await self.go_on.wait()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return [item * item for item in items]


async def test_questions_asked_together_are_one_statement_and_each_gets_its_own_answer() -> None:
    answers = Answers()
    ask = Batcher(answers)
    assert await asyncio.gather(*(ask(number) for number in range(5))) == [0, 1, 4, 9, 16]
    assert answers.batches == [[0, 1, 2, 3, 4]]


async def test_while_one_batch_is_under_way_the_next_one_forms() -> None:
    answers = Answers()
    answers.go_on.clear()
    ask = Batcher(answers)
    first = asyncio.create_task(ask(1))
    while not answers.batches:
        await asyncio.sleep(0)
    later = [asyncio.create_task(ask(number)) for number in (2, 3)]
    await asyncio.sleep(0)
    answers.go_on.set()
    assert await asyncio.gather(first, *later) == [1, 4, 9]
    assert answers.batches == [[1], [2, 3]]


async def test_a_batch_is_not_larger_than_its_limit() -> None:
    answers = Answers()
    ask = Batcher(answers, limit=2)
    assert await asyncio.gather(*(ask(number) for number in range(5))) == [0, 1, 4, 9, 16]
    assert answers.batches == [[0, 1], [2, 3], [4]]


async def test_a_failure_reaches_every_caller_of_its_batch_and_none_of_the_next() -> None:
    answers = Answers()
    answers.failure = Unavailable("gone")
    ask = Batcher(answers, limit=2)
    results = await asyncio.gather(*(ask(number) for number in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [Unavailable, Unavailable, int]
    assert await ask(9) == 81


async def test_a_caller_that_stops_waiting_does_not_disturb_the_others() -> None:
    answers = Answers()
    answers.go_on.clear()
    ask = Batcher(answers)
    asked = [asyncio.create_task(ask(number)) for number in (1, 2, 3)]
    while not answers.batches:
        await asyncio.sleep(0)
    asked[1].cancel()
    await asyncio.sleep(0)
    answers.go_on.set()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert (results[0], results[2]) == (1, 9)
    assert isinstance(results[1], asyncio.CancelledError)


async def test_a_batcher_can_be_asked_again_after_it_had_nothing_to_do() -> None:
    answers = Answers()
    ask = Batcher(answers)
    assert [await ask(2), await ask(3)] == [4, 9]
    assert answers.batches == [[2], [3]]


async def test_a_pass_that_is_cancelled_from_inside_does_not_end_its_loop() -> None:
    passes = 0
    again = asyncio.Event()

    async def tick() -> float:
        nonlocal passes
        passes += 1
        if passes == 1:
            raise asyncio.CancelledError
        again.set()
        return 60.0

    loop = Loop("tested", tick)
    loop.start()
    await asyncio.wait_for(again.wait(), 10)
    await loop.stop()
    assert passes == 2


async def test_a_part_of_a_pass_that_fails_keeps_no_other_from_being_done() -> None:
    done: list[int] = []

    async def part(number: int) -> None:
        done.append(number)
        if number < 2:
            raise ValueError(number)

    with pytest.raises(ValueError, match="0"):
        await do_each([partial(part, number) for number in range(3)])
    assert done == [0, 1, 2]


async def test_who_asks_a_batcher_gets_an_error_where_there_are_too_few_answers() -> None:
    async def forgetful(items: Sequence[int]) -> Sequence[int]:
        return list(items)[:-1]

    batcher: Batcher[int, int] = Batcher(forgetful)
    answers = await asyncio.wait_for(asyncio.gather(batcher(1), batcher(2), return_exceptions=True), 10)
    assert answers[0] == 1
    assert isinstance(answers[1], ValueError)


async def test_a_batch_and_a_loop_keep_nothing_of_the_caller_that_started_them() -> None:
    """A caller's tenant and transaction are context variables, and these tasks serve other callers too."""
    caller = ContextVar("caller", default="none")
    seen: list[str] = []
    passed = asyncio.Event()

    async def answer(items: Sequence[int]) -> Sequence[int]:
        seen.append(caller.get())
        return items

    async def tick() -> float:
        seen.append(caller.get())
        passed.set()
        return 60.0

    loop = Loop("tested", tick)
    caller.set("a tenant")
    await Batcher(answer)(1)
    loop.start()
    await asyncio.wait_for(passed.wait(), 10)
    await loop.stop()
    assert seen == ["none", "none"]
