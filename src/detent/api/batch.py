"""POST /jobs/batch: up to ten thousand jobs in one call, all or none, as a JSON array or with one job per line
(NDJSON)."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from detent.api.context import PREFIX, Api
from detent.api.problems import Refusal
from detent.api.request_parsing import Upload, decode_plain, not_json, too_deep
from detent.api.routing import Routes
from detent.api.serving import with_worker_warnings
from detent.contract.job import BatchItem, BatchResult
from detent.domain.job import JobSpec, Name
from detent.domain.refusal import refused
from detent.domain.text import check_seen
from detent.errors import UsageError
from detent.jobs.batches import MAX_FAULTS, RegisteredJob

routes = Routes(PREFIX)

MAX_JOBS = 10_000
NDJSON = "application/x-ndjson"
READ_AT_A_TIME = 256
LARGE_BYTES = 4096

_DECODER = msgspec.json.Decoder(JobSpec)


class Jobs(Struct, forbid_unknown_fields=True):
    """The jobs of a batch."""

    jobs: Annotated[list[JobSpec], Meta(min_length=1, max_length=MAX_JOBS)]


class RawJobs(Struct, forbid_unknown_fields=True):
    jobs: list[Raw]


class BatchBody(Upload):
    """The jobs, not yet read one by one."""

    media_types: ClassVar[tuple[str, ...]] = ("application/json", NDJSON)
    max_bytes: ClassVar[int] = 64 * 1_048_576
    described: ClassVar[Any] = Annotated[list[JobSpec], Meta(min_length=1, max_length=MAX_JOBS)] | Jobs

    async def read(self, max_job_bytes: int) -> list[JobSpec | UsageError]:
        """Each job, or its error; yields to the event loop at intervals."""
        items = _lines(self.raw) if self.media_type == NDJSON else _items(self.raw)
        if not items:
            raise UsageError("The batch has no job: give one to ten thousand.")
        if len(items) > MAX_JOBS:
            raise UsageError(f"The batch has {len(items)} jobs and {MAX_JOBS} are allowed: send it in parts.")
        read: list[JobSpec | UsageError] = []
        wrong = 0
        for position, item in enumerate(items):
            size = memoryview(item).nbytes
            if position % READ_AT_A_TIME == 0 or wrong or size > LARGE_BYTES:
                await asyncio.sleep(0)
            read.append(_read(item) if size <= max_job_bytes else _too_large(size, max_job_bytes))
            wrong += isinstance(read[-1], UsageError)
            if wrong > MAX_FAULTS:
                break  # nothing will be registered, and no further fault is listed
        return read


class BatchQuery(Struct, forbid_unknown_fields=True):
    """`upsert`: update jobs whose names exist; a job that is the same already stays unchanged. `owner` is the label of
    the team or file that manages these jobs; without it, existing jobs keep theirs."""

    mode: Literal["create", "upsert"] = "create"
    owner: Name | None = None


@routes.post("/jobs/batch", scope="write", once=True, registers=True)
async def create_jobs(api: Api, query: BatchQuery, body: BatchBody) -> BatchResult:
    """Register many jobs, all or none."""
    check_seen(query.owner or "", "The owner", "/owner")
    items = await body.read(api.max_body_bytes)
    verb = api.jobs.batches.create if query.mode == "create" else api.jobs.batches.upsert
    registered = await verb(items, tenant=api.tenant, owner=query.owner, by=api.by)
    specs = [item for item in items if isinstance(item, JobSpec)]  # all of them: none is wrong
    return _result(await with_worker_warnings(api, specs, registered))


def _result(registered: list[RegisteredJob]) -> BatchResult:
    counts = dict.fromkeys(("created", "updated", "unchanged"), 0)
    for each in registered:
        counts[each.change] += 1
    items = [BatchItem(each.id, each.name, each.change, each.revision, each.warnings) for each in registered]
    return BatchResult(**counts, items=items)


def _lines(raw: bytes) -> list[Any]:
    return [line for line in raw.split(b"\n") if line and not line.isspace()]


def _items(raw: bytes) -> list[Any]:
    wrapped = raw.lstrip()[:1] == b"{"
    try:
        return list(
            msgspec.json.decode(raw, type=RawJobs).jobs if wrapped else msgspec.json.decode(raw, type=list[Raw])
        )
    except msgspec.ValidationError as error:
        document = decode_plain(raw)
        if wrapped:
            raise refused(error, document, RawJobs) from error
        raise UsageError(
            'The body is not a list of jobs: send [job, …], {"jobs": [job, …]}, or one job per line as NDJSON.'
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise not_json(error) from error
    except RecursionError:
        raise too_deep() from None


def _too_large(size: int, most: int) -> UsageError:
    """The same refusal as for a request with only this job."""
    return UsageError(f"The job is {size} bytes of JSON and {most} are allowed: make it shorter.")


def _read(item: Any) -> JobSpec | UsageError:
    try:
        return _DECODER.decode(item)
    except msgspec.ValidationError as error:
        try:
            return refused(error, decode_plain(item), JobSpec)
        except (Refusal, UsageError) as other:
            return UsageError(str(other))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return UsageError(f"This is not JSON ({error}): check its syntax.")
    except RecursionError:
        return too_deep()
