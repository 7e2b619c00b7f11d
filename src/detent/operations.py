"""The API as programs call it, described once: method, path, what is sent, and the type of the answer.

`Operations` is the list. A client is this list joined with a way to send: `Client` answers, `AsyncClient` is awaited,
and each verb has the same name, parameters and types in both. Nothing here does I/O: an operation makes a request, a
listing makes one for every page, and a procedure is a generator that yields requests and pauses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from functools import update_wrapper
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, Protocol, TypeVar, overload
from uuid import UUID

import msgspec

from detent import shapes
from detent.clock import monotonic
from detent.model import JobSpec, TargetKind
from detent.shapes import ClaimedRun, ClaimedRuns, Job, JobStatus, Lease, Page, SettledRun
from detent.states import OPEN, RunStatus
from detent.transport import PAGE_SIZE, Answer, segment

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)
Item = TypeVar("Item")

PREFIX = "/api/v1"
FIRST_LOOK_SECONDS = 0.1
SLOWEST_LOOK_SECONDS = 1.0
LOOKS_GROW = 1.5


class Run(shapes.Run, frozen=True, kw_only=True):
    """What became of a tick. `result` is what the target answered."""

    result: Any


class Upserted(NamedTuple):
    """The job as it is now, and what had to be done for that."""

    job: Job
    change: Literal["created", "updated", "unchanged"]


class Version(msgspec.Struct, frozen=True):
    version: str
    api: str
    tzdata: str


class Request(Generic[Result_co]):
    """One call of the API, not yet sent. `patience` is how long the server may take on purpose."""

    def __init__(
        self,
        method: str,
        path: str,
        read: Callable[[Answer], Result_co],
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        patience: float = 0,
    ) -> None:
        self.method = method
        self.path = path
        self.read = read
        self.query = query or {}
        self.body = body
        self.patience = patience

    def after(self, cursor: str) -> Request[Result_co]:
        """The same, for the page that follows."""
        query = {**self.query, "cursor": cursor}
        return Request(self.method, self.path, self.read, query=query, body=self.body, patience=self.patience)


# What a procedure yields: a request, answered with what it read, or seconds to let pass.
Step = Request[Any] | float
Steps = Generator[Step, Any, Result]


class Sender(Protocol):
    """A way to send that waits for the answer."""

    def _send(self, request: Request[Result]) -> Result: ...
    def _items(self, request: Request[Page[Item]]) -> Iterator[Item]: ...
    def _follow(self, steps: Steps[Result]) -> Result: ...


class AsyncSender(Protocol):
    """A way to send that is awaited."""

    async def _send(self, request: Request[Result]) -> Result: ...
    def _items(self, request: Request[Page[Item]]) -> AsyncIterator[Item]: ...
    async def _follow(self, steps: Steps[Result]) -> Result: ...


class Operation(Generic[Parameters, Result]):
    """A verb that is one request."""

    def __init__(self, make: Callable[Parameters, Request[Result]]) -> None:
        self.make = make

    @overload
    def __get__(self, client: None, owner: type) -> Operation[Parameters, Result]: ...
    @overload
    def __get__(self, client: Sender, owner: type) -> Callable[Parameters, Result]: ...
    @overload
    def __get__(self, client: AsyncSender, owner: type) -> Callable[Parameters, Coroutine[Any, Any, Result]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else _joined(client._send, self.make)


class Listing(Generic[Parameters, Item]):
    """A verb that is a request for every page."""

    def __init__(self, make: Callable[Parameters, Request[Page[Item]]]) -> None:
        self.make = make

    @overload
    def __get__(self, client: None, owner: type) -> Listing[Parameters, Item]: ...
    @overload
    def __get__(self, client: Sender, owner: type) -> Callable[Parameters, Iterator[Item]]: ...
    @overload
    def __get__(self, client: AsyncSender, owner: type) -> Callable[Parameters, AsyncIterator[Item]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else _joined(client._items, self.make)


class Procedure(Generic[Parameters, Result]):
    """A verb that takes several requests, and time."""

    def __init__(self, make: Callable[Parameters, Steps[Result]]) -> None:
        self.make = make

    @overload
    def __get__(self, client: None, owner: type) -> Procedure[Parameters, Result]: ...
    @overload
    def __get__(self, client: Sender, owner: type) -> Callable[Parameters, Result]: ...
    @overload
    def __get__(self, client: AsyncSender, owner: type) -> Callable[Parameters, Coroutine[Any, Any, Result]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else _joined(client._follow, self.make)


def _joined(send: Callable[[Any], Any], make: Callable[..., Any]) -> Callable[..., Any]:
    def verb(*arguments: Any, **options: Any) -> Any:
        return send(make(*arguments, **options))

    return update_wrapper(verb, make)


# --- jobs; a job is named by its id or its name ---


def create_job(job: JobSpec | Mapping[str, Any]) -> Request[Job]:
    """Register a job."""
    return Request("POST", f"{PREFIX}/jobs", _reader(Job), body=job)


def upsert_job(job: JobSpec | Mapping[str, Any]) -> Request[Upserted]:
    """Make the job of this name be this; nothing happens when it is this already."""
    name = job.name if isinstance(job, JobSpec) else job.get("name")
    path = f"{PREFIX}/jobs/by-name/{segment(name or '')}"

    def read(answer: Answer) -> Upserted:
        change = msgspec.convert(answer.change, Literal["created", "updated", "unchanged"])
        return Upserted(msgspec.json.decode(answer.raw, type=Job), change)

    return Request("PUT", path, read, body=job)


def get_job(job: str | UUID) -> Request[Job]:
    """Look at one job."""
    return Request("GET", _job(job), _reader(Job))


def list_jobs(
    *,
    status: JobStatus | None = None,
    prefix: str | None = None,
    tag: str | None = None,
    target: TargetKind | None = None,
) -> Request[Page[Job]]:
    """All jobs in the order of their creation, page by page. `prefix` is the beginning of their name."""
    query = {"status": status, "prefix": prefix, "tag": tag, "target": target, "limit": PAGE_SIZE}
    return Request("GET", f"{PREFIX}/jobs", _reader(Page[Job]), query=query)


def pause_job(job: str | UUID, reason: str | None = None) -> Request[Job]:
    """Stop a job from ticking until it is resumed."""
    return Request("POST", f"{_job(job)}/pause", _reader(Job), body=None if reason is None else {"reason": reason})


def resume_job(job: str | UUID) -> Request[Job]:
    """Let a paused job go on with its next tick to come."""
    return Request("POST", f"{_job(job)}/resume", _reader(Job))


def trigger_job(job: str | UUID) -> Request[Run]:
    """Run a job now, beside its schedule."""
    return Request("POST", f"{_job(job)}/trigger", _reader(Run))


def delete_job(job: str | UUID) -> Request[None]:
    """Delete a job: no more ticks, its name is free, runs in flight go on and history stays."""
    return Request("DELETE", _job(job), _nothing)


# --- runs ---


def list_runs(job: str | UUID | None = None, *, status: Sequence[RunStatus | str] = ()) -> Request[Page[Run]]:
    """Runs of one job or of all, from the newest tick to the oldest, page by page."""
    path = f"{PREFIX}/runs" if job is None else f"{_job(job)}/runs"
    query = {"status": tuple(str(each) for each in status), "limit": PAGE_SIZE}
    return Request("GET", path, _reader(Page[Run]), query=query)


def get_run(run: str | UUID) -> Request[Run]:
    """Look at one run with its attempts."""
    return Request("GET", _run(run), _reader(Run))


def cancel_run(run: str | UUID) -> Request[Run]:
    """Cancel a run that is not over; one that is running is asked to stop."""
    return Request("POST", f"{_run(run)}/cancel", _reader(Run))


def wait_for_run(run: str | UUID, timeout: float | None = None) -> Steps[Run]:
    """Wait for the end of a run; TimeoutError when it has not come within `timeout` seconds."""
    deadline = None if timeout is None else monotonic() + timeout
    pause = FIRST_LOOK_SECONDS
    while True:
        found: Run = yield get_run(run)
        if found.status not in OPEN:
            return found
        left = pause if deadline is None else deadline - monotonic()
        if left <= 0:
            raise TimeoutError(f"Run {found.id} of {found.job} is still {found.status} after {timeout:g} s.")
        yield min(pause, left)
        pause = min(pause * LOOKS_GROW, SLOWEST_LOOK_SECONDS)


# --- work; for workers that pull ---


def claim_runs(
    queue: str,
    worker: str,
    *,
    limit: int = 1,
    lease_seconds: float = 60,
    wait_seconds: float = 0,
    targets: Sequence[TargetKind] = ("python",),
    functions: Sequence[str] | None = None,
) -> Request[list[ClaimedRun]]:
    """Claim runs of a queue, waiting for up to `wait_seconds` if none is ready. Each is held for `lease_seconds`."""
    body = {
        "worker": worker,
        "limit": limit,
        "lease_seconds": lease_seconds,
        "wait_seconds": wait_seconds,
        "targets": list(targets),
        "functions": None if functions is None else list(functions),
    }
    path = f"{PREFIX}/queues/{segment(queue)}/claim"
    return Request("POST", path, lambda answer: _reader(ClaimedRuns)(answer).runs, body=body, patience=wait_seconds)


def heartbeat_run(run: ClaimedRun, lease_seconds: float = 60) -> Request[Lease]:
    """Hold a claimed run for longer, and hear whether it is asked to stop. OwnershipLost: it is somebody else's."""
    return _about(run, "heartbeat", Lease, lease_seconds=lease_seconds)


