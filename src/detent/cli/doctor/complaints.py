"""The five common complaints, each with its checks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from detent.cli import times
from detent.cli.doctor import load, missing, stuck, twice
from detent.cli.doctor.results import Case, ComplaintReport
from detent.store.db import Row
from detent.store.doctor import Doctor


class Complaint(NamedTuple):
    title: str
    good: str  # the result when no check found anything
    check: Callable[[Case], Awaitable[None]]


COMPLAINTS: Mapping[str, Complaint] = {
    "runs-twice": Complaint("A job runs twice", "The database has no record of anything that ran twice.", twice.check),
    "never-ran": Complaint(
        "A job never ran after a node was lost", "Every tick fired or is accounted for.", missing.check
    ),
    "stuck": Complaint("Runs are stuck", "No run is stuck.", stuck.check),
    "cpu-spike": Complaint(
        "The database's CPU spikes each minute",
        "Ticks are spread, and the busy tables have few dead rows.",
        load.check_spike,
    ),
    "flapping": Complaint("Leadership flaps", "Leadership is steady.", load.check_flapping),
}


async def examine(name: str, doctor: Doctor, job: Row | None) -> ComplaintReport:
    complaint = COMPLAINTS[name]
    case = Case(doctor, job)
    if job is not None:
        _about(case, job)
    await complaint.check(case)
    if all(finding.status == "ok" for finding in case.findings):
        case.add("ok", complaint.good)
    return ComplaintReport(name, complaint.title, case.looked_at, case.findings)


def _about(case: Case, job: Row) -> None:
    case.looked_at.append("the job itself")
    name = job["name"]
    if job["status"] == "paused":
        why = f" ({job['reason']})" if job["reason"] else ""
        case.add("warn", f"The job {name} is paused{why}.", f"Run `detent job resume {name}`.")
    elif job["status"] == "completed":
        case.add("ok", f"The job {name} is completed: its schedule has no more ticks.")
    elif msgspec.json.decode(job["definition"]).get("schedule") is None:
        case.add("ok", f"The job {name} has no schedule: it is a task, and its runs are enqueued.")
    elif job["fire_at"] is not None and job["fire_at"] > datetime.now(UTC) + timedelta(minutes=1):
        case.add("ok", f"The job {name} fires next at {times.both(times.written(job['fire_at']), times.now())}.")
