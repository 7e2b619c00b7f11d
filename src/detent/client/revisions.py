"""Verbs about the revisions of a job."""

from __future__ import annotations

from uuid import UUID

from detent.client.operation import Listing, Operation, Request
from detent.client.requests import job_path, reader
from detent.client.transport import PAGE_SIZE
from detent.contract.job import Job
from detent.contract.page import Page
from detent.contract.revision import Revision, WholeRevision


def list_revisions(job: str | UUID) -> Request[Page[Revision]]:
    """List the revisions of a job, newest first: who made each, when, and what changed."""
    return Request("GET", f"{job_path(job)}/revisions", reader(Page[Revision]), query={"limit": PAGE_SIZE})


def get_revision(job: str | UUID, revision: int) -> Request[WholeRevision]:
    """Get one revision of a job, with the whole definition."""
    return Request("GET", f"{job_path(job)}/revisions/{revision}", reader(WholeRevision))


def roll_back_job(job: str | UUID, revision: int) -> Request[Job]:
    """Restore an earlier revision of a job, as a new revision."""
    return Request("POST", f"{job_path(job)}/rollback", reader(Job), body={"revision": revision})


class RevisionVerbs:
    """The verbs of the clients about revisions."""

    list_revisions = Listing(list_revisions)
    get_revision = Operation(get_revision)
    roll_back_job = Operation(roll_back_job)
