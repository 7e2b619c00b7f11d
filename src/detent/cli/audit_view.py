"""The result of `detent audit` for people: sums, and a line for each tick that is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from detent.cli import output, times
from detent.cli.base import on_terminal
from detent.cli.output import Column, Item
from detent.domain.counts import plural

if TYPE_CHECKING:
    from detent.cli.audit import AuditTotals

MAX_SHOWN = 20


class WrongTick(NamedTuple):
    """`what` is wrong with a tick of a job, or with several of them."""

    what: str
    job: str
    at: str | None
    until: str | None = None
    note: str = ""

    @property
    def sentence(self) -> str:
        span = f" to {self.until}" if self.until else ""
        when = "" if self.at is None else f" {'from ' if self.what == 'unknown' else ''}{self.at}{span}"
        return f"{self.what}: {self.job}{when}{self.note}"


def show(totals: AuditTotals, window: Item, late: str) -> None:
    jobs = plural(totals.jobs, "job")
    if on_terminal():
        since, until = times.clock(window["since"]), times.local(window["until"])
        output.say(f"Ticks of {jobs}, from {since} to {until}:\n")
        output.print_figures(list(_figures(totals, late)))
        print()
    else:
        output.say(f"Ticks of {jobs} after {window['since']}, up to {window['until']}:")
        output.print_lines(_figures(totals, late))
    _show_wrong([tick for job in totals.wrong[:MAX_SHOWN] for tick in _wrong_ticks(job)])
    if len(totals.wrong) > MAX_SHOWN:
        output.say(f"And {plural(len(totals.wrong) - MAX_SHOWN, 'more job')}; --json lists all of them.")
    if totals.unaudited_since is not None:
        first, last = totals.unaudited_since, window["since"]
        output.say(f"unknown: ticks after {first}, up to {last}: their history is no longer kept (history_days)")
    if totals.clean:
        output.say("Every tick is accounted for exactly once, or still open.")


def _figures(totals: AuditTotals, late: str) -> Iterator[tuple[str, object]]:
    yield "expected", totals.expected
    yield "accounted for", totals.accounted.total()
    yield from ((f"  {words}", count) for words, count in sorted(totals.accounted.items()))
    yield "open", totals.open.total()
    yield from ((f"  {words}", count) for words, count in sorted(totals.open.items()))
    yield from (("missing", totals.missing), ("doubled", totals.doubled))
    for name, count in (
        ("extra", totals.extra),
        ("of other zone data", totals.other),
        ("overdue", totals.overdue),
        ("unknown spans", totals.unknown),
    ):
        if count:
            yield name, count
    yield f"late, more than {late}", totals.late
    yield "late, 99th percentile", times.span(totals.p99) or "-"


WRONG = (
    Column("WRONG", lambda tick: tick["what"]),
    Column("JOB", lambda tick: tick["job"], least=12),
    Column("TICK", lambda tick: tick["at"], lambda tick, at: _span(tick)),
    Column("NOTE", lambda tick: tick["note"], least=30, folds=True),
)


def _span(tick: Item) -> str:
    until = f" to {times.clock(tick['until'])}" if tick["until"] else ""
    return f"{times.clock(tick['at'])}{until}"


def _show_wrong(ticks: list[WrongTick]) -> None:
    if not on_terminal():
        for tick in ticks:
            output.say(tick.sentence)
    elif ticks:
        output.print_table([{**tick._asdict(), "note": tick.note.lstrip(",: ")} for tick in ticks], WRONG)
        print()


def _wrong_ticks(job: Item) -> Iterator[WrongTick]:
    name = job["job"]
    for what, ticks in (("missing", job["missing_ticks"]), ("doubled", job["doubled_ticks"])):
        yield from (WrongTick(what, name, tick) for tick in ticks[:MAX_SHOWN])
        if job[what] > MAX_SHOWN:
            yield WrongTick(what, name, None, note=f" and {job[what] - MAX_SHOWN} more")
    for entry in job["extra_entries"][:MAX_SHOWN]:
        many = f", {plural(entry['ticks'], 'tick')}" if entry["ticks"] > 1 else ""
        until = entry["until"] if entry["ticks"] > 1 else None
        yield WrongTick("extra", name, entry["at"], until, f"{many}, {entry['status']}")
    for span in job.get("unknown", ())[:MAX_SHOWN]:
        yield WrongTick("unknown", name, span["since"], span["until"], f": {span['why']}")
    if job.get("overdue"):
        overdue = plural(job["overdue"], "tick")
        yield WrongTick("overdue", name, None, note=f" {overdue}, the oldest {job['oldest_due']}: not fired yet")
    if job["other_zone_data"]:
        other = plural(job["other_zone_data"], "tick")
        yield WrongTick("unknown", name, None, note=f" {other} computed with another release of the zone data")
