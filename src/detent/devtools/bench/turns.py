"""Two ways of doing the same, measured in turns of a few hundred, so that other load on the machine slows both."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from time import process_time

from detent.runtime.clock import monotonic

TURN = 250

Send = Callable[[], Awaitable[None]]


@dataclass
class Side:
    """What one of the two did, round by round; CPU is that of this process, with all its threads."""

    per_second: list[float] = field(default_factory=list)
    cpu_microseconds: list[float] = field(default_factory=list)


@dataclass
class TakenInTurns:
    """`number` times per side and round, `at_once` at the same time."""

    number: int
    at_once: int
    progress: Callable[[int], None]
    done: int = 0

    async def round(self, sides: Sequence[tuple[Send, Side]]) -> None:
        seconds, cpu = [0.0] * len(sides), [0.0] * len(sides)
        for send, _ in sides:
            await self._send(send, self.at_once * 2)  # connections and threads are there before the time begins
        for first in range(0, self.number, TURN):
            for place, (send, _) in enumerate(sides):
                cpu_began, began = process_time(), monotonic()
                await self._send(send, min(TURN, self.number - first), self._count)
                seconds[place] += monotonic() - began
                cpu[place] += process_time() - cpu_began
        for place, (_, side) in enumerate(sides):
            side.per_second.append(self.number / seconds[place])
            side.cpu_microseconds.append(cpu[place] / self.number * 1e6)

    async def _send(self, send: Send, number: int, count: Callable[[], None] = lambda: None) -> None:
        left = number

        async def one_after_another() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await send()
                count()

        await asyncio.gather(*(one_after_another() for _ in range(self.at_once)))

    def _count(self) -> None:
        self.done += 1
        if self.done % 500 == 0:
            self.progress(self.done)


def ratios(mine: Side, bare: Side) -> tuple[float, float]:
    """By rate and by CPU: the medians of the rounds."""
    rates = [ours / raw for ours, raw in zip(mine.per_second, bare.per_second, strict=True)]
    cpu = [raw / ours for ours, raw in zip(mine.cpu_microseconds, bare.cpu_microseconds, strict=True)]
    return statistics.median(rates), statistics.median(cpu)


def figures(side: Side, what: str) -> str:
    rates = side.per_second
    return (
        f"{statistics.median(rates):,.0f} {what}/s ({min(rates):,.0f} - {max(rates):,.0f}), "
        f"{statistics.median(side.cpu_microseconds):,.0f} µs of CPU each"
    )
