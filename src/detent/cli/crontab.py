"""`detent import crontab`"""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import TYPE_CHECKING

import click

from detent.cli import base, output, times
from detent.cli.base import command, group, option
from detent.cli.files import STDIN, read_text
from detent.cli.invocation import api_options, connect, invocation
from detent.cli.text import clean
from detent.domain.counts import plural
from detent.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from detent.client import JsonClient
    from detent.declarative.crontab import ImportOptions, ImportVerdict, Translation
    from detent.declarative.jobs_file import Declared

importing = group("import", "Import jobs from other schedulers.", panel="Jobs as files")

SYSTEM = ("/etc/crontab", "/etc/cron.d/")
STYLES = {"job": "green", "refused": "red", "off": "yellow", "setting": "cyan"}


@command(
    importing,
    "crontab",
    examples=(
        "detent import crontab /etc/crontab --dry-run",
        "crontab -l | detent import crontab - --yes",
        "detent import crontab jobs.cron --output jobs.yaml",
    ),
)
@click.argument("file", metavar="FILE")
@option("--user-column/--no-user-column", default=None, help="Whether each line names a user. [detected]")
@option("--timezone", "--tz", "timezone", metavar="ZONE", help="Time zone of the crontab's host. [this host's zone]")
@option(
    "--target",
    type=click.Choice(["shell", "http-template"]),
    default="shell",
    help="Turn commands into shell jobs, or into HTTP calls to --url with the command as payload. [shell]",
)
@option("--url", metavar="URL", help="With http-template: the address; {name} is replaced by the job's name.")
@option("--prefix", default="", metavar="TEXT", help="Prefix of every job name.")
@option("--queue", metavar="NAME", help="The queue of the jobs. [default]")
@option("--owner", metavar="LABEL", help="Owner of the jobs, see `detent apply --prune`.")
@option("--output", "-o", "path", metavar="FILE", help="Write the jobs to a file for `detent apply` instead.")
@option("--dry-run", is_flag=True, help="Only explain the lines; calls no server.")
@option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@api_options()
def crontab(
    file: str,
    user_column: bool | None,
    timezone: str | None,
    target: str,
    url: str | None,
    path: str | None,
    dry_run: bool,
    yes: bool,
    **rest: str | None,
) -> int:
    """Import the lines of a crontab as jobs; - reads stdin.

    First every line is explained: the job that it becomes, or why it cannot
    be imported.
    """
    from detent.declarative.crontab import translate

    text = read_text(file)
    options = _options(file, text, user_column, timezone, _url(target, url), rest)
    translation = translate(file, text, options, times.now())
    _show(translation, options)
    if not translation.jobs:
        output.say("There is nothing to import.")
        return 1 if translation.refused else 0
    if path is not None:
        return write_jobs(translation.jobs, options.owner, Path(path))
    if dry_run:
        return 0
    again = f"detent import crontab {'-' if file == STDIN else file} --yes"
    return create_jobs(
        translation.jobs, yes, again, f"Remove the lines from the crontab{_hint(file)}, or they run twice"
    )


def _url(target: str, url: str | None) -> str | None:
    if target == "http-template" and not url:
        raise UsageError(
            "--target http-template needs an address: give it with --url, such as https://host/run/{name}."
        )
    if target == "shell" and url:
        raise UsageError("--url is given without --target http-template: give both, or neither.")
    return url


def _options(
    file: str, text: str, user_column: bool | None, timezone: str | None, url: str | None, rest: dict[str, str | None]
) -> ImportOptions:
    from detent.cli.local_zone import local_zone
    from detent.declarative.crontab import ImportOptions
    from detent.declarative.crontab_lines import has_user_column
    from detent.declarative.jobs_file import check_owner

    if user_column is None:
        whole = str(Path(file).absolute())
        known = {entry.pw_name for entry in pwd.getpwall()} | {"root"}
        user_column = whole.startswith(SYSTEM) or has_user_column(text, known)
    return ImportOptions(
        timezone=checked_zone(timezone) if timezone else local_zone(),
        user_column=user_column,
        url=url,
        prefix=rest["prefix"] or "",
        owner=check_owner(rest["owner"]) if rest["owner"] else None,
        queue=rest["queue"],
    )


