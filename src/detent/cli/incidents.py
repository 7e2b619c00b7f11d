"""`detent incident …`"""

from __future__ import annotations

from detent.cli import output, times
from detent.cli.base import command, group, option
from detent.cli.invocation import api_options, complete_job, connect
from detent.cli.output import Column, Item
from detent.cli.runs import paging_options
from detent.cli.watch import watch as watching
from detent.cli.watch import watch_option

incident = group("incident", "List missed deadlines: the incidents of jobs.", panel="Jobs and runs")


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
    Column("NOTIFIED", lambda one: one["notified_at"], lambda one, at: times.relative(one["notified_at"], at)),
    Column("NOTIFICATION ERROR", lambda one: one["notify_error"], least=20, extra=True),
)
EMPTY = "No deadline was missed. To set deadlines, see `detent job create --expect-finish-within`."


@command(incident, "list", examples=("detent incident list --open", "detent incident list --job report"))
@option("--open", "only_open", is_flag=True, help="Only open incidents.")
@option("--job", metavar="JOB", shell_complete=complete_job, help="Only incidents of this job, by name or id.")
@paging_options
@watch_option
@api_options(quiet="ids only")
def list_incidents(only_open: bool, job: str | None, limit: int, cursor: str | None, watch: bool) -> None:
    """List the missed deadlines: runs that did not start or succeed in time.

    An incident opens when a job misses a deadline as often in a row as its
    notify_after says, and closes when the job meets it again.
    """
    with connect() as client:
        incidents = client.list_incidents(job=job, only_open=only_open)
        if watch:
            watching(incidents.page, limit, COLUMNS, EMPTY)
        else:
            output.print_page(incidents.gather(limit, cursor), COLUMNS, EMPTY)
