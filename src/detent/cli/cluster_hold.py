"""`detent pause --all` and `detent resume --all`"""

from __future__ import annotations

from detent.cli import output
from detent.cli.base import command, option
from detent.cli.invocation import api_options, connect
from detent.errors import UsageError

PANEL = "Administration"


@command(None, "pause", panel=PANEL, examples=('detent pause --all --reason "database migration"',))
@option("--all", "every", is_flag=True, help="Required: every job of every tenant.")
@option("--reason", metavar="TEXT", help="Required: the reason, shown with the cluster.")
@api_options(quiet="nothing")
def pause(every: bool, reason: str | None) -> None:
    """Pause all ticks of all jobs until they are resumed.

    Unfinished runs continue, and jobs can still be triggered.
    """
    if not every:
        raise UsageError("This pauses every job: confirm with --all. `detent job pause JOB` pauses one job.")
    if not reason:
        raise UsageError("--reason is missing: give the reason for the pause, it is shown with the cluster.")
    with connect() as client:
        answer = client.pause_all(reason)
    output.say("All ticks are paused: `detent resume --all` resumes them.")
    output.print_for_machines(answer)


@command(None, "resume", panel=PANEL, examples=("detent resume --all",))
@option("--all", "every", is_flag=True, help="Required: every job of every tenant.")
@api_options(quiet="nothing")
def resume(every: bool) -> None:
    """Resume all ticks.

    Ticks that came due during the pause run late or are recorded as missed,
    as each job's missed_window says.
    """
    if not every:
        raise UsageError("This resumes every job: confirm with --all. `detent job resume JOB` resumes one job.")
    with connect() as client:
        answer = client.resume_all()
    output.say("Ticks are resumed.")
    output.print_for_machines(answer)
