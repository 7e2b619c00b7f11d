"""`detent dlq …`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from detent.cli import output, prefixes, times
from detent.cli.base import F, command, group, option
from detent.cli.invocation import api_options, complete_job, connect
from detent.cli.output import Column, Item
from detent.cli.run_view import COLUMNS as RUN_COLUMNS
from detent.cli.runs import paging_options
from detent.cli.watch import watch as watching
from detent.cli.watch import watch_option
from detent.errors import UsageError

if TYPE_CHECKING:
    from detent.client import JsonClient

dlq = group("dlq", "Dead-letter queue: list, retry and discard dead runs.", panel="Jobs and runs")
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
    """The options that select dead runs: by id, of a job, of a group, or all."""
    yes = option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
    dry_run = option("--dry-run", is_flag=True, help="Count them, and change nothing.")
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
    help="Count them grouped by error; with the name of a group, list its runs.",
)
@paging_options
@watch_option
@api_options(quiet="ids only")
def list_dead(job: str | None, group: str | None, limit: int, cursor: str | None, watch: bool) -> None:
    """List the dead runs: those whose last attempt failed."""
    with connect() as client:
        if group == BY_GROUP:

            def groups(limit: int) -> Item:
                return {"items": client.list_dead_groups(job)["items"][:limit], "next_cursor": None}

            if watch:
                watching(groups, limit, GROUP_COLUMNS, EMPTY)
            else:
                output.print_page(groups(limit), GROUP_COLUMNS, EMPTY, identity="group")
            return
        dead = client.list_dead_letters(job, group=_whole_group(client, job, group))
        if watch:
            watching(dead.page, limit, RUN_COLUMNS, EMPTY)
        else:
            output.print_page(dead.gather(limit, cursor), RUN_COLUMNS, EMPTY)


def _whole_group(client: JsonClient, job: str | None, group: str | None) -> str | None:
    """The id of a group, also from a unique beginning of it."""
    if group is None:
        return None
    return prefixes.one_of("group", group, (each["group"] for each in client.list_dead_groups(job)["items"]))


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
@option("--rate", metavar="RATE", help="Maximum rate, such as 100/s; continues until none is left. [no limit]")
@api_options(quiet="the ids of the runs only")
def redrive(
    run_ids: tuple[str, ...],
    job: str | None,
    group: str | None,
    every: bool,
    dry_run: bool,
    yes: bool,
    rate: str | None,
) -> int:
    """Retry dead runs, each with its full number of attempts.

    A run keeps its id and its idempotency key, so a target that did the work
    can recognise it. The run uses the current definition of the job. After an
    interruption, repeat the command: no run is retried twice.
    """
    from detent.cli.redrive import DeadRunSelection, redrive_all, redrive_some
    from detent.domain.pace import read_rate

    DeadRunSelection(job, group, every).check(run_ids)
    with connect() as client:
        chosen = DeadRunSelection(job, _whole_group(client, job, group), every)
        if run_ids:
            if rate is not None:
                raise UsageError("--rate is given with run ids: it is for --job, --group and --all.")
            return redrive_some(client, prefixes.run_ids(client, run_ids), dry_run)
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
@api_options(quiet="nothing")
def discard(run_ids: tuple[str, ...], job: str | None, group: str | None, every: bool, dry_run: bool, yes: bool) -> int:
    """Discard dead runs: they stay in history, and are no longer dead letters."""
    from detent.cli.redrive import DeadRunSelection, discard_all, discard_some

    DeadRunSelection(job, group, every).check(run_ids)
    with connect() as client:
        chosen = DeadRunSelection(job, _whole_group(client, job, group), every)
        if run_ids:
            return discard_some(client, prefixes.run_ids(client, run_ids), dry_run, yes)
        return discard_all(client, chosen, dry_run, yes)
