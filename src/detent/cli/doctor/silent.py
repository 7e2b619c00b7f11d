"""Jobs that are silent because nothing can fire them: set aside by their leader, or with a schedule nobody can read."""

from __future__ import annotations

from collections.abc import Iterator

from detent.cli import times
from detent.cli.doctor.findings import Finding, number, some
from detent.store import sql
from detent.store.doctor import Doctor, TooSlow
from detent.store.stored_schedules import UnreadableSchedule, read_schedule

NAMED = 5
MOST_READ = 20_000
ADVICE = (
    "Upgrade the schedulers if a newer version wrote it; otherwise edit the job, which writes it anew. It is"
    " tried again by itself at least every ten minutes."
)


async def check_jobs(doctor: Doctor, job: int | None = None) -> list[Finding]:
    """Every job that cannot be fired, by name; what could not be looked at is said."""
    try:
        found = [*await _set_aside(doctor, job), *await _unreadable(doctor, job), *await _without(doctor, job)]
    except TooSlow as error:
        told = f"Whether all jobs can be fired is not known: {error.message}."
        return [Finding("jobs", "warn", told, "Ask for one job with --job.")]
    return found or [Finding("jobs", "ok", "Every schedule can be read, and no job is set aside.")]


async def _set_aside(doctor: Doctor, job: int | None) -> list[Finding]:
    rows = await doctor.ask(sql.doctor.SET_ASIDE, job, NAMED)
    found = []
    for row in rows:
        since = times.relative(times.written(row["since"]), times.now())
        told = f"The job {row['name']} is set aside since {since}: its {row['kind']} cannot be fired. {row['why']}"
        found.append(Finding("jobs", "fail", told, ADVICE))
    more = rows[0]["jobs"] - len(rows) if rows else 0
    if more:
        found.append(
            Finding("jobs", "fail", f"{number(more, 'more job', 'are')} set aside.", "Ask with --job for one.")
        )
    return found


async def _unreadable(doctor: Doctor, job: int | None) -> list[Finding]:
    """Also those that are not due yet: nobody has tried to fire them."""
    rows = await doctor.ask(sql.doctor.SCHEDULES, job, MOST_READ + 1)
    found = list(_limit(len(rows)))
    why = {}
    for row in rows[:MOST_READ]:
        try:
            read_schedule(row["schedule"], row["stored"])
        except UnreadableSchedule as error:
            why[row["schedule"]] = error.message
    jobs = await doctor.ask(sql.doctor.JOBS_OF_SCHEDULES, list(why), NAMED + 1) if why else []
    found += [
        Finding("jobs", "fail", f"The job {row['name']} cannot be fired. {why[row['schedule']]}", ADVICE)
        for row in jobs[:NAMED]
    ]
    if len(jobs) > NAMED:
        found.append(Finding("jobs", "fail", "More jobs have schedules that cannot be read.", ADVICE))
    return found


def _limit(rows: int) -> Iterator[Finding]:
    if rows > MOST_READ:
        told = f"There are more than {MOST_READ:,} schedules: the others were not looked at."
        yield Finding("jobs", "warn", told, "Ask for one job with --job.")


async def _without(doctor: Doctor, job: int | None) -> list[Finding]:
    rows = await doctor.ask(sql.doctor.WITHOUT_SCHEDULE, job, NAMED + 1)
    if not rows:
        return []
    names = some([row["name"] for row in rows[:NAMED]], 0)
    more = " and more" if len(rows) > NAMED else ""
    told = f"Jobs have no cursor or no schedule, so nothing fires them: {names}{more}."
    return [Finding("jobs", "fail", told, "Edit them, which writes both anew; or delete them and create them again.")]
