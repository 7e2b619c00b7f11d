"""Verbs about incidents: deadlines that jobs missed."""

from __future__ import annotations

from detent.client.operation import Listing, Request
from detent.client.requests import PREFIX, reader
from detent.contract.incident import Incident
from detent.contract.page import Page


def list_incidents(*, job: str | None = None, only_open: bool = False) -> Request[Page[Incident]]:
    """List missed deadlines, newest first."""
    query = {"job": job, "open": "true" if only_open else None}
    return Request("GET", f"{PREFIX}/incidents", reader(Page[Incident]), query=query)


class IncidentVerbs:
    """The verbs of the clients about incidents."""

    list_incidents = Listing(list_incidents)
