"""`detent explain` and `detent audit`: what happened to one tick, and whether every tick is accounted for."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from detent.cli import output, times
from detent.cli.audit_view import show
from detent.cli.base import command, option
from detent.cli.invocation import api_options, complete_job, connect, invocation
from detent.cli.jobs import argument, zone_of
from detent.cli.mistaken_ids import perhaps_a_run
from detent.cli.output import Item
from detent.cli.progress import Progress
from detent.cli.text import clean

if TYPE_CHECKING:
    from detent.client import JsonClient

NAMED_TICKS = ("last", "next", "now")
JOBS_PER_PAGE = 100


@command(
    None,
    "explain",
    panel="Jobs and runs",
    examples=(
        "detent explain report last",
        "detent explain report 2030-01-31T09:00:00Z",
        'detent explain report "yesterday 02:30"',
    ),
)
@argument
@click.argument("time", metavar="[TIME]", default="last")
@api_options(quiet="the id of its run only")
def explain(job_name: str, time: str) -> None:
    """Explain what happened to one tick of a job, and why.

    TIME is last, next or now, or a time such as 2h, yesterday 09:00 or
    2030-01-31T09:00:00Z. Without an offset it is in the zone of the job.
    """
    with connect() as client, perhaps_a_run(job_name):
        answer = client.explain_tick(job_name, _asked(client, job_name, time))
    match invocation().format:
        case "json":
            output.print_json(answer)
        case "quiet":
            output.print_lines([(answer["run_id"],)] if answer["run_id"] else [])
        case _:
            for sentence in answer["sentences"]:
                print(clean(sentence))


def _asked(client: JsonClient, job_name: str, text: str) -> str | datetime:
    """A time of the wall clock is sent as one: the server also explains those that its zone leaves out."""
    if text in NAMED_TICKS:
        return text
    if times.needs_zone(text):
        return times.wall_time("TIME", text, zone_of(client, job_name)(), ahead=False)
    return times.read_moment("TIME", text, ahead=False)


class AuditTotals:
    """The sums over all audited jobs."""

    def __init__(self) -> None:
        self.jobs = self.expected = self.missing = self.doubled = self.extra = self.late = self.other = 0
        self.overdue = self.unknown = 0
        self.unaudited_since: str | None = None
        self.accounted: Counter[str] = Counter()
        self.open: Counter[str] = Counter()
        self.lateness: Counter[int] = Counter()
        self.wrong: list[Item] = []

    def add(self, job: Item) -> None:
        self.expected += job["expected"]
        self.missing += job["missing"]
        self.doubled += job["doubled"]
        self.extra += job["extra"]
        self.late += job["late"]
        self.other += job["other_zone_data"]
        self.overdue += job.get("overdue", 0)
        self.unknown += len(job.get("unknown", ()))
        self.accounted.update(job["accounted_for"])
        self.open.update(job["open"])
        self.lateness.update({int(value): count for value, count in job["lateness_ms"].items()})
        if any(job.get(kind) for kind in ("missing", "doubled", "extra", "overdue", "unknown", "other_zone_data")):
            self.wrong.append(job)

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong and nothing is unknown."""
        return not self.wrong and self.unaudited_since is None

    @property
    def p99(self) -> int | None:
        from detent.domain.ledger import quantile

        return quantile(self.lateness, 0.99)


@command(
    None,
    "audit",
    panel="Jobs and runs",
    examples=("detent audit", "detent audit --since 7d --job report", "detent audit --json"),
)
@option("--since", metavar="TIME", help="Ticks after this time, such as 7d, yesterday or 2030-01-31T12:00:00Z. [24h]")
@option("--until", metavar="TIME", help="Ticks up to this time, such as 1h, for an hour ago. [now]")
@option(
    *("--job", "jobs"),
    metavar="JOB",
    multiple=True,
    shell_complete=complete_job,
    help="Only this job; may be repeated.",
)
@option("--late", metavar="TIME", default="1s", help="Count runs that start later than this after their tick. [1s]")
@api_options(quiet="nothing: the exit code is the answer")
def audit(since: str | None, until: str | None, jobs: tuple[str, ...], late: str) -> int:
    """Recompute which ticks were due, and compare them with the recorded ones.

    Exit code 1 when a tick is missing, doubled or overdue, when a run belongs
    to no tick, or when part of the period cannot be checked: a schedule that
    cannot be read, or ticks whose history is no longer kept.
    """
    first = None if since is None else times.read_moment("--since", since, ahead=False)
    last = None if until is None else times.read_moment("--until", until, ahead=False)
    late_ms = round(times.read_duration("--late", late) * 1000)
    with connect() as client:
        totals, window = _audit(client, first, last, jobs, late_ms)
    match invocation().format:
        case "json":
            output.print_json(_document(totals, window))
        case "text":
            show(totals, window, late)
    return 0 if totals.clean else 1


def _audit(
    client: JsonClient, since: datetime | None, until: datetime | None, jobs: tuple[str, ...], late_ms: int
) -> tuple[AuditTotals, Item]:
    totals = AuditTotals()
    page = client.audit(since, until, jobs=jobs, late_ms=late_ms).page(JOBS_PER_PAGE)
    window = {"since": page["since"], "until": page["until"]}
    # The following pages are about the period of the first one.
    audited = client.audit(*map(datetime.fromisoformat, window.values()), jobs=jobs, late_ms=late_ms)
    totals.unaudited_since = page.get("unaudited_since")
    with Progress("jobs", page["jobs"]) as progress:
        while True:
            totals.jobs += page["audited"]
            for job in page["items"]:
                totals.add(job)
            progress.update(totals.jobs)
            if page["next_cursor"] is None:
                return totals, window
            page = audited.page(JOBS_PER_PAGE, page["next_cursor"])


def _document(totals: AuditTotals, window: Item) -> dict[str, Any]:
    return {
        **window,
        "jobs": totals.jobs,
        "expected": totals.expected,
        "accounted_for": dict(sorted(totals.accounted.items())),
        "open": dict(sorted(totals.open.items())),
        "missing": totals.missing,
        "doubled": totals.doubled,
        "extra": totals.extra,
        "other_zone_data": totals.other,
        "overdue": totals.overdue,
        "unknown": totals.unknown,
        "unaudited_since": totals.unaudited_since,
        "late": totals.late,
        "late_p99_ms": totals.p99,
        "wrong": totals.wrong,
    }
