"""`detent dlq …`"""

from __future__ import annotations

from functools import partial

import click

from detent.cli import output
from detent.cli.base import command, group, option
from detent.cli.runs import COLUMNS as RUN_COLUMNS
from detent.cli.runs import paging_options
from detent.cli.session import asks_server, complete_job, connect
from detent.cli.watch import watch as watching
from detent.cli.watch import watch_option
from detent.errors import UsageError

dlq = group("dlq", "Look at dead runs, and bring them back.", panel="Jobs and runs")


@command(dlq, "list", examples=("detent dlq list", "detent dlq list --job report"))
@option("--job", metavar="JOB", shell_complete=complete_job, help="Only dead runs of this job, by name or id.")
@paging_options
@watch_option
@asks_server(quiet="ids only")
def list_dead(job: str | None, limit: int, cursor: str | None, watch: bool) -> None:
    """List the dead runs: those whose last attempt has failed."""
    from detent.client import gather

    empty = "There are no dead runs."
    with connect() as client:
        fetch = partial(client.dead_letters, job=job)
        if watch:
            watching(fetch, limit, RUN_COLUMNS, empty)
        else:
            output.print_page(gather(fetch, limit, cursor), RUN_COLUMNS, empty)


@command(
    dlq,
    "redrive",
    examples=(
        "detent dlq redrive 0192f4c8-8c00-7000-8000-000000000007",
        "detent dlq redrive --job report --yes",
        "detent dlq redrive --all --dry-run",
    ),
)
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@option("--job", metavar="JOB", shell_complete=complete_job, help="All dead runs of this job, by name or id.")
@option("--all", "every", is_flag=True, help="All dead runs.")
@option("--dry-run", is_flag=True, help="Say how many there are, and do nothing.")
@option("--yes", "-y", is_flag=True, help="Do not ask.")
@asks_server(quiet="the ids of the runs only")
def redrive(run_ids: tuple[str, ...], job: str | None, every: bool, dry_run: bool, yes: bool) -> int:
    """Bring dead runs back: they are tried again as the runs they are.

    A run keeps its id and its idempotency key, so a target that did the work
    after all can say so. The job is taken as it is now.
    """
    if [bool(run_ids), job is not None, every].count(True) != 1:
        raise UsageError("Say which dead runs: give their ids, or --job JOB, or --all.")
    from detent.cli.redriving import redrive_all, redrive_some

    with connect() as client:
        if run_ids:
            return redrive_some(client, run_ids, dry_run)
        return redrive_all(client, job, dry_run, yes)
