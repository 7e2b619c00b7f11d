"""`detent incident …`"""

from __future__ import annotations

from functools import partial

from detent.cli import output, times
from detent.cli.base import command, group, option
from detent.cli.output import Column, Item
from detent.cli.runs import paging_options
from detent.cli.session import asks_server, complete_job, connect
from detent.cli.watch import watch as watching
from detent.cli.watch import watch_option

incident = group("incident", "Look at jobs that were not as expected.", panel="Jobs and runs")


def _state(one: Item) -> str:
    return one["closed"] or "open"


COLUMNS = (
    Column("ID", lambda one: one["id"], right=True),
    Column("JOB", lambda one: one["job"], least=20),
    Column("EXPECTED", lambda one: f"{one['expectation']} within {one['within_seconds']:g} s"),
    Column("TICK", lambda one: one["scheduled_at"], lambda one, at: times.relative(one["scheduled_at"], at)),
    Column("MISSES", lambda one: one["misses"], right=True),
    Column("OPENED", lambda one: one["opened_at"], lambda one, at: times.relative(one["opened_at"], at)),
    Column("STATE", _state),
    Column("TOLD", lambda one: one["notified_at"], lambda one, at: times.relative(one["notified_at"], at)),
    Column("TROUBLE", lambda one: one["notify_error"], least=20, extra=True),
)
EMPTY = "All jobs are as expected, or nothing is expected of them: see `detent job create --expect-finish-within`."


@command(incident, "list", examples=("detent incident list --open", "detent incident list --job report"))
@option("--open", "only_open", is_flag=True, help="Only those that are not closed.")
@option("--job", metavar="JOB", shell_complete=complete_job, help="Only those of this job, by name or id.")
@paging_options
@watch_option
@asks_server(quiet="ids only")
def list_incidents(only_open: bool, job: str | None, limit: int, cursor: str | None, watch: bool) -> None:
    """List the times that jobs did not start or finish as expected, the latest first."""
    from detent.client.documents import gather

    with connect() as client:
        fetch = partial(client.list_incidents, open="true" if only_open else None, job=job)
        if watch:
            watching(fetch, limit, COLUMNS, EMPTY)
        else:
            output.print_page(gather(fetch, limit, cursor), COLUMNS, EMPTY)
