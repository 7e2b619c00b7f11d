"""`detent bench`: repeatable measurements."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from detent.cli import output
from detent.cli.base import command, group, option
from detent.cli.invocation import format_options, invocation, read_number
from detent.cli.progress import Progress
from detent.errors import DetentError, UsageError

bench = group("bench", "Measure detent on this host, with a temporary database.", panel="Tools")

MOST = 10_000_000


def measure(
    what: str,
    total: int,
    work: Callable[[Callable[[int], None]], Awaitable[Any]],
    as_table: Callable[[Any], Iterable[tuple[str, ...]]],
    as_document: Callable[[Any], Any] | None = None,
) -> Any:
    """Run a measurement with a progress bar; print and return its result."""
    import asyncio
    from dataclasses import asdict

    from detent.node import process
    from detent.telemetry.log import configure

    configure("auto", "error")
    process.collect_garbage_seldom()  # as in a node; else it takes 5 to 8 of 18 µs for a message to Kafka
    with Progress(what, total) as progress, asyncio.Runner(loop_factory=process.loop_factory()) as runner:

        async def measured() -> Any:
            return await work(progress.update)

        result = runner.run(measured())
    if invocation().format == "json":
        output.print_json((as_document or asdict)(result))
    else:
        output.print_lines(as_table(result))
    return result


def read_ratio(text: str | None) -> float:
    """The required share of the raw limit; 0 if none is required."""
    try:
        ratio = float(text or 0)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise UsageError(f"--at-least is {text!r}: give a share of the raw limit from 0 to 1, such as 0.3.")
    return ratio


@command(bench, "loop", examples=("detent bench loop", "detent bench loop --history 50000000 --rounds 3"))
@option("--jobs", default="100000", metavar="N", help="Ticks due at one instant. [100000]")
@option("--concurrency", default="100", metavar="N", help="Maximum runs at the same time. [100, the default of a node]")
@option("--rounds", default="5", metavar="N", help="Number of rounds; each also measures plain SQL. [5]")
@option("--history", default="0", metavar="N", help="Measure again with this many finished runs in history. [0]")
@option("--idle-reader", is_flag=True, help="Keep a transaction open during the measurement.")
@option("--at-least", metavar="RATIO", help="Exit code 1 when the median ratio to plain SQL is below this.")
@format_options()
def loop(jobs: str, concurrency: str, rounds: str, history: str, idle_reader: bool, at_least: str | None) -> None:
    """Run many ticks due at one instant; compare with plain SQL, the raw limit."""
    from detent.devtools.bench.loop import LoopPlan, LoopResult, as_table, bench_loop

    plan = LoopPlan(
        jobs=read_number("--jobs", jobs, 1, MOST),
        concurrency=read_number("--concurrency", concurrency, 1, 100_000),
        rounds=read_number("--rounds", rounds, 1, 1000),
        history=read_number("--history", history, 0, 1_000_000_000),
        idle_reader=idle_reader,
    )
    least = read_ratio(at_least)
    total = plan.jobs * plan.rounds + plan.history
    result = measure("rows", total, lambda progress: bench_loop(plan, progress), as_table, LoopResult.as_document)
    if result.median("ratio") < least:
        raise DetentError(f"The loop reached {result.median('ratio'):.2f} of the raw limit; {least:g} is required.")


@command(bench, "soak", examples=("detent bench soak --minutes 10 --rate 12000",))
@option("--rate", default="12000", metavar="N", help="Ticks per second. [12000]")
@option("--minutes", default="10", metavar="N", help="Duration. [10]")
@option("--concurrency", default="100", metavar="N", help="Maximum runs at the same time. [100, the default of a node]")
@format_options()
def soak(rate: str, minutes: str, concurrency: str) -> None:
    """Run a steady load for a long time, and measure table growth."""
    from detent.devtools.bench.soak import as_table, bench_soak

    number = read_number("--rate", rate, 1, 1_000_000)
    long = read_number("--minutes", minutes, 1, 100_000)
    at_once = read_number("--concurrency", concurrency, 1, 100_000)
    measure("seconds", long * 60, lambda progress: bench_soak(number, long, at_once, progress), as_table)


@command(bench, "latency", examples=("detent bench latency", "detent bench latency --rates 100,1000"))
@option("--rates", default="100,1000,5000", metavar="N,N", help="Ticks per second, evenly spread. [100,1000,5000]")
@option("--burst", default="1000", metavar="N", help="Ticks at one instant. [1000]")
@format_options()
def latency(rates: str, burst: str) -> None:
    """Measure how late runs start, at several rates and in a burst."""
    from detent.devtools.bench.latency import as_table, bench_latency

    numbers = [read_number("--rates", each, 1, 100_000) for each in rates.split(",")]
    at_once = read_number("--burst", burst, 1, 100_000)
    measure("loads", len(numbers) + 1, lambda progress: bench_latency(numbers, at_once, progress), as_table)


@command(bench, "hot-second", examples=("detent bench hot-second --jobs 500000",))
@option("--jobs", default="500000", metavar="N", help="Daily jobs that are all due in one second. [500000]")
@option("--concurrency", default="100", metavar="N", help="Maximum runs at the same time. [100, the default of a node]")
@format_options()
def hot_second(jobs: str, concurrency: str) -> None:
    """Run very many daily jobs due in one second, while other jobs tick."""
    from detent.devtools.bench.hot_second import as_table, bench_hot_second

    number = read_number("--jobs", jobs, 1, MOST)
    at_once = read_number("--concurrency", concurrency, 1, 100_000)
    measure("runs", number, lambda progress: bench_hot_second(number, at_once, progress), as_table)


@command(bench, "growth", examples=("detent bench growth --to 10000000",))
@option("--to", default="1000000", metavar="N", help="Number of jobs to register. [1000000]")
@format_options()
def growth(to: str) -> None:
    """Measure the cost of registered jobs that are not due."""
    from detent.devtools.bench.growth import as_table, bench_growth

    number = read_number("--to", to, 1000, 100_000_000)
    measure("jobs", number, lambda progress: bench_growth(number, progress), as_table)


@command(bench, "register", examples=("detent bench register --jobs 1000000",))
@option("--jobs", default="100000", metavar="N", help="Jobs to register. [100000]")
@option("--at-once", default="2", metavar="N", help="Concurrent batches. [2]")
@format_options()
def register(jobs: str, at_once: str) -> None:
    """Register many jobs through the batch API of a temporary server."""
    from detent.devtools.bench.register import as_table, bench_register

    number = read_number("--jobs", jobs, 1, MOST)
    batches = read_number("--at-once", at_once, 1, 100)
    measure("jobs", number, lambda progress: bench_register(number, batches, progress), as_table)


@command(bench, "http", examples=("detent bench http", "detent bench http --tls --connections 200"))
@option("--requests", default="10000", metavar="N", help="Requests per side and round. [10000]")
@option("--connections", default="50", metavar="N", help="Connections, each with one request at a time. [50]")
@option("--rounds", default="5", metavar="N", help="Rounds; both sides take turns. [5]")
@option("--tls", is_flag=True, help="Use TLS, with a temporary certificate.")
@option("--signed", is_flag=True, help="With a header and a signature from secrets.")
@format_options()
def http(requests: str, connections: str, rounds: str, tls: bool, signed: bool) -> None:
    """Call a local server through the HTTP target; compare with the bare client."""
    from detent.devtools.bench.http import as_table, bench_http

    number = read_number("--requests", requests, 1, MOST)
    at_once = read_number("--connections", connections, 1, 10_000)
    times = read_number("--rounds", rounds, 1, 1000)
    total = 2 * number * times
    measure("requests", total, lambda progress: bench_http(number, at_once, times, tls, signed, progress), as_table)


@command(bench, "python", examples=("detent bench python", "detent bench python --at-once 1000"))
@option("--runs", default="10000", metavar="N", help="Runs per side and round. [10000]")
@option("--at-once", default="50", metavar="N", help="Runs at the same time. [50]")
@option("--rounds", default="5", metavar="N", help="Rounds; both sides take turns. [5]")
@format_options()
def python(runs: str, at_once: str, rounds: str) -> None:
    """Call Python functions as runs; compare with the bare hand-over."""
    from detent.devtools.bench.python import as_table, bench_python

    number = read_number("--runs", runs, 1, MOST)
    under_way = read_number("--at-once", at_once, 1, 10_000)
    times = read_number("--rounds", rounds, 1, 1000)
    total = 4 * number * times
    measure("runs", total, lambda progress: bench_python(number, under_way, times, progress), as_table)


@command(bench, "topics", examples=("detent bench topics", "detent bench topics --brokers redis,nats"))
@option("--brokers", default="", metavar="LIST", help="Brokers, separated by commas. [all that are installed]")
@option("--messages", default="10000", metavar="N", help="Messages per side and round. [10000]")
@option("--at-once", default="500", metavar="N", help="Messages under way at the same time. [500]")
@option("--rounds", default="5", metavar="N", help="Rounds; both sides take turns. [5]")
@format_options()
def topics(brokers: str, messages: str, at_once: str, rounds: str) -> None:
    """Send messages to local brokers, and compare with bare clients."""
    from detent.devtools.bench.broker_servers import BROKERS
    from detent.devtools.bench.topics import as_table, bench_topics

    names = [name.strip() for name in brokers.split(",") if name.strip()] or list(BROKERS)
    for name in names:
        if name not in BROKERS:
            raise UsageError(f"--brokers has the unknown broker {name!r}; known are {', '.join(BROKERS)}.")
    number = read_number("--messages", messages, 1, MOST)
    under_way = read_number("--at-once", at_once, 1, 100_000)
    times = read_number("--rounds", rounds, 1, 1000)
    total = 2 * number * times * len(names)
    measure("messages", total, lambda progress: bench_topics(names, number, under_way, times, progress), as_table)


@command(
    bench, "transports", examples=("detent bench transports", "detent bench transports --queues postgres,redis,nats")
)
@option("--queues", default="", metavar="LIST", help="hand-off, postgres and brokers, separated by commas. [all]")
@option("--rate", default="1000", metavar="N", help="Runs per second to measure how late they start. [1000]")
@option("--burst", default="20000", metavar="N", help="Runs due at one instant to measure runs per second. [20000]")
@option("--workers", default="1", metavar="N", help="Processes that work, beside the one that schedules. [1]")
@format_options()
def transports(queues: str, rate: str, burst: str, workers: str) -> None:
    """Run schedulers and workers apart, with each broker between them."""
    import asyncio
    from dataclasses import asdict

    from detent.devtools.bench.transports import TRANSPORTS, TransportPlan, as_table, bench_transports
    from detent.telemetry.log import configure

    configure("auto", "warning")
    names = [name.strip() for name in queues.split(",") if name.strip()] or list(TRANSPORTS)
    for name in names:
        if name not in TRANSPORTS:
            raise UsageError(f"--queues has the unknown queue {name!r}; known are {', '.join(TRANSPORTS)}.")
    plan = TransportPlan(
        read_number("--rate", rate, 1, 100_000),
        read_number("--burst", burst, 1, 10_000_000),
        read_number("--workers", workers, 1, 100),
    )
    with Progress("queues", len(names)) as progress:
        result = asyncio.run(bench_transports(names, plan, progress.update))
    if invocation().format == "json":
        output.print_json(asdict(result))
    else:
        output.print_lines(as_table(result))


@command(bench, "scaling", examples=("detent bench scaling", "detent bench scaling --jobs 50000 --rounds 5"))
@option("--jobs", default="100000", metavar="N", help="Ticks due at one instant, for each cluster. [100000]")
@option("--rounds", default="3", metavar="N", help="Rounds in which the clusters take turns. [3]")
@format_options()
def scaling(jobs: str, rounds: str) -> None:
    """Run one to three nodes, and schedulers and workers apart, on a database."""
    from detent.devtools.bench.scaling import CLUSTERS, ScalingResult, as_table, bench_scaling

    number = read_number("--jobs", jobs, 1, MOST)
    times = read_number("--rounds", rounds, 1, 1000)
    measure(
        "clusters",
        times * len(CLUSTERS),
        lambda progress: bench_scaling(number, times, progress),
        as_table,
        ScalingResult.as_document,
    )


@command(bench, "enqueue", examples=("detent bench enqueue", "detent bench enqueue --pending 100000 --paused 100000"))
@option("--rounds", default="5", metavar="N", help="Rounds of the enqueue rates. [5]")
@option(
    "--pending", default="1000000", metavar="N", help="Runs of one task that one worker claims and settles. [1000000]"
)
@option("--delayed", default="100000", metavar="N", help="Delayed runs of the same task. [100000]")
@option("--rate", default="1000", metavar="N", help="Runs enqueued per second to measure how late they start. [1000]")
@option("--seconds", default="10", metavar="N", help="Duration of each measurement of lateness. [10]")
@option("--tasks", default="5000", metavar="N", help="Tasks with waiting runs, while others are enqueued. [5000]")
@option("--hot", default="30000", metavar="N", help="Runs of one concurrency key, while others are enqueued. [30000]")
@option("--paused", default="1000000", metavar="N", help="Runs of a paused task, while others are enqueued. [1000000]")
@option("--at-least", default="20000", metavar="N", help="Exit code 1 below so many settled runs per second. [20000]")
@format_options()
def enqueue(
    rounds: str,
    pending: str,
    delayed: str,
    rate: str,
    seconds: str,
    tasks: str,
    hot: str,
    paused: str,
    at_least: str,
) -> None:
    """Enqueue on-demand runs: rates, WAL, claims of a long backlog, lateness."""
    from detent.devtools.bench.enqueue import EnqueuePlan, as_table, bench_enqueue

    plan = EnqueuePlan(
        rounds=read_number("--rounds", rounds, 1, 1000),
        pending=read_number("--pending", pending, 100, MOST),
        delayed=read_number("--delayed", delayed, 0, MOST),
        rate=read_number("--rate", rate, 1, 100_000),
        steady_seconds=read_number("--seconds", seconds, 1, 3600),
        tasks=read_number("--tasks", tasks, 1, 100_000),
        hot=read_number("--hot", hot, 1, MOST),
        paused=read_number("--paused", paused, 1, MOST),
    )
    least = read_number("--at-least", at_least, 0, 10_000_000)
    result = measure("steps", plan.steps, lambda progress: bench_enqueue(plan, progress), as_table)
    if result.drain.runs_per_second < least:
        reached = f"{result.drain.runs_per_second:,.0f}"
        raise DetentError(f"One worker claimed and settled {reached} runs per second; {least:,} are required.")


@command(bench, "failover", examples=("detent bench failover --rounds 10",))
@option("--jobs", default="60", metavar="N", help="Jobs that tick every second. [60]")
@option("--rounds", default="5", metavar="N", help="How many times a node is killed. [5]")
@format_options()
def failover(jobs: str, rounds: str) -> None:
    """Kill one of three nodes with kill -9; measure the time until its jobs run."""
    import asyncio

    from detent.devtools.bench.failover import as_table, bench_failover
    from detent.node import process
    from detent.telemetry.log import configure

    configure("auto", "warning")
    number = read_number("--jobs", jobs, 1, 10_000)
    times = read_number("--rounds", rounds, 1, 1000)
    with Progress("rounds", times) as progress, asyncio.Runner(loop_factory=process.loop_factory()) as runner:
        result = runner.run(bench_failover(number, times, progress.update))
    if invocation().format == "json":
        output.print_json(result.as_document())
    else:
        output.print_lines(as_table(result))


@command(bench, "idle", examples=("detent bench idle --seconds 120",))
@option("--jobs", default="1000", metavar="N", help="Registered jobs, none of them due. [1000]")
@option("--seconds", default="60", metavar="N", help="Duration. [60]")
@format_options()
def idle(jobs: str, seconds: str) -> None:
    """Measure CPU time and statements of an idle node."""
    import asyncio
    from dataclasses import asdict

    from detent.devtools.bench.idle import as_table, bench_idle
    from detent.node import process
    from detent.telemetry.log import configure

    configure("auto", "warning")
    number = read_number("--jobs", jobs, 0, 10_000)
    length = read_number("--seconds", seconds, 1, 86_400)
    with Progress("seconds", length) as progress, asyncio.Runner(loop_factory=process.loop_factory()) as runner:
        result = runner.run(bench_idle(number, length, progress.update))
    if invocation().format == "json":
        output.print_json(asdict(result))
    else:
        output.print_lines(as_table(result))


@command(bench, "cron", examples=("detent bench cron",))
@format_options()
def cron(**_: Any) -> None:
    """Parse schedules and find next ticks; compare with cronsim and croniter."""
    from detent.devtools.bench.schedules import bench_cron

    rows = [row._asdict() for row in bench_cron()]
    if invocation().format == "json":
        output.print_json(rows)
    else:
        output.print_lines(
            (row["expression"], row["what"], f"{row['microseconds']:.2f} µs", f"{row['times']:.2f} x") for row in rows
        )
