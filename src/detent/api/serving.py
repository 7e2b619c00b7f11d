"""What no worker serves, in the answers about jobs and runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

import msgspec

from detent.api.context import Api
from detent.contract.job import Job
from detent.contract.run import Run
from detent.domain.identity import RunKey
from detent.domain.job import CALLBACK_NEEDS, JobSpec, Target, needs_of
from detent.domain.serving import WaitingPlace
from detent.jobs.batches import RegisteredJob

ANY_WORKER = WaitingPlace("default", "")
"""What every worker serves, unless it was told otherwise: before the first one is started, that is no news."""


NO_PUBLIC_URL = (
    "DETENT_PUBLIC_URL is not set, so callbacks go to the address of the node that calls the target, if it has an API: "
    "set it to the address under which targets reach the API."
)


async def with_worker_warning(api: Api, job: Job) -> Job:
    """The job, with a warning if its runs would wait because no worker serves them, or if its target may not find the
    way back."""
    place = WaitingPlace(job.queue, needs_of(job.target))
    waits = await _waits(api, [place]) if job.status == "active" else {}
    warnings = [*job.warnings, *_no_way_back(api, job.target), *waits.get(place, ())]
    return msgspec.structs.replace(job, warnings=warnings)


async def with_worker_warnings(
    api: Api, specs: Sequence[JobSpec], registered: Sequence[RegisteredJob]
) -> list[RegisteredJob]:
    """The same for the jobs of a batch that were created or changed."""
    new = [each.change != "unchanged" for each in registered]
    places = [WaitingPlace(spec.queue, needs_of(spec.target)) for spec in specs]
    waits = await _waits(
        api, (place for place, each, is_new in zip(places, registered, new, strict=True) if is_new and each.active)
    )
    return [
        each._replace(
            warnings=[
                *each.warnings,
                *_no_way_back(api, spec.target),
                *(waits.get(place, ()) if each.active else ()),
            ]
        )
        if is_new
        else each
        for spec, place, each, is_new in zip(specs, places, registered, new, strict=True)
    ]


def _no_way_back(api: Api, target: Target) -> list[str]:
    away = needs_of(target) == CALLBACK_NEEDS and api.settings.public_url is None and not api.settings.local
    return [NO_PUBLIC_URL] if away else []


async def _waits(api: Api, places: Iterable[WaitingPlace]) -> dict[WaitingPlace, list[str]]:
    """Of these places, those that no worker serves, with the warning for their jobs."""
    found = await api.jobs.serving.unserved(places, tenant=api.tenant)
    return {
        place: [
            "Its runs will wait. "
            + await api.jobs.serving.sentence(lack, tenant=api.tenant, connect=connect_option(api))
        ]
        for place, lack in found.items()
        if place != ANY_WORKER or lack.workers
    }


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
