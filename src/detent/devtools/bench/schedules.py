"""The speed of the schedule engine compared with cronsim and croniter, measured in one run.

cronsim and croniter are development dependencies; a row for a library that is not installed is left out.
"""

from __future__ import annotations

import importlib.util
import random
import timeit
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from detent.domain.schedule.memo import MEMO
from detent.domain.schedule.parse import ScheduleOptions, parse_cron_uncached
from detent.domain.schedule.schedule import Schedule
from detent.domain.schedule.zones import check_timezone

ZONE = "America/New_York"
EXPRESSIONS = ("*/5 * * * *", "0 9 * * MON-FRI", "30 2 * * *", "0 0 29 2 *", "0 9 * * MON#1")
START = datetime(2026, 1, 1, tzinfo=UTC)
ROUNDS = 5


class BenchRow(NamedTuple):
    """`times` is how many times longer than detent's parse + next for the same expression."""

    expression: str
    what: str
    microseconds: float
    times: float


def bench_cron(calls: int = 2_000) -> list[BenchRow]:
    """Parse + next in a zone with DST for each library, then detent's parts on their own."""
    rows: list[BenchRow] = []
    for expression in EXPRESSIONS:
        base = _measure(_detent(expression), calls)
        rows.append(BenchRow(expression, "detent parse + next", base, 1.0))
        for name, contestant in _others(expression):
            cost = _measure(contestant, max(calls // 10, 20))
            rows.append(BenchRow(expression, name, cost, cost / base))
        for name, part in _parts(expression):
            cost = _measure(part, calls)
            rows.append(BenchRow(expression, name, cost, cost / base))
    return rows


def _measure(call: Callable[[datetime], object], calls: int) -> float:
    """Microseconds per call, the best of some rounds; no two calls ask about the same moment."""
    generator = random.Random(1)
    best = float("inf")
    for _ in range(ROUNDS):
        MEMO.clear()
        moments = [START + timedelta(seconds=generator.randrange(365 * 86_400)) for _ in range(calls)]
        local = [moment.astimezone(check_timezone(ZONE)) for moment in moments]
        best = min(best, timeit.timeit(lambda moments=local: [call(moment) for moment in moments], number=1))  # type: ignore[misc]  # timeit takes any callable
    return best / calls * 1e6


def _detent(expression: str) -> Callable[[datetime], object]:
    def call(moment: datetime) -> object:
        return Schedule.parse(expression, timezone=ZONE).next_after(moment)

    return call


def _others(expression: str) -> Iterator[tuple[str, Callable[[datetime], object]]]:
    if importlib.util.find_spec("cronsim"):
        cronsim: Any = importlib.import_module("cronsim").CronSim
        yield "cronsim parse + next", lambda moment: next(cronsim(expression, moment))
    if importlib.util.find_spec("croniter"):
        croniter: Any = importlib.import_module("croniter").croniter
        yield "croniter parse + next", lambda moment: croniter(expression, moment).get_next(datetime)


def _parts(expression: str) -> Iterator[tuple[str, Callable[[datetime], object]]]:
    schedule = Schedule.parse(expression, timezone=ZONE)
    schedule.next_after(START)
    options = ScheduleOptions(timezone=ZONE)
    yield (
        "detent parse, never seen before, + next",
        lambda moment: parse_cron_uncached(expression, options).next_after(moment),
    )
    yield "detent next", schedule.next_after
    yield "detent next, memoised", lambda moment: schedule.next_after(START)
