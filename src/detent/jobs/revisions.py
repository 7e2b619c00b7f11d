"""Former definitions of a job, and returning to one of them."""

from __future__ import annotations

from uuid import UUID

from detent.contract.job import Job
from detent.errors import Conflict, NotFound
from detent.jobs.edits import Change
from detent.jobs.register import JobRegistration
from detent.store import Store
from detent.store.jobs import DEFAULT_TENANT
from detent.store.revisions import RevisionRow


class JobRevisions:
    def __init__(self, store: Store, registration: JobRegistration) -> None:
        self._store = store
        self._registration = registration

    async def get(self, job: UUID, revision: int, *, tenant: int = DEFAULT_TENANT) -> RevisionRow:
        found = await self._store.revisions.get(job, revision, tenant=tenant)
        if found is not None:
            return found
        newest = await self._store.revisions.newest(job, tenant=tenant)
        if 0 < revision < newest:
            raise NotFound(
                f"Revision {revision} of the job is no longer kept (revisions_kept): list its revisions to see the "
                "existing ones."
            )
        raise NotFound(f"The job has no revision {revision}: list its revisions to see the existing ones.")

    async def roll_back(
        self, job: UUID, revision: int, *, tenant: int = DEFAULT_TENANT, by: str | None = None
    ) -> tuple[Job, Change]:
        """Make a former definition the present one, as a new revision."""
        spec = (await self.get(job, revision, tenant=tenant)).definition
        if spec is None:
            raise Conflict(f"Revision {revision} was written by another version of detent and cannot be read.")
        return await self._registration.replace(job, spec, tenant=tenant, by=by)
