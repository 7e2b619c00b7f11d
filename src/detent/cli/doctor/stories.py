"""The five complaints that people bring to a scheduler, each with where to look and what to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from detent.cli import times
from detent.cli.doctor import load, missing, stuck, twice
from detent.cli.doctor.findings import Case, Story
from detent.store.db import Row
from detent.store.doctor import Doctor


class Complaint(NamedTuple):
    words: str
    good: str  # what is said when nothing was found
    tell: Callable[[Case], Awaitable[None]]


COMPLAINTS: Mapping[str, Complaint] = {
    "runs-twice": Complaint("A job runs twice", "Nothing ran twice that the database knows of.", twice.tell),
    "never-ran": Complaint(
        "A job never ran after a node was lost", "Every tick was fired or accounted for.", missing.tell
    ),
    "stuck": Complaint("Runs are stuck", "No run is stuck.", stuck.tell),
    "cpu-spike": Complaint(
        "The database's CPU spikes each minute", "Ticks are spread, and the hot tables are clean.", load.tell_spike
    ),
    "flapping": Complaint("Leadership flaps", "Leadership is steady.", load.tell_flapping),
}


async def tell(name: str, doctor: Doctor, job: Row | None) -> Story:
    complaint = COMPLAINTS[name]
    case = Case(doctor, job)
    if job is not None:
        _about(case, job)
    await complaint.tell(case)
    if all(finding.status == "ok" for finding in case.findings):
        case.add("ok", complaint.good)
    return Story(name, complaint.words, case.looked_at, case.findings)


def _about(case: Case, job: Row) -> None:
    case.looked_at.append("the job itself")
    name = job["name"]
    if job["status"] == "paused":
        why = f" ({job['reason']})" if job["reason"] else ""
        case.add("warn", f"The job {name} is paused{why}, so it does not fire.", f"Run `detent job resume {name}`.")
    elif job["status"] == "completed":
        case.add("ok", f"The job {name} is completed: its schedule has no tick left.")
    elif job["fire_at"] is not None and job["fire_at"] > datetime.now(UTC) + timedelta(minutes=1):
        case.add("ok", f"The job {name} fires next at {times.both(times.written(job['fire_at']), times.now())}.")
