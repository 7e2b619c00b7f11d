"""What no worker serves, in the answers about jobs and runs."""

from __future__ import annotations

import shlex

import msgspec

from detent.api.context import Api
from detent.contract.job import Job
from detent.contract.run import Run
from detent.domain.identity import RunKey
from detent.domain.job import CALLBACK_NEEDS, needs_of
from detent.domain.serving import WaitingPlace

ANY_WORKER = WaitingPlace("default", "")
"""What every worker serves, unless it was told otherwise: before the first one is started, that is no news."""


NO_PUBLIC_URL = (
    "DETENT_PUBLIC_URL is not set, so callbacks go to the address of the node that calls the target, if it has an API: "
    "set it to the address under which targets reach the API."
)


async def with_worker_warning(api: Api, job: Job) -> Job:
    """The job, with a warning if its runs would wait because no worker serves them, or if its target may not find the
    way back."""
    if needs_of(job.target) == CALLBACK_NEEDS and api.settings.public_url is None and not api.settings.local:
        job = msgspec.structs.replace(job, warnings=[*job.warnings, NO_PUBLIC_URL])
    if job.status != "active":
        return job
    place = WaitingPlace(job.queue, needs_of(job.target))
    found = (await api.jobs.serving.unserved([place], tenant=api.tenant)).get(place)
    if found is None or (place == ANY_WORKER and not found.workers):
        return job
    lack = await api.jobs.serving.sentence(found, tenant=api.tenant, connect=connect_option(api))
    return msgspec.structs.replace(job, warnings=[*job.warnings, f"Its runs will wait. {lack}"])


async def with_wait(api: Api, run: Run, key: RunKey) -> Run:
    """The run, with what it waits for if no worker has claimed it."""
    text = await api.jobs.serving.waiting_for(run, key, tenant=api.tenant, connect=connect_option(api))
    return run if text is None else msgspec.structs.replace(run, waiting_for=text)


def connect_option(api: Api) -> str:
    """How a worker on this machine finds the database of this server, if that is not where it looks by itself."""
    chosen = api.settings
    default = chosen.origins.get("data_dir", "default") == "default"
    if chosen.database_url is not None or not chosen.local or default:
        return ""
    return f" --data-dir {shlex.quote(str(chosen.data_dir))}"
