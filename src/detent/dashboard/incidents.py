"""Jobs that are not as expected, in words, with where to look."""

from __future__ import annotations

from typing import NamedTuple

from detent.contract.incident import Incident
from detent.dashboard.words import query, seconds

WANTED = {"start": "to start within", "finish": "to succeed within"}
FAULT = {"start": "did not start within", "finish": "had not succeeded within"}


class OpenIncident(NamedTuple):
    """`expected` and `fault` are halves of sentences, `at` leads to what became of the tick."""

    incident: Incident
    expected: str
    fault: str
    at: str

    @property
    def job(self) -> str:
        return f"/jobs/{self.incident.job_id}"


def told(incident: Incident) -> OpenIncident:
    within = seconds(incident.within_seconds)
    kind = incident.expectation
    # A tick that never fired has no run; those before it may tell why.
    runs = query("/runs", search=f"job:{incident.job_id}")
    at = runs if incident.run_id is None else f"/runs/{incident.run_id}"
    return OpenIncident(incident, f"{WANTED[kind]} {within}", f"{FAULT[kind]} {within} of its tick at", at)
