"""`detent bench`: figures anybody can repeat on their own machine."""

from __future__ import annotations

from typing import Any

from detent.cli import output
from detent.cli.base import command, group, option
from detent.cli.progress import Progress
from detent.cli.session import read_number, session, shapes

bench = group("bench", "Measure detent on this machine, on a throw-away database.", panel="Tools")


@command(bench, "loop", examples=("detent bench loop --jobs 50000",))
@option("--jobs", default="100000", metavar="N", help="Ticks that fall due at one instant. [100000]")
@option("--concurrency", default="2000", metavar="N", help="Runs at the same time. [2000]")
@option("--rounds", default="5", metavar="N", help="How often, each time beside the raw limit. [5]")
@shapes()
def loop(jobs: str, concurrency: str, rounds: str) -> None:
    """Fire, call a no-op, settle and record many ticks that are due at once, beside the raw limit of this machine."""
    import asyncio

    from detent import node
    from detent.bench.loop import as_table, bench_loop
    from detent.log import configure

    configure("auto", "warning")
    number = read_number("--jobs", jobs, 1, 10_000_000)
    at_once = read_number("--concurrency", concurrency, 1, 100_000)
    times = read_number("--rounds", rounds, 1, 1000)
    with Progress("runs", number * times) as progress, asyncio.Runner(loop_factory=node.loop_factory()) as runner:
        result = runner.run(bench_loop(number, at_once, times, progress.update))
    if session().shape == "json":
        output.print_json(result.as_document())
    else:
        output.print_lines(as_table(result))


@command(bench, "register", examples=("detent bench register --jobs 1000000",))
@option("--jobs", default="100000", metavar="N", help="Jobs to register. [100000]")
@option("--at-once", default="3", metavar="N", help="Batches under way at the same time. [3]")
@shapes()
def register(jobs: str, at_once: str) -> None:
    """Register many jobs through the batch API of a server of its own."""
    import asyncio
    from dataclasses import asdict

    from detent import node
    from detent.bench.register import as_table, bench_register
    from detent.log import configure

    configure("auto", "warning")
    number = read_number("--jobs", jobs, 1, 10_000_000)
    batches = read_number("--at-once", at_once, 1, 100)
    with Progress("jobs", number) as progress, asyncio.Runner(loop_factory=node.loop_factory()) as runner:
        result = runner.run(bench_register(number, batches, progress.update))
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