def checked_zone(name: str) -> str:
    from detent.domain.schedule import ScheduleError
    from detent.domain.schedule.zones import load_zone

    try:
        return load_zone(name).name
    except ScheduleError as error:
        raise UsageError(f"--timezone: {error.message}") from error


def _show(translation: Translation, options: ImportOptions) -> None:
    if invocation().format == "json":
        output.print_json(_document(translation, options))
        return
    form = "a system crontab, with a user column" if options.user_column else "a user's crontab"
    show_verdicts(translation, f"Read as {form}, in {options.timezone}.", "line")


def show_verdicts(translation: Translation, read: str, unit: str) -> None:
    """A paragraph for each line, or for another unit; and how all of them were read."""
    shown = [verdict for verdict in translation.verdicts if verdict.what != "blank"]
    if base.on_terminal():
        for verdict in shown:
            _show_verdict(verdict)
    else:
        output.print_lines(
            (one.line.number, one.what, one.job.name if one.job else None, " ".join(one.sentences)) for one in shown
        )
    output.say(read)
    for note in translation.notes:
        output.say(f"note: {note}")
    jobs, refused = len(translation.jobs), len(translation.refused)
    several = "entries" if unit == "entry" else f"{unit}s"
    output.say(f"{plural(jobs, 'job')}; {refused} {unit if refused == 1 else several} cannot be imported.")


def _show_verdict(verdict: ImportVerdict) -> None:
    from rich.padding import Padding
    from rich.text import Text

    terminal = output.console()
    head = Text(f"{verdict.line.number:>4}  ", style="dim").append(clean(verdict.line.text.strip()), style="bold")
    terminal.print(head, overflow="ellipsis", no_wrap=True)
    for position, sentence in enumerate(verdict.sentences):
        style = STYLES.get(verdict.what, "") if position == 0 else ""
        mark = "→ " if position == 0 else "· "
        terminal.print(Padding(Text(mark + clean(sentence), style=style), (0, 0, 0, 6)))


def _document(translation: Translation, options: ImportOptions) -> dict[str, object]:
    return {
        "user_column": options.user_column,
        "timezone": options.timezone,
        "notes": translation.notes,
        "lines": verdict_documents(translation, "line"),
    }


def verdict_documents(translation: Translation, unit: str) -> list[dict[str, object]]:
    return [
        {
            unit: one.line.number,
            "text": one.line.text,
            "what": one.what,
            "explanation": one.sentences,
            "job": one.job.document if one.job else None,
        }
        for one in translation.verdicts
    ]


def write_jobs(jobs: Sequence[Declared], owner: str | None, path: Path) -> int:
    from detent.declarative.yaml_text import write

    whole = {"owner": owner} if owner else {}
    whole["jobs"] = [job.document for job in jobs]  # type: ignore[assignment]  # the values differ in type
    try:
        path.expanduser().write_text(write(whole), "utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}).") from error
    output.say(f"Wrote {plural(len(jobs), 'job')} to {path}: review it, then run `detent apply -f {path}`.")
    return 0


def create_jobs(
    jobs: Sequence[Declared], yes: bool, again: str, after: str, paused: Collection[str] = frozenset()
) -> int:
    """`again`: the command without a question. `after`: what is to be done when they exist. `paused`: by name."""
    from detent.cli.apply_plan import carry_out, plan_for, show_plan, summary

    with connect() as client:
        plan = plan_for(client, jobs, None)
        if plan.of("update"):
            show_plan(plan)
        else:
            output.say(summary(plan))
        if not plan.changes:
            _report_active(client, paused)
            return 0
        if not output.agreed(yes, "Create these jobs?", again):
            output.say("Nothing was created.")
            return 1
        done = carry_out(client, plan)
        for name in sorted(paused):
            client.pause_job(name, reason="disabled where it was imported from")
    parts = [f"{count} {word}" for word, count in done.items() if count]
    output.say(f"Done: {', '.join(parts)}. {after}.")
    return 0


def _report_active(client: JsonClient, names: Collection[str]) -> None:
    """An import that was interrupted has created them and not paused them; or they were resumed since."""
    active = [name for name in sorted(names) if client.get_job(name)["status"] == "active"]
    if active:
        output.say(
            f"note: Disabled where they are imported from, and active here: {', '.join(active)}. To pause one, run "
            "`detent job pause NAME`."
        )


def _hint(file: str) -> str:
    return "" if file == STDIN or not Path(file).is_absolute() else f" {file}"
