"""Work for a loop or for threads: all of it is done, in order, with few wake-ups."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from detent.targets.calls import HandlerCall
from detent.targets.handover import Handover
from detent.targets.threads import DaemonThreads
from tests.support.waiting import until


async def test_many_results_of_threads_reach_the_loop_in_order_and_with_few_wake_ups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    wake, wakings = loop.call_soon_threadsafe, 0

    def counted(*arguments: object) -> object:
        nonlocal wakings
        wakings += 1
        return wake(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    handover = Handover(loop)
    taken: list[tuple[int, int]] = []

    def hand_all(thread: int) -> None:
        for number in range(1000):
            handover.hand(taken.append, (thread, number))

    threads = [threading.Thread(target=hand_all, args=(each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    await until(lambda: len(taken) == 4000)
    for each in range(4):
        assert [number for thread, number in taken if thread == each] == list(range(1000))
    assert wakings < 100


async def test_work_that_raises_does_not_take_the_rest_with_it() -> None:
    loop = asyncio.get_running_loop()
    reported: list[object] = []
    loop.set_exception_handler(lambda _loop, context: reported.append(context["exception"]))
    handover = Handover(loop)
    taken: list[int] = []
    error = ValueError("broken")

    def fail() -> None:
        raise error

    for work in (lambda: taken.append(1), fail, lambda: taken.append(2)):
        handover.hand(work)
    await until(lambda: taken == [1, 2])
    assert reported == [error]


def test_work_for_a_loop_that_is_closed_is_dropped() -> None:
    loop = asyncio.new_event_loop()
    handover = Handover(loop)
    loop.close()
    handover.hand(print)


@pytest.fixture
async def pool() -> AsyncIterator[DaemonThreads]:
    made = DaemonThreads(4, "detent-test")
    yield made
    made.end()
    await until(lambda: not _threads())


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("detent-test")]


async def test_as_many_calls_run_at_once_as_there_are_threads(pool: DaemonThreads) -> None:
    """Each thread that begins wakes the next one."""
    inside, most, done = threading.Semaphore(0), threading.Barrier(4), []

    def meet() -> None:
        most.wait(10)
        inside.release()
        done.append(threading.current_thread().name)

    for _ in range(3):  # the second time, the threads are there and idle
        done.clear()
        for _ in range(8):
            pool.call(meet)
        await until(lambda: len(done) == 8)
    assert len(_threads()) == 4


async def test_work_that_waits_is_done_when_a_thread_is_free_again(pool: DaemonThreads) -> None:
    free, done = threading.Event(), []

    def hold() -> None:
        free.wait(10)

    for _ in range(4):
        pool.call(hold)
    for number in range(100):
        pool.call(lambda number=number: done.append(number))  # type: ignore[misc]
    await asyncio.sleep(0.05)
    assert done == []
    free.set()
    await until(lambda: sorted(done) == list(range(100)))


async def test_a_thread_survives_work_that_raises(pool: DaemonThreads) -> None:
    def leave() -> None:
        raise SystemExit

    for _ in range(8):
        pool.call(leave)
    assert await asyncio.wrap_future(pool.submit(lambda: 7)) == 7
    future = pool.submit(leave)
    with pytest.raises(SystemExit):
        future.result(10)
    assert len(_threads()) <= 4


async def test_where_the_system_has_no_thread_the_work_is_refused_or_waits(
    pool: DaemonThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            pool.call(print)
    done: list[int] = []
    pool.call(lambda: done.append(1))
    await until(lambda: done == [1])
    busy = threading.Event()
    pool.call(lambda: busy.wait(10))  # type: ignore[arg-type]
    await until(lambda: len(_threads()) == 1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        pool.call(lambda: done.append(2))
        busy.set()
        await until(lambda: done == [1, 2])


async def test_a_call_is_interrupted_once_also_if_both_sides_see_the_reason() -> None:
    """A second cancellation would meet the handler while it cleans up."""
    call = HandlerCall(60, 60, Handover(asyncio.get_running_loop()))
    interruptions = 0

    def interrupt() -> None:
        nonlocal interruptions
        interruptions += 1
        if interruptions == 1:
            call._abandon()  # the node goes on from where it had marked the call

    assert call.begin()
    call._abandon()
    assert interruptions == 0
    call.interruptible(interrupt)
    call._abandon()
    assert interruptions == 1
