"""That a test which leaves threads or files behind fails, and names them; and that ours leave none."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from detent.targets.python import HandlerThread
from tests.support.leftovers import fail_if_too_many
from tests.support.waiting import until


@pytest.fixture
def threads() -> Iterator[int]:
    """Start thirty threads that do not end by themselves; yields how many there were before."""
    before = threading.active_count()
    over = threading.Event()
    left = [threading.Thread(target=over.wait, name=f"forgotten_{number}") for number in range(30)]
    for thread in left:
        thread.start()
    yield before
    over.set()
    for thread in left:
        thread.join()


def test_threads_that_are_left_behind_are_named(threads: int) -> None:
    fail_if_too_many(threads=threads + 30)
    with pytest.raises(pytest.fail.Exception, match=r"threads are left behind: .*\('forgotten', 30\)"):
        fail_if_too_many(threads=threads + 10, patience=0)


def test_files_that_are_left_open_are_named() -> None:
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(30)]
    try:
        with pytest.raises(pytest.fail.Exception, match=r"files are left open: .*\('/dev/null', \d+\)"):
            fail_if_too_many(files=20)
    finally:
        for descriptor in opened:
            os.close(descriptor)


async def test_the_threads_of_handlers_end_with_their_pool_and_none_waits_for_one_that_hangs() -> None:
    before = set(threading.enumerate())
    hangs, began = threading.Event(), threading.Event()
    handlers = HandlerThread(4)
    handlers.start()

    def hang() -> None:
        began.set()
        hangs.wait(60)

    ended: list[bool] = []
    handlers.in_thread(hang)
    for _ in range(10):
        handlers.in_thread(lambda: ended.append(began.wait(10)))
    await until(lambda: ended == [True] * 10)
    await handlers.stop()

    def left() -> set[threading.Thread]:
        return {thread for thread in set(threading.enumerate()) - before if "detent" in thread.name}

    await until(lambda: len(left()) == 1, 10, "all but the one that hangs to end")
    hangs.set()
    await until(lambda: not left(), 10, "the last to end")
