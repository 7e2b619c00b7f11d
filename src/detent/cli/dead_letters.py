"""`detent dlq …`"""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from detent.cli import output, times
from detent.cli.base import F, command, group, option
from detent.cli.output import Column, Item
from detent.cli.runs import COLUMNS as RUN_COLUMNS
from detent.cli.runs import paging_options
from detent.cli.session import asks_server, complete_job, connect
from detent.cli.watch import watch as watching
from detent.cli.watch import watch_option
from detent.errors import UsageError

dlq = group("dlq", "Look at dead runs, bring them back, or deal with them for good.", panel="Jobs and runs")
arguments = click.argument("run_ids", metavar="[RUN]...", nargs=-1)
BY_GROUP = ""
EMPTY = "There are no dead runs."

GROUP_COLUMNS = (
    Column("GROUP", lambda group: group["group"]),
    Column("RUNS", lambda group: group["runs"], right=True),
    Column("JOBS", lambda group: group["jobs"], right=True),
    Column("LAST", lambda group: group["last"], lambda group, at: times.relative(group["last"], at)),
    Column("ERROR", lambda group: group["error"], least=30, folds=True),
    Column("SAMPLE", lambda group: group["sample"], extra=True),
)


def chosen_options(function: F) -> F:
    """Which dead runs: by id, of a job, of a group, or all."""
    yes = option("--yes", "-y", is_flag=True, help="Do not ask.")
    dry_run = option("--dry-run", is_flag=True, help="Say how many there are, and do nothing.")
    every = option("--all", "every", is_flag=True, help="All dead runs.")
    group = option("--group", metavar="GROUP", help="All dead runs of this group, see `detent dlq list --group`.")
    job = option("--job", metavar="JOB", shell_complete=complete_job, help="All dead runs of this job, by name or id.")
    return arguments(job(group(every(dry_run(yes(function))))))


@command(
    dlq,
    "list",
    examples=("detent dlq list", "detent dlq list --group", "detent dlq list --job report --group 1c5d7a20b3e4"),
)
@option("--job", metavar="JOB", shell_complete=complete_job, help="Only dead runs of this job, by name or id.")
@option(
    "--group",
    metavar="[GROUP]",
    is_flag=False,
    flag_value=BY_GROUP,
    help="Count them by what their errors have in common; with the name of a group, list its runs.",
)
@paging_options
@watch_option
@asks_server(quiet="ids only")
def list_dead(job: str | None, group: str | None, limit: int, cursor: str | None, watch: bool) -> None:
    """List the dead runs: those whose last attempt has failed."""
    from detent.client.documents import gather

    with connect() as client:
        if group == BY_GROUP:
            groups = partial(_groups, client.dead_groups, job)
            if watch:
                watching(groups, limit, GROUP_COLUMNS, EMPTY)
            else:
                output.print_page(groups(limit, cursor), GROUP_COLUMNS, EMPTY, identity="group")
            return
        fetch = partial(client.dead_letters, job=job, group=group)
        if watch:
            watching(fetch, limit, RUN_COLUMNS, EMPTY)
        else:
            output.print_page(gather(fetch, limit, cursor), RUN_COLUMNS, EMPTY)


def _groups(dead_groups: Any, job: str | None, limit: int, cursor: str | None) -> Item:
    return {"items": dead_groups(job=job)["items"][:limit], "next_cursor": None}


@command(
    dlq,
    "redrive",
    examples=(
        "detent dlq redrive 0192f4c8-8c00-7000-8000-000000000007",
        "detent dlq redrive --job report --yes",
        "detent dlq redrive --all --rate 100/s",
    ),
)
@chosen_options
@option("--rate", metavar="RATE", help="At most so many, such as 100/s, and until none is left. [as fast as possible]")
@asks_server(quiet="the ids of the runs only")
def redrive(
    run_ids: tuple[str, ...],
    job: str | None,
    group: str | None,
    every: bool,
    dry_run: bool,
    yes: bool,
    rate: str | None,
) -> int:
    """Bring dead runs back: they are tried again as the runs they are.

    A run keeps its id and its idempotency key, so a target that did the work
    after all can say so. The job is taken as it is now. What is broken off
    can be begun again: no run is brought back twice.
    """
    from detent.cli.redriving import Chosen, redrive_all, redrive_some
    from detent.domain.pace import read_rate

    chosen = Chosen(job, group, every)
    chosen.check(run_ids)
    with connect() as client:
        if run_ids:
            if rate is not None:
                raise UsageError("--rate is given beside ids: it is for --job, --group and --all.")
            return redrive_some(client, run_ids, dry_run)
        return redrive_all(client, chosen, None if rate is None else read_rate("--rate", rate), dry_run, yes)


@command(
    dlq,
    "discard",
    examples=(
        "detent dlq discard 0192f4c8-8c00-7000-8000-000000000007",
        "detent dlq discard --group 1c5d7a20b3e4 --dry-run",
    ),
)
@chosen_options
@asks_server(quiet="nothing")
def discard(run_ids: tuple[str, ...], job: str | None, group: str | None, every: bool, dry_run: bool, yes: bool) -> int:
    """Be done with dead runs: they stay in history, and are listed here no more."""
    from detent.cli.redriving import Chosen, discard_all, discard_some

    chosen = Chosen(job, group, every)
    chosen.check(run_ids)
    with connect() as client:
        if run_ids:
            return discard_some(client, run_ids, dry_run, yes)
        return discard_all(client, chosen, dry_run, yes)
