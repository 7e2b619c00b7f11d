"""`detent queue …`"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from detent.cli import output, times
from detent.cli.base import command, group, option
from detent.cli.invocation import api_options, connect
from detent.cli.output import Column, Field, Item
from detent.cli.tenants import read_limit, shown
from detent.cli.watch import watch as watching
from detent.cli.watch import watch_option
from detent.errors import UsageError

queue = group("queue", "List and limit queues.", panel="Administration")

COLUMNS = (
    Column("NAME", lambda queue: queue["name"]),
    Column("WAITING", lambda queue: queue["waiting"], lambda one, at: _waiting(one), right=True),
    Column("READY", lambda queue: queue["ready"], lambda one, at: f"{one['ready']:,}", right=True),
    Column(
        "OLDEST", lambda queue: queue["oldest_ready_at"], lambda one, at: times.relative(one["oldest_ready_at"], at)
    ),
    Column("RUNNING", lambda queue: queue["running"], lambda one, at: f"{one['running']:,}", right=True),
    Column(
        "MAX RUNNING", lambda queue: queue["max_concurrent"], lambda one, at: shown(one["max_concurrent"]), right=True
    ),
    Column(
        "MAX PER SECOND",
        lambda queue: queue["rate_per_second"],
        lambda one, at: shown(one["rate_per_second"]),
        right=True,
    ),
)
EMPTY = "There are no queues yet: the first job creates one."


@command(queue, "list", examples=("detent queue list", "detent queue list --watch"))
@watch_option
@api_options(quiet="names only")
def list_queues(watch: bool) -> None:
    """List the queues with their limits and their waiting and running runs."""
    with connect() as client:
        queues = client.list_queues()
        if watch:
            watching(lambda limit: queues.page(), 500, COLUMNS, EMPTY)
        else:
            output.print_page(queues.page(), COLUMNS, EMPTY, identity="name")


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
@option("--concurrent", metavar="N", help="Maximum runs at the same time; none for no limit.")
@option("--rate", metavar="N", help="Maximum starts per second; none for no limit.")
@api_options(quiet="the queue's name only")
def limit(name: str, concurrent: str | None, rate: str | None) -> None:
    """Limit a queue, across all nodes; an omitted limit is unchanged.

    Runs beyond a limit wait. With --concurrent 0 no run of the queue starts.
    """
    if concurrent is None and rate is None:
        raise UsageError("There is nothing to change: give --concurrent N or --rate N, or none for no limit.")
    changes: dict[str, Any] = {}
    if concurrent is not None:
        changes["max_concurrent"] = read_limit("--concurrent", concurrent, int, 0, 2_147_483_647)
    if rate is not None:
        changes["rate_per_second"] = read_limit("--rate", rate, float, 0.001, 1_000_000)
    with connect() as client:
        found: Item = next((each for each in client.list_queues() if each["name"] == name), {})
        before = {field: found.get(field) for field in ("max_concurrent", "rate_per_second")}
        answer = client.limit_queue(name, **{**before, **changes})
    output.say(f"Limits of queue {answer['name']}: {_words(answer)}.")
    output.print_fields(answer, _fields(answer), identity="name")


def _words(queue: Item) -> str:
    concurrent, rate = queue["max_concurrent"], queue["rate_per_second"]
    limits = [] if concurrent is None else [f"{concurrent:,} at the same time"]
    limits += [] if rate is None else [f"{rate:,g} per second"]
    return " and ".join(limits) or "no limit"


def _fields(queue: Item) -> Iterator[Field]:
    yield Field("name", "Name", queue["name"])
    yield Field("max_concurrent", "Max running", queue["max_concurrent"])
    yield Field("rate_per_second", "Max starts per second", queue["rate_per_second"])
    yield Field("waiting", "Waiting", _waiting(queue))
    yield Field("running", "Running", queue["running"])


def _waiting(queue: Item) -> str:
    """More on-demand runs may wait than were counted."""
    return f"{queue['waiting']:,}{'+' if queue['more'] else ''}"
