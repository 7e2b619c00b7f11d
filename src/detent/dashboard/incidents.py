"""Missed deadlines in words, with links to the run."""

from __future__ import annotations

from typing import NamedTuple

from detent.contract.incident import Incident
from detent.dashboard.formatting import query, seconds

DEADLINE = {"start": "start within", "finish": "succeed within"}


class OpenIncident(NamedTuple):
    """`deadline` is such as `start within 5 s`; `at` is the path of the run, or of the job's runs if none fired."""

    incident: Incident
    deadline: str
    at: str

    @property
    def job(self) -> str:
        return f"/jobs/{self.incident.job_id}"


def describe_incident(incident: Incident) -> OpenIncident:
    deadline = f"{DEADLINE[incident.expectation]} {seconds(incident.within_seconds)}"
    # A tick that never fired has no run; earlier runs of the job may show why.
    runs = query("/runs", search=f"job:{incident.job_id}")
    at = runs if incident.run_id is None else f"/runs/{incident.run_id}"
    return OpenIncident(incident, deadline, at)
