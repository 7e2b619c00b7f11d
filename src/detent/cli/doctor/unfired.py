"""Checks for jobs that cannot fire: set aside by their leader, or with an unreadable schedule."""

from __future__ import annotations

from collections.abc import Iterator

from detent.cli import times
from detent.cli.doctor.results import CheckResult, number, some
from detent.store import sql
from detent.store.doctor import Doctor, TooSlow
from detent.store.stored_schedules import UnreadableSchedule, read_schedule

MAX_NAMED = 5
MAX_READ = 20_000
ADVICE = (
    "Upgrade the schedulers if a newer version wrote it; otherwise edit the job, which rewrites it. The leader"
    " retries at least every ten minutes."
)


OTHER_RULES = (
    "Accept the new rules with `detent job edit NAME --set tzdata_policy=recompute`, or install the former zone data."
    " The leader retries at least every ten minutes."
)


def _advice(why: str) -> str:
    return OTHER_RULES if "tzdata_policy" in why else ADVICE


async def check_jobs(doctor: Doctor, job: int | None = None) -> list[CheckResult]:
    """Every job that cannot fire, by name, and what could not be checked."""
    try:
        found = [*await _set_aside(doctor, job), *await _unreadable(doctor, job), *await _without(doctor, job)]
    except TooSlow as error:
        text = f"The check whether all jobs can fire was stopped: {error.message}."
        return [CheckResult("jobs", "warn", text, "Check one job with --job.")]
    return found or [CheckResult("jobs", "ok", "Every schedule can be read, and no job is set aside.")]


async def _set_aside(doctor: Doctor, job: int | None) -> list[CheckResult]:
    rows = await doctor.ask(sql.doctor.SET_ASIDE, job, MAX_NAMED)
    found = []
    for row in rows:
        since = times.relative(times.written(row["since"]), times.now())
        text = f"The job {row['name']} was set aside {since}: its {row['kind']} cannot fire. {row['why']}"
        found.append(CheckResult("jobs", "fail", text, _advice(row["why"])))
    more = rows[0]["jobs"] - len(rows) if rows else 0
    if more:
        found.append(
            CheckResult("jobs", "fail", f"{number(more, 'more job', 'are')} set aside.", "Check one job with --job.")
        )
    return found


async def _unreadable(doctor: Doctor, job: int | None) -> list[CheckResult]:
    """Includes jobs that are not due yet, which no leader has tried to fire."""
    rows = await doctor.ask(sql.doctor.SCHEDULES, job, MAX_READ + 1)
    found = list(_limit(len(rows)))
    why = {}
    for row in rows[:MAX_READ]:
        try:
            read_schedule(row["schedule"], row["stored"])
        except UnreadableSchedule as error:
            why[row["schedule"]] = error.message
    jobs = await doctor.ask(sql.doctor.JOBS_OF_SCHEDULES, list(why), MAX_NAMED + 1) if why else []
    found += [
        CheckResult(
            "jobs",
            "fail",
            f"The job {row['name']} cannot fire. {why[row['schedule']]}",
            _advice(why[row["schedule"]]),
        )
        for row in jobs[:MAX_NAMED]
    ]
    if len(jobs) > MAX_NAMED:
        found.append(CheckResult("jobs", "fail", "More jobs have schedules that cannot be read.", ADVICE))
    return found


def _limit(rows: int) -> Iterator[CheckResult]:
    if rows > MAX_READ:
        text = f"There are more than {MAX_READ:,} schedules: the others were not checked."
        yield CheckResult("jobs", "warn", text, "Check one job with --job.")


async def _without(doctor: Doctor, job: int | None) -> list[CheckResult]:
    rows = await doctor.ask(sql.doctor.WITHOUT_SCHEDULE, job, MAX_NAMED + 1)
    if not rows:
        return []
    names = some([row["name"] for row in rows[:MAX_NAMED]], 0)
    more = " and more" if len(rows) > MAX_NAMED else ""
    text = f"Jobs have no cursor or no schedule and cannot fire: {names}{more}."
    return [CheckResult("jobs", "fail", text, "Edit them, which rewrites both; or delete and create them again.")]
