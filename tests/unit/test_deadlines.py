"""One timer for all deadlines: a late run is reported, a finished one is forgotten."""

from __future__ import annotations

import asyncio

from detent.worker.deadlines import MAX_OVER, Deadlines
from tests.support.waiting import until


class Runs:
    def __init__(self) -> None:
        self.under_way: set[str] = set()
        self.expired: list[str] = []
        self.deadlines: Deadlines[str] = Deadlines(self.under_way.__contains__, self._expire)

    def _expire(self, name: str) -> None:
        self.expired.append(name)
        self.under_way.discard(name)

    def begin(self, name: str, seconds: float) -> None:
        self.under_way.add(name)
        self.deadlines.add(name, seconds)


async def test_each_is_reported_when_its_own_time_has_come() -> None:
    runs = Runs()
    runs.begin("long", 60)
    runs.begin("short", 0.05)
    runs.begin("shorter", 0.01)
    await until(lambda: len(runs.expired) == 2)
    assert runs.expired == ["shorter", "short"]
    assert runs.under_way == {"long"}
    runs.deadlines.close()


async def test_a_run_that_ended_in_time_is_not_reported() -> None:
    runs = Runs()
    runs.begin("over", 0.01)
    runs.under_way.discard("over")
    runs.begin("late", 0.02)
    await until(lambda: runs.expired)
    assert runs.expired == ["late"]
    runs.deadlines.close()


async def test_what_is_over_is_not_kept_until_its_time() -> None:
    runs = Runs()
    runs.begin("first", 300)
    for number in range(2 * MAX_OVER):
        runs.begin(str(number), 300)
        runs.under_way.discard(str(number))
    (line,) = runs.deadlines._lines.values()
    assert len(line) <= MAX_OVER
    assert line[0][1] == "first"
    runs.deadlines.close()
    await asyncio.sleep(0)
