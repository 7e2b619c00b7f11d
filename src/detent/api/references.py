"""What a path names: jobs by name, id or the beginning of an id; runs by id or its beginning.

An id begins with its time, so its beginning is a range of time or of keys in an index, and never a scan. An unknown
name is answered with the name that may be meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from detent.api.context import Api
from detent.contract.run import Run
from detent.domain.counts import plural
from detent.domain.id_prefix import SHORTEST, IdRange, id_range
from detent.domain.identity import RunKey, decode_run_id, from_milliseconds
from detent.domain.names import is_job_id
from detent.domain.refusal import nearest
from detent.errors import NotFound

MAX_CANDIDATES = 5
PAGE = 200
MAX_PAGES = 5
MILLISECOND = timedelta(milliseconds=1)
_TIME_SHIFT = 80  # of the milliseconds in an id
_LAST_MILLISECOND = 253_370_764_799_999


async def job_id(api: Api, reference: str) -> UUID:
    if is_job_id(reference):
        return UUID(reference)
    found = await api.store.jobs.id_of(reference, tenant=api.tenant)
    return await _job_by_prefix(api, reference) if found is None else found


async def _job_by_prefix(api: Api, reference: str) -> UUID:
    ids = id_range(reference)
    found = [] if ids is None else await api.store.jobs.in_range(ids, MAX_CANDIDATES + 1, tenant=api.tenant)
    if len(found) > 1:
        raise _ambiguous("job", reference, [f"{one} ({name})" for one, name in found])
    if found:
        return found[0][0]
    near = nearest(reference, await api.store.jobs.names_near(reference, tenant=api.tenant))
    raise unknown_job(reference, near)


def unknown_job(reference: str, near: str | None = None) -> NotFound:
    advice = "list the jobs to see their names." if near is None else f"did you mean {near!r}?"
    return NotFound(f"There is no job {reference!r}: {advice}")


async def resolve_run(api: Api, text: str) -> RunKey:
    """The run with this id, or the only one whose id begins so."""
    if is_job_id(text):
        return run_key(text)
    ids = id_range(text)
    found = [] if ids is None else await _runs_in(api, ids, text)
    if len(found) > 1:
        raise _ambiguous("run", text, [f"{run.id} ({run.job}, {run.status})" for run in found])
    if not found:
        raise unknown_run(text)
    return run_key(str(found[0].id))


async def _runs_in(api: Api, ids: IdRange, text: str) -> list[Run]:
    """Runs of this range of ids, which is a range of time. At most a thousand runs of that time are compared."""
    first, last = (min(each.int >> _TIME_SHIFT, _LAST_MILLISECOND) for each in ids)
    since, until = from_milliseconds(first), from_milliseconds(last) + MILLISECOND
    found: list[Run] = []
    after: RunKey | None = None
    for _ in range(MAX_PAGES):
        runs, after = await api.store.runs.list(since=since, until=until, after=after, limit=PAGE, tenant=api.tenant)
        found += [run for run in runs if ids.low <= run.id <= ids.high]
        if after is None or len(found) > MAX_CANDIDATES:
            return found
    raise NotFound(f"Too many runs have ids like {text!r}: give more of its characters.")


def run_key(text: str) -> RunKey:
    key = decode_run_id(UUID(text)) if is_job_id(text) else None
    if key is None:
        raise unknown_run(text)
    return key


def unknown_run(text: str) -> NotFound:
    if len(text) < SHORTEST and text.isalnum():
        return NotFound(f"There is no run {text!r}: give at least the first {SHORTEST} characters of its id.")
    return NotFound(f"There is no run {text!r}: list the runs to see their ids.")


def _ambiguous(noun: str, text: str, found: Sequence[str]) -> NotFound:
    shown = ", ".join(found[:MAX_CANDIDATES])
    more = len(found) > MAX_CANDIDATES
    count = f"More than {MAX_CANDIDATES} {noun}s" if more else plural(len(found), noun).capitalize()
    return NotFound(
        f"{count} have an id that begins with {text!r}: give more of its characters. They are {shown}"
        f"{' …' if more else '.'}"
    )