def complete_run(run: ClaimedRun, result: object = None) -> Request[SettledRun]:
    """Report that a claimed run succeeded. OwnershipLost: too late, the report is refused."""
    return _about(run, "complete", SettledRun, result=result)


def fail_run(
    run: ClaimedRun, error: str, *, retryable: bool = True, retry_after: float | None = None
) -> Request[SettledRun]:
    """Report that an attempt failed; the job says whether there is another. OwnershipLost: too late."""
    return _about(run, "fail", SettledRun, error=error, retryable=retryable, retry_after=retry_after)


def version() -> Request[Version]:
    """Which detent answers."""
    return Request("GET", "/version", _reader(Version))


class Operations:
    """Every verb of the clients."""

    create_job = Operation(create_job)
    upsert_job = Operation(upsert_job)
    get_job = Operation(get_job)
    list_jobs = Listing(list_jobs)
    pause_job = Operation(pause_job)
    resume_job = Operation(resume_job)
    trigger_job = Operation(trigger_job)
    delete_job = Operation(delete_job)
    list_runs = Listing(list_runs)
    get_run = Operation(get_run)
    cancel_run = Operation(cancel_run)
    wait_for_run = Procedure(wait_for_run)
    claim_runs = Operation(claim_runs)
    heartbeat_run = Operation(heartbeat_run)
    complete_run = Operation(complete_run)
    fail_run = Operation(fail_run)
    version = Operation(version)


def _about(run: ClaimedRun, verb: str, kind: type[Result], **fields: object) -> Request[Result]:
    return Request("POST", f"{_run(run.run_id)}/{verb}", _reader(kind), body={"token": run.token, **fields})


def _reader(kind: type[Result]) -> Callable[[Answer], Result]:
    return lambda answer: msgspec.json.decode(answer.raw, type=kind)


def _nothing(answer: Answer) -> None:
    return None


def _job(job: str | UUID) -> str:
    return f"{PREFIX}/jobs/{segment(str(job))}"


def _run(run: str | UUID) -> str:
    return f"{PREFIX}/runs/{segment(str(run))}"
