"""`detent pause --all` and `detent resume --all`"""

from __future__ import annotations

from detent.cli import output
from detent.cli.base import command, option
from detent.cli.session import asks_server, connect
from detent.errors import UsageError

PANEL = "Look after it"


@command(None, "pause", panel=PANEL, examples=('detent pause --all --reason "the shop moves house"',))
@option("--all", "every", is_flag=True, help="Every job of every tenant.")
@option("--reason", metavar="TEXT", help="Why; shown to whoever looks at the cluster.")
@asks_server()
def pause(every: bool, reason: str | None) -> None:
    """Let no tick of any job fire until they are resumed.

    Runs that have been fired go on, and jobs can still be triggered.
    """
    if not every:
        raise UsageError("Say that you mean every job, with --all; one job is paused with `detent job pause JOB`.")
    if not reason:
        raise UsageError("Say why, with --reason TEXT, for whoever wonders why nothing fires.")
    with connect() as client:
        answer = client.pause_all(reason)
    output.say("No tick fires from now on: `detent resume --all` lets them fire again.")
    output.print_for_machines(answer)


@command(None, "resume", panel=PANEL, examples=("detent resume --all",))
@option("--all", "every", is_flag=True, help="Every job of every tenant.")
@asks_server()
def resume(every: bool) -> None:
    """Let ticks fire again.

    Those that fell into the pause are late or missed, by each job's own rule.
    """
    if not every:
        raise UsageError("Say that you mean every job, with --all; one job is resumed with `detent job resume JOB`.")
    with connect() as client:
        answer = client.resume_all()
    output.say("Ticks fire again.")
    output.print_for_machines(answer)
