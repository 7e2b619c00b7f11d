"""`detent queue …`"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from detent.cli import output, times
from detent.cli.base import command, group, option
from detent.cli.output import Column, Field, Item
from detent.cli.session import asks_server, connect
from detent.cli.tenants import read_limit, shown
from detent.cli.watch import watch as watching
from detent.cli.watch import watch_option
from detent.errors import UsageError

queue = group("queue", "Look at queues, and limit what runs from them.", panel="Look after it")

COLUMNS = (
    Column("NAME", lambda queue: queue["name"]),
    Column("WAITING", lambda queue: queue["waiting"], lambda one, at: f"{one['waiting']:,}", right=True),
    Column(
        "OLDEST", lambda queue: queue["oldest_ready_at"], lambda one, at: times.relative(one["oldest_ready_at"], at)
    ),
    Column("RUNNING", lambda queue: queue["running"], lambda one, at: f"{one['running']:,}", right=True),
    Column("AT ONCE", lambda queue: queue["max_concurrent"], lambda one, at: shown(one["max_concurrent"]), right=True),
    Column(
        "A SECOND", lambda queue: queue["rate_per_second"], lambda one, at: shown(one["rate_per_second"]), right=True
    ),
)
EMPTY = "There are no queues yet: the first job makes one."


@command(queue, "list", examples=("detent queue list", "detent queue list --watch"))
@watch_option
@asks_server(quiet="names only")
def list_queues(watch: bool) -> None:
    """List the queues with their limits, what waits and what runs."""
    with connect() as client:
        if watch:
            watching(lambda limit, cursor: client.list_queues(), 500, COLUMNS, EMPTY)
        else:
            output.print_page(client.list_queues(), COLUMNS, EMPTY, identity="name")


@command(
    queue,
    "limit",
    examples=(
        "detent queue limit mail --concurrent 5",
        "detent queue limit mail --rate 2.5",
        "detent queue limit mail --concurrent none --rate none",
    ),
)
@click.argument("name")
@option("--concurrent", metavar="N", help="How many runs may be under way at once; none for no limit.")
@option("--rate", metavar="N", help="How many runs may start in a second; none for no limit.")
@asks_server(quiet="its name only")
def limit(name: str, concurrent: str | None, rate: str | None) -> None:
    """Limit a queue, on all nodes together; what is not given stays as it is.

    Runs beyond a limit wait. With --concurrent 0 nothing of the queue starts.
    """
    if concurrent is None and rate is None:
        raise UsageError("There is nothing to change: give --concurrent N or --rate N, or none for no limit.")
    changes: dict[str, Any] = {}
    if concurrent is not None:
        changes["max_concurrent"] = read_limit("--concurrent", concurrent, int, 0, 2_147_483_647)
    if rate is not None:
        changes["rate_per_second"] = read_limit("--rate", rate, float, 0.001, 1_000_000)
    with connect() as client:
        found: Item = next((each for each in client.list_queues()["items"] if each["name"] == name), {})
        before = {field: found.get(field) for field in ("max_concurrent", "rate_per_second")}
        answer = client.limit_queue(name, {**before, **changes})
    output.say(f"Limited queue {answer['name']}: {_words(answer)}.")
    output.print_fields(answer, _fields(answer), identity="name")


def _words(queue: Item) -> str:
    at_once, a_second = queue["max_concurrent"], queue["rate_per_second"]
    told = [] if at_once is None else [f"{at_once:,} at once"]
    told += [] if a_second is None else [f"{a_second:,g} in a second"]
    return " and ".join(told) or "it has no limit any more"


def _fields(queue: Item) -> Iterator[Field]:
    yield Field("name", "Name", queue["name"])
    yield Field("max_concurrent", "Runs at once", queue["max_concurrent"])
    yield Field("rate_per_second", "Starts in a second", queue["rate_per_second"])
    yield Field("waiting", "Waiting", queue["waiting"])
    yield Field("running", "Running", queue["running"])
