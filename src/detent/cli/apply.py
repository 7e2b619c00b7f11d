"""`detent apply`, `diff`, `validate` and `export`: jobs as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from detent.cli import output
from detent.cli.base import command, option
from detent.cli.files import JobFileError, file_options, read_declared
from detent.cli.invocation import api_options, connect, format_options, invocation
from detent.domain.counts import plural
from detent.errors import UsageError

if TYPE_CHECKING:
    from detent.declarative.export import Format
    from detent.declarative.jobs_file import Declared

PANEL = "Jobs as files"
CHANGES = 2  # exit code of `detent diff --exit-code`

owner_option = option("--owner", metavar="LABEL", help="Owner of these jobs; files may set it as `owner:`.")


@command(
    None,
    "apply",
    panel=PANEL,
    examples=("detent apply jobs.yaml", "detent apply jobs/ -R --prune --owner team-a --yes"),
)
@file_options()
@owner_option
@option("--prune", is_flag=True, help="Delete the owner's jobs that are in none of the files.")
@option("--dry-run", is_flag=True, help="Show the plan, and change nothing.")
@option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@api_options(quiet="the names of the jobs that change")
def apply(files: tuple[str, ...], recursive: bool, owner: str | None, prune: bool, dry_run: bool, yes: bool) -> int:
    """Create and change jobs to match files.

    First all files are checked, and every error is reported with its line.
    Then the plan is shown, and executed when you confirm it. Jobs that already
    match are not changed, so the command can be repeated, even after a crash.
    """
    from detent.cli.apply_plan import carry_out, document_of, plan_for, say_done, show_plan

    declared, pruned = _declared(files, recursive, owner, prune)
    with connect() as client:
        plan = plan_for(client, declared, pruned)
        show_plan(plan)
        if dry_run or not plan.changes:
            if invocation().format == "json":
                output.print_json(document_of(plan))
            return 0
        again = f"detent apply {' '.join(f'-f {path}' for path in files)} --yes"
        if not output.agreed(yes, "Make these changes?", again):
            output.say("Nothing was changed.")
            return 1
        say_done(carry_out(client, plan))
    return 0


@command(None, "diff", panel=PANEL, examples=("detent diff jobs.yaml", "detent diff jobs.yaml --exit-code"))
@file_options()
@owner_option
@option("--prune", is_flag=True, help="Also show the owner's jobs that `detent apply --prune` would delete.")
@option("--exit-code", is_flag=True, help="Exit code 2 if there are changes, for scripts.")
@api_options(quiet="the names of the jobs that change")
def diff(files: tuple[str, ...], recursive: bool, owner: str | None, prune: bool, exit_code: bool) -> int:
    """Show what `detent apply` would change."""
    from detent.cli.apply_plan import document_of, plan_for, show_plan

    declared, pruned = _declared(files, recursive, owner, prune)
    with connect() as client:
        plan = plan_for(client, declared, pruned)
    show_plan(plan)
    if invocation().format == "json":
        output.print_json(document_of(plan))
    return CHANGES if exit_code and plan.changes else 0


@command(None, "validate", panel=PANEL, examples=("detent validate jobs.yaml",))
@file_options()
@format_options()
def validate(files: tuple[str, ...], recursive: bool) -> int:
    """Check job files without a server."""
    try:
        declared = read_declared(files, recursive)
    except JobFileError as errors:
        if invocation().format != "json":
            raise
        faults = [{"file": fault.source, "line": fault.line, "message": fault.message} for fault in errors.faults]
        output.print_json({"jobs": None, "faults": faults})
        return errors.exit_code
    for job in declared:
        for warning in job.warnings:
            output.say(f"{job.source}:{job.line}: note: {warning}")
    if invocation().format == "json":
        output.print_json({"jobs": len(declared), "faults": []})
    output.say(f"{plural(len(declared), 'job')}, no errors.")
    return 0


@command(None, "export", panel=PANEL, examples=("detent export --owner team-a > jobs.yaml",))
@option("--owner", metavar="LABEL", help="Only the jobs of this owner.")
@option("--format", "form", type=click.Choice(["yaml", "json"]), default="yaml", help="Format of the file. [yaml]")
@option("--output", "-o", "path", metavar="FILE", help="Write to this file. [stdout]")
@api_options(json="The same as --format json.")
def export(owner: str | None, form: str, path: str | None) -> None:
    """Write the server's jobs as a file for `detent apply`.

    Completed and deleted jobs are left out.
    """
    from detent.declarative.export import export as written

    with connect() as client:
        jobs = [job for job in client.list_jobs(owner=owner) if job["status"] in ("active", "paused")]
    text = written(jobs, owner, cast("Format", "json" if invocation().format == "json" else form))
    if path is None:
        print(text, end="")
    else:
        _write(Path(path), text)
    if any(job["target"].get("headers") or job["target"].get("env") for job in jobs):
        output.say("note: The file contains headers and environment variables, including secrets: store it safely.")
    paused = sum(job["status"] == "paused" for job in jobs)
    output.say(
        f"Exported {plural(len(jobs), 'job')}{f'; {paused} paused, which the file does not record' if paused else ''}."
    )


def _write(path: Path, text: str) -> None:
    try:
        path.expanduser().write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}).") from error


def _declared(
    files: Sequence[str], recursive: bool, owner: str | None, prune: bool
) -> tuple[list[Declared], str | None]:
    """The jobs of the files, and the owner whose other jobs are to be deleted."""
    from detent.declarative.jobs_file import check_owner

    declared = read_declared(files, recursive)
    if owner is not None:
        check_owner(owner)
        other = next((job for job in declared if job.owner not in (None, owner)), None)
        if other is not None:
            both = f"--owner is {owner!r}, and {other.source} has owner: {other.owner}"
            raise UsageError(f"{both}: leave one of them out.")
        declared = [job._replace(owner=owner) for job in declared]
    return declared, _pruned(declared) if prune else None


def _pruned(declared: Sequence[Declared]) -> str:
    named = {job.owner for job in declared if job.owner is not None}
    if len(named) != 1 or any(job.owner is None for job in declared):
        label = f", such as --owner {min(named)}" if named else ""
        raise UsageError(f"--prune deletes jobs of one owner only: give --owner{label}.")
    return named.pop()
