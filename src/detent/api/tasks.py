"""Routes about tasks, and about enqueuing runs of any job."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, TypedDict
from uuid import UUID

import msgspec
from msgspec import Raw, Struct

from detent.api.context import PREFIX, Api
from detent.api.cursors import after_job, binding, read_after_job
from detent.api.jobs import Limit
from detent.api.problems import Refusal
from detent.api.request_parsing import Upload, decode_body, decode_plain, not_json, too_deep
from detent.api.routing import Routes
from detent.contract.page import Page
from detent.contract.task import EnqueuedRuns, NewRuns, TaskSummary
from detent.domain.names import is_job_id
from detent.domain.on_demand import MAX_RUNS, NewRun
from detent.domain.refusal import refused
from detent.errors import UsageError

routes = Routes(PREFIX)

READ_AT_A_TIME = 256
LARGE_BYTES = 4096

_RUN = msgspec.json.Decoder(NewRun)
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_LIST = msgspec.json.Decoder(list[Raw])


class TaskQuery(Struct, forbid_unknown_fields=True):
    cursor: str | None = None
    limit: Limit = 50


class WhichJob(TypedDict):
    """A job by its id or its name."""

    job_id: UUID | None
    name: str | None


class RunsBody(Upload):
    """One run, or several, not yet read one by one."""

    media_types: ClassVar[tuple[str, ...]] = ("application/json",)
    max_bytes: ClassVar[int] = 64 * 1_048_576
    described: ClassVar[Any] = (NewRun, NewRuns)

    def single(self, max_bytes: int) -> NewRun | None:
        """The run, if the body is one."""
        fields = _decoded(_OBJECT, self.raw, 'The body is not an object: send the run as {…}, or {"runs": [run, …]}.')
        if "runs" in fields:
            for other in fields.keys() - {"runs"}:
                raise UsageError(
                    f"{other} is given beside runs: give the fields of one run, or only runs.", f"/{other}"
                )
            return None
        if len(self.raw) > max_bytes:
            raise UsageError(f"The run is {len(self.raw)} bytes of JSON and {max_bytes} are allowed: make it shorter.")
        return decode_body(self.raw, NewRun)

    async def many(self, max_bytes: int) -> list[NewRun | UsageError]:
        """Each run, or its error; yields to the event loop at intervals."""
        whole = _OBJECT.decode(self.raw)["runs"]
        items: list[Raw] = _decoded(_LIST, whole, 'runs is not a list: send {"runs": [run, …]}.', "/runs")
        if not 1 <= len(items) <= MAX_RUNS:
            raise UsageError(f"runs has {len(items)} items: give 1 to {MAX_RUNS:,}, and send more in parts.", "/runs")
        read: list[NewRun | UsageError] = []
        for position, item in enumerate(items):
            size = memoryview(item).nbytes
            if position % READ_AT_A_TIME == 0 or size > LARGE_BYTES or isinstance(read[-1], UsageError):
                await asyncio.sleep(0)
            read.append(_read(item) if size <= max_bytes else _too_large(size, max_bytes))
        return read


@routes.post("/tasks/{name}/runs", status=201, scope="operate", once=True)
async def enqueue_runs(api: Api, name: str, body: RunsBody | None) -> EnqueuedRuns:
    """Enqueue one run or up to 10,000 runs of a task or of any other job, all or none."""
    job: WhichJob = {"job_id": UUID(name) if is_job_id(name) else None, "name": None if is_job_id(name) else name}
    may_refer = api.caller.may_everywhere("write")
    run = NewRun() if body is None else body.single(api.max_body_bytes)
    if run is not None:
        return EnqueuedRuns([await api.jobs.enqueuing.enqueue_one(run, **job, tenant=api.tenant, may_refer=may_refer)])
    assert body is not None
    runs = await body.many(api.max_body_bytes)
    return EnqueuedRuns(await api.jobs.enqueuing.enqueue_many(runs, **job, tenant=api.tenant, may_refer=may_refer))


@routes.get("/tasks")
async def list_tasks(api: Api, query: TaskQuery) -> Page[TaskSummary]:
    """List the tasks (the jobs without a schedule) in the order of their creation, with their unfinished runs."""
    bound = binding(api.tenant, query)
    after = read_after_job(query.cursor, bound)
    tasks, following = await api.store.tasks.summaries(after=after, limit=query.limit, tenant=api.tenant)
    return Page(tasks, None if following is None else after_job(following, bound))


def _decoded(decoder: msgspec.json.Decoder[Any], raw: Any, otherwise: str, pointer: str = "") -> Any:
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        decode_plain(raw)
        raise UsageError(otherwise, pointer) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise not_json(error) from error
    except RecursionError:
        raise too_deep() from None


def _too_large(size: int, most: int) -> UsageError:
    return UsageError(f"The run is {size} bytes of JSON and {most} are allowed: make it shorter.")


def _read(item: Any) -> NewRun | UsageError:
    try:
        return _RUN.decode(item)
    except msgspec.ValidationError as error:
        try:
            return refused(error, decode_plain(item), NewRun)
        except (Refusal, UsageError) as other:
            return UsageError(str(other))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return UsageError(f"This is not JSON ({error}): check its syntax.")
    except RecursionError:
        return too_deep()
