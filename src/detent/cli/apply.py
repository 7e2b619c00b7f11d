"""`detent apply`, `diff`, `validate` and `export`: jobs as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from detent.cli import output
from detent.cli.base import command, option
from detent.cli.files import Mistakes, file_options, read_declared
from detent.cli.session import asks_server, connect, session, shapes
from detent.errors import UsageError

if TYPE_CHECKING:
    from detent.declarative.export import Format
    from detent.declarative.jobs_file import Declared

PANEL = "Jobs as files"
CHANGES = 2  # of `detent diff --exit-code`

owner_option = option("--owner", metavar="LABEL", help="Whose jobs these are; files may say it as `owner:`.")
prune_option = option("--prune", is_flag=True, help="Delete the owner's jobs that are in none of the files.")


@command(
    None,
    "apply",
    panel=PANEL,
    examples=("detent apply -f jobs.yaml", "detent apply -f jobs/ -R --prune --owner team-a --yes"),
)
@file_options()
@owner_option
@prune_option
@option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@option("--yes", "-y", is_flag=True, help="Do not ask.")
@asks_server(quiet="the names of the jobs that change")
def apply(files: tuple[str, ...], recursive: bool, owner: str | None, prune: bool, dry_run: bool, yes: bool) -> int:
    """Make the server have the jobs that files declare.

    Everything is checked first, and every mistake is told with its line. Then
    a plan is shown, and carried out when you agree. Jobs that are as declared
    are left alone, so it can be repeated at any time, also after a crash.
    """
    from detent.cli.planning import carry_out, document_of, plan_for, say_done, show_plan

    declared, pruned = _declared(files, recursive, owner, prune)
    with connect() as client:
        plan = plan_for(client, declared, pruned)
        show_plan(plan)
        if dry_run or not plan.changes:
            if session().shape == "json":
                output.print_json(document_of(plan))
            return 0
        again = f"detent apply {' '.join(f'-f {path}' for path in files)} --yes"
        if not output.agreed(yes, "Make these changes?", again):
            output.say("Nothing was changed.")
            return 1
        say_done(carry_out(client, plan))
    return 0


@command(None, "diff", panel=PANEL, examples=("detent diff -f jobs.yaml", "detent diff -f jobs.yaml --exit-code"))
@file_options()
@owner_option
@prune_option
@option("--exit-code", is_flag=True, help="Exit with 2 when there are changes, for scripts.")
@asks_server(quiet="the names of the jobs that change")
def diff(files: tuple[str, ...], recursive: bool, owner: str | None, prune: bool, exit_code: bool) -> int:
    """Show what `detent apply` would change."""
    from detent.cli.planning import document_of, plan_for, show_plan

    declared, pruned = _declared(files, recursive, owner, prune)
    with connect() as client:
        plan = plan_for(client, declared, pruned)
    show_plan(plan)
    if session().shape == "json":
        output.print_json(document_of(plan))
    return CHANGES if exit_code and plan.changes else 0


@command(None, "validate", panel=PANEL, examples=("detent validate -f jobs.yaml",))
@file_options()
@shapes()
def validate(files: tuple[str, ...], recursive: bool) -> int:
    """Check files of jobs without a server."""
    try:
        declared = read_declared(files, recursive)
    except Mistakes as mistakes:
        if session().shape != "json":
            raise
        faults = [{"file": fault.source, "line": fault.line, "message": fault.message} for fault in mistakes.faults]
        output.print_json({"jobs": None, "faults": faults})
        return mistakes.exit_code
    for job in declared:
        for warning in job.warnings:
            output.say(f"{job.source}:{job.line}: note: {warning}")
    if session().shape == "json":
        output.print_json({"jobs": len(declared), "faults": []})
    output.say(f"{len(declared)} job{'' if len(declared) == 1 else 's'}, no mistakes.")
    return 0


@command(None, "export", panel=PANEL, examples=("detent export --owner team-a > jobs.yaml",))
@option("--owner", metavar="LABEL", help="Only the jobs of this owner.")
@option("--format", "form", type=click.Choice(["yaml", "json"]), default="yaml", help="[yaml]")
@option("--output", "-o", "path", metavar="FILE", help="Write to this file. [stdout]")
@asks_server()
def export(owner: str | None, form: str, path: str | None) -> None:
    """Write the server's jobs as a file that `detent apply` reads.

    Jobs that are completed or deleted are left out.
    """
    from detent.cli.planning import all_jobs
    from detent.declarative.export import export as written

    with connect() as client:
        jobs = [job for job in all_jobs(client, owner=owner) if job["status"] in ("active", "paused")]
    text = written(jobs, owner, cast("Format", "json" if session().shape == "json" else form))
    if path is None:
        print(text, end="")
    else:
        _write(Path(path), text)
    if any(job["target"].get("headers") or job["target"].get("env") for job in jobs):
        output.say(
            "note: Headers and variables are written as they are, passwords too: keep the file where they may be."
        )
    paused = sum(job["status"] == "paused" for job in jobs)
    output.say(f"Exported {len(jobs)} jobs{f'; {paused} are paused, which a file does not say' if paused else ''}.")


def _write(path: Path, text: str) -> None:
    try:
        path.expanduser().write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}).") from error


def _declared(
    files: Sequence[str], recursive: bool, owner: str | None, prune: bool
) -> tuple[list[Declared], str | None]:
    """The jobs of the files, and whose other jobs are to go."""
    from detent.declarative.jobs_file import check_owner

    declared = read_declared(files, recursive)
    if owner is not None:
        check_owner(owner)
        other = next((job for job in declared if job.owner not in (None, owner)), None)
        if other is not None:
            said = f"--owner is {owner!r}, and {other.source} says owner: {other.owner}"
            raise UsageError(f"{said}: leave one of them out.")
        declared = [job._replace(owner=owner) for job in declared]
    return declared, _pruned(declared) if prune else None


def _pruned(declared: Sequence[Declared]) -> str:
    named = {job.owner for job in declared if job.owner is not None}
    if len(named) != 1 or any(job.owner is None for job in declared):
        label = f", such as --owner {min(named)}" if named else ""
        raise UsageError(f"--prune deletes jobs of one owner only: say whose with --owner{label}.")
    return named.pop()
