"""`detent bench`: figures anybody can repeat on their own machine."""

from __future__ import annotations

import asyncio
from typing import Any

from detent.cli import base, output
from detent.cli.base import command, group, option
from detent.cli.session import read_number, session, shapes

bench = group("bench", "Measure detent on this machine, on a throw-away database.", panel="Tools")


@command(bench, "loop", examples=("detent bench loop --jobs 50000",))
@option("--jobs", default="50000", metavar="N", help="Ticks that fall due at one instant. [50000]")
@option("--concurrency", default="2000", metavar="N", help="Runs at the same time. [2000]")
@shapes()
def loop(jobs: str, concurrency: str) -> None:
    """Fire, call a no-op, settle and record many ticks that are due at once."""
    from dataclasses import asdict

    from detent import node
    from detent.bench.loop import as_table, bench_loop
    from detent.log import configure

    configure("auto", "warning")
    number = read_number("--jobs", jobs, 1, 10_000_000)
    at_once = read_number("--concurrency", concurrency, 1, 100_000)
    with Progress(number) as progress, asyncio.Runner(loop_factory=node.loop_factory()) as runner:
        result = runner.run(bench_loop(number, at_once, progress.update))
    if session().shape == "json":
        output.print_json(asdict(result))
    else:
        output.print_lines(as_table(result))


@command(bench, "cron", examples=("detent bench cron",))
@shapes()
def cron(**_: Any) -> None:
    """Parse schedules and find next ticks, beside cronsim and croniter."""
    from detent.schedule.bench import bench_cron

    rows = [row._asdict() for row in bench_cron()]
    if session().shape == "json":
        output.print_json(rows)
    else:
        output.print_lines(
            (row["expression"], row["what"], f"{row['microseconds']:.2f} µs", f"{row['times']:.2f} x") for row in rows
        )


class Progress:
    """A bar on a terminal, nothing elsewhere."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if base.on_terminal():
            from rich.progress import Progress as Bar

            self._bar = Bar(transient=True)
            self._bar.start()
            self._task = self._bar.add_task("runs", total=self._total)
        return self

    def update(self, done: int) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
