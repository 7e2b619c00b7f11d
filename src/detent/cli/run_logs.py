"""`detent run logs`: what a run has written, and what it writes."""

from __future__ import annotations

import json
from collections.abc import Iterator

from detent.cli import output, times
from detent.cli.base import command, on_terminal, option
from detent.cli.invocation import api_options, connect, invocation, read_number
from detent.cli.output import Item
from detent.cli.run_view import progress_text
from detent.cli.runs import argument, run
from detent.cli.text import clean
from detent.domain.counts import plural
from detent.domain.text import visible_json

__all__ = ["run"]  # with the verbs of the other module and of this one

STYLES = {"debug": "dim", "warning": "yellow", "error": "red", "critical": "bold red"}
NO_LINES = "This run has written no lines."


@command(
    run,
    "logs",
    examples=(
        "detent run logs 0192f4c8-8c00-7000-8000-000000000007",
        "detent run logs 0192f4c8-8c00-7000-8000-000000000007 --follow",
    ),
)
@argument
@option("--follow", "-f", is_flag=True, help="Show further lines as they are written, until the run has ended.")
@option(
    "--attempt",
    metavar="N",
    callback=lambda context, parameter, text: None if text is None else read_number("--attempt", text, 1, 32_767),
    help="Only the lines of this attempt.",
)
@api_options(quiet="the messages only", json="Print JSON; with --follow, one line for each event.")
def logs(run_id: str, follow: bool, attempt: int | None) -> None:
    """Show what a run has logged and printed, or what its command has written."""
    with connect() as client:
        lines = LinePrinter(run_id)
        if follow:
            for kind, document in client.follow_run_logs(run_id, attempt=attempt):
                lines.show_event(kind, document)
            return
        found = list(client.list_run_logs(run_id, attempt=attempt))
    if invocation().format == "json":
        output.print_json({"items": found})
        return
    for line in found:
        lines.show(line)
    if not found and on_terminal():
        output.say(NO_LINES)


class LinePrinter:
    """Prints lines one by one, and how many are missing between two of them."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._attempt = 0
        self._number = 0
        self._terminal = output.console() if on_terminal() else None

    def show_event(self, kind: str, document: Item) -> None:
        if invocation().format == "json":
            print(visible_json(json.dumps({"event": kind, **document})), flush=True)
        elif kind == "line":
            self.show(document)
        elif invocation().format == "text" and kind == "progress":
            output.say(progress_text(document))
        elif invocation().format == "text" and kind == "end" and document["status"] is not None:
            output.say(self._end(document["status"]))

    def show(self, line: Item) -> None:
        for note in self._notes(line):
            output.say(note)
        self._attempt, self._number = line["attempt"], line["number"]
        if invocation().format == "quiet":
            print(clean(line["message"]), flush=True)
        elif self._terminal is None:
            cells = (line["attempt"], line["number"], line["at"], line["level"], line["logger"], line["message"])
            output.print_lines([cells])
        else:
            self._print(line)

    def _notes(self, line: Item) -> Iterator[str]:
        if invocation().format != "text":
            return
        # A lower number: an attempt that was not counted, whose number the next one has.
        if line["attempt"] != self._attempt or line["number"] <= self._number:
            if self._attempt or line["attempt"] > 1:
                yield f"Attempt {line['attempt']}:"
            self._number = 0
        missing = line["number"] - self._number - 1
        if missing > 0:
            yield f"… {plural(missing, 'line')} left out"

    def _end(self, status: str) -> str:
        """An attempt that was followed alone may be over before its run is."""
        match status:
            case "succeeded":
                return "The run succeeded."
            case "dead" | "cancelled":
                verb = "is" if status == "dead" else "was"
                return f"The run {verb} {status}: `detent run get {self._run_id}` shows why."
        return f"The attempt is over; the run is {status}."

    def _print(self, line: Item) -> None:
        from rich.text import Text

        assert self._terminal is not None
        at = times.read_instant(line["at"])
        shown = Text(f"{at:%H:%M:%S}.{at.microsecond // 1000:03d} " if at else "", style="dim")
        if line["logger"] not in ("stdout", "output"):
            source = "stderr:" if line["logger"] == "stderr" else f"{line['level']} {line['logger']}:"
            shown.append(f"{clean(source)} ", style=STYLES.get(line["level"], "cyan"))
        shown.append(clean(line["message"]), style=STYLES.get(line["level"], ""))
        self._terminal.print(shown, soft_wrap=True)
