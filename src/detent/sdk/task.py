"""A function of the app that can be enqueued: typed by its own parameters and its own result.

Keywords of an enqueue cannot be mixed with the parameters of a function, so `options` comes first:
`await send_mail.options(delay=60).enqueue(to="ada@example.com")`.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypedDict, TypeVar, Unpack, cast, overload
from uuid import UUID

from detent.errors import UsageError
from detent.sdk.binding import Binding
from detent.sdk.fields import SCHEDULE_PARTS, ScheduledFields, documented, schedule_of, seconds_of
from detent.sdk.handle import BlockingHandle, Handle
from detent.sdk.portal import portal

if TYPE_CHECKING:
    from detent.contract.job import Job
    from detent.contract.task import EnqueuedRun
    from detent.domain.on_demand import NewRun
    from detent.sdk.app import Detent
    from detent.targets.run import HandlerRun

P = ParamSpec("P")
R = TypeVar("R")
MAX_RUNS_AT_ONCE = 10_000


class RunOptions(TypedDict, total=False):
    """How a run is enqueued. What is not given is as its job says."""

    delay: float | timedelta | None
    at: datetime | None
    priority: int | None
    queue: str | None
    unique_key: str | None
    unique_for: float | timedelta | None
    concurrency_key: str | None
    payload: Any
    connection: Any


class TaskCall(Generic[P, R]):
    """Arguments of a task, checked and ready to be enqueued: see `Task.call`."""

    def __init__(self, task: Task[P, R], payload: Any) -> None:
        self.task = task
        self.payload = payload

    def __repr__(self) -> str:
        return f"TaskCall({self.task.name!r}, {self.payload!r})"


class Task(Generic[P, R]):
    """What `@app.task` and `@app.job` make of a function. Calling it calls the function; `enqueue` has a worker call
    it."""

    __wrapped__: Callable[..., Any]
    __name__: str

    def __init__(self, app: Detent, binding: Binding, document: dict[str, Any]) -> None:
        update_wrapper(cast("Callable[..., Any]", self), binding.function)
        if binding.is_async:
            _mark_coroutine_function(self)
        self.app = app
        self.binding = binding
        self.document = document
        self._options: RunOptions = {}

    @property
    def name(self) -> str:
        """The name of its job."""
        return str(self.document["name"])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        """By its name in its module, as functions are pickled."""
        return self.__wrapped__.__qualname__

    # --- enqueue ---

    def options(self, **options: Unpack[RunOptions]) -> Self:
        """This task with options for the runs that it enqueues.

        `delay` or `at`: when the run is due. `unique_key`: while a run with it is unfinished, and for `unique_for`
        seconds, no other is created. `payload`: for a function without parameters of its own. `connection`: the runs
        are a part of the transaction on this connection, of asyncpg, psycopg, SQLAlchemy or Django.
        """
        unknown = sorted(options.keys() - RunOptions.__annotations__.keys())
        if unknown:
            known = ", ".join(RunOptions.__annotations__)
            raise UsageError(f"There is no option {unknown[0]!r} of an enqueue: there are {known}.")
        if "payload" in options and self.binding.takes_payload:
            raise UsageError(f"{self.name!r} takes its payload as parameters: pass them to enqueue().")
        changed = object.__new__(type(self))  # `copy` would take the way of pickle, which finds this task
        changed.__dict__.update(self.__dict__)
        changed._options = {**self._options, **options}
        return changed

    def call(self, *args: P.args, **kwargs: P.kwargs) -> TaskCall[P, R]:
        """Arguments for `enqueue_many` and `schedule`. Raises UsageError if they do not fit."""
        return TaskCall(
            self, self.binding.payload(args, kwargs) if self.binding.takes_payload else self._own(args, kwargs)
        )

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue a run with these arguments."""
        (enqueued,) = await self._send([self.call(*args, **kwargs)])
        return self._handle(Handle, enqueued)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> BlockingHandle[R]:
        """As `enqueue`, and waits in this thread until the run is enqueued."""
        (enqueued,) = self._send_sync([self.call(*args, **kwargs)])
        return self._handle(BlockingHandle, enqueued)

    async def enqueue_many(self, calls: Iterable[TaskCall[P, R]]) -> list[Handle[R]]:
        """Enqueue up to ten thousand runs, all or none: `[send_mail.call(to=to) for to in everyone]`."""
        return [self._handle(Handle, enqueued) for enqueued in await self._send(list(calls))]

    def enqueue_many_sync(self, calls: Iterable[TaskCall[P, R]]) -> list[BlockingHandle[R]]:
        """As `enqueue_many`, and waits in this thread."""
        return [self._handle(BlockingHandle, enqueued) for enqueued in self._send_sync(list(calls))]

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> BlockingHandle[R]:
        """The name that Celery has for `enqueue_sync`."""
        return self.enqueue_sync(*args, **kwargs)

    def apply_async(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        countdown: float | timedelta | None = None,
        eta: datetime | None = None,
        queue: str | None = None,
        priority: int | None = None,
    ) -> BlockingHandle[R]:
        """As Celery's: no type checker sees the arguments. `enqueue` with `options` has them checked."""
        given = {"delay": countdown, "at": eta, "queue": queue, "priority": priority}
        untyped: Any = self.options(
            **cast("RunOptions", {key: value for key, value in given.items() if value is not None})
        )
        enqueued: BlockingHandle[R] = untyped.enqueue_sync(*args, **(kwargs or {}))
        return enqueued

    def handle(self, run_id: str | UUID) -> Handle[R]:
        """The handle of a run of this task that was enqueued before, perhaps by another process."""
        return Handle(run_id, self.app.gateway, self.binding.result)

    def handle_sync(self, run_id: str | UUID) -> BlockingHandle[R]:
        """As `handle`, for plain functions."""
        return BlockingHandle(run_id, self.app.gateway, self.binding.result)

    # --- schedule ---

    async def schedule(self, name: str, call: TaskCall[P, R] | None = None, **fields: Unpack[ScheduledFields]) -> Job:
        """Create the job `name`, or change it: it calls this function with these arguments, on a schedule.

            await send_mail.schedule("weekly-mail", send_mail.call(to="a"), cron="0 9 * * MON", timezone="Asia/Tokyo")

        Fields that are not given are those of this task.
        """
        document = self._scheduled(name, call, fields)
        return await portal.run(lambda: self.app.gateway().upsert(document))

    def schedule_sync(self, name: str, call: TaskCall[P, R] | None = None, **fields: Unpack[ScheduledFields]) -> Job:
        """As `schedule`, and waits in this thread."""
        document = self._scheduled(name, call, fields)
        return portal.block(lambda: self.app.gateway().upsert(document))

    def _scheduled(self, name: str, call: TaskCall[P, R] | None, fields: ScheduledFields) -> dict[str, Any]:
        given: dict[str, Any] = dict(fields)
        schedule = schedule_of({part: given.pop(part, None) for part in SCHEDULE_PARTS})
        payload = self._checked(call).payload if call is not None else self.document.get("payload")
        payload = self.binding.check_payload(payload, complete=True)
        kept = {key: value for key, value in self.document.items() if key not in ("schedule", "payload")}
        document = {**kept, **documented(given), "name": name, "schedule": schedule}
        return document if payload is None else {**document, "payload": payload}

    # --- the way to the cluster ---

    async def _send(self, calls: Sequence[TaskCall[P, R]]) -> list[EnqueuedRun]:
        runs = self._new_runs(calls)
        if not runs:
            return []
        if self._joins:
            from detent.sdk.connections import enqueue_on

            return await enqueue_on(self._options["connection"], self.app.place, self.name, runs)
        return await portal.run(lambda: self.app.gateway().enqueue(self.name, runs))

    def _send_sync(self, calls: Sequence[TaskCall[P, R]]) -> list[EnqueuedRun]:
        runs = self._new_runs(calls)
        if not runs:
            return []
        if self._joins:
            from detent.sdk.connections import enqueue_on_sync

            return enqueue_on_sync(self._options["connection"], self.app.place, self.name, runs)
        return portal.block(lambda: self.app.gateway().enqueue(self.name, runs))

    @property
    def _joins(self) -> bool:
        """Whether its runs are a part of a transaction of the caller."""
        return self._options.get("connection") is not None and not self.app.in_memory

    def _new_runs(self, calls: Sequence[TaskCall[P, R]]) -> list[NewRun]:
        if len(calls) > MAX_RUNS_AT_ONCE:
            raise UsageError(f"{len(calls)} runs are more than {MAX_RUNS_AT_ONCE:,}: enqueue them in several parts.")
        joined = self._options.get("connection")
        for call in calls:
            if self._checked(call).task._options.get("connection", joined) is not joined:
                raise UsageError("connection= is of the whole enqueue: task.options(connection=…).enqueue_many(…).")
        made = [_new_run({**self._options, **self._checked(call).task._options}, call.payload) for call in calls]
        if self.document.get("payload_schema") is not None:
            self._check_payloads(made)
        return made

    def _check_payloads(self, runs: Sequence[NewRun]) -> None:
        """Here, because the SQL functions that enqueue in a transaction of the caller cannot."""
        import msgspec

        from detent.domain.payload_schema import read_payload_schema

        schema = read_payload_schema(self.document["payload_schema"])
        for run in runs:
            if run.payload is not msgspec.UNSET or self.document.get("payload") is None:
                schema.check(None if run.payload is msgspec.UNSET else msgspec.to_builtins(run.payload))

    def _checked(self, call: TaskCall[P, R]) -> TaskCall[P, R]:
        if not isinstance(call, TaskCall):
            raise UsageError(f"{call!r} is not a call: write {self.__wrapped__.__name__}.call(…).")
        if call.task.document is not self.document:
            raise UsageError(f"This is a call of {call.task.name!r}, and was given to {self.name!r}.")
        return call

    def _own(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The payload of a function without parameters of its own."""
        import msgspec

        if args or kwargs:
            raise UsageError(
                f"{self.name!r} has no parameters of its own: give its payload with .options(payload=…).enqueue()."
            )
        return self._options.get("payload", msgspec.UNSET)

    def _handle(self, kind: type[AnyHandle], enqueued: EnqueuedRun) -> AnyHandle:
        return kind(enqueued.id, self.app.gateway, self.binding.result, created=enqueued.created, joined=self._joins)


AnyHandle = TypeVar("AnyHandle", Handle[Any], BlockingHandle[Any])


class AsyncTask(Task[P, R]):
    """Of an `async def`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        made: Coroutine[Any, Any, R] = self.__wrapped__(*args, **kwargs)
        return made


class PlainTask(Task[P, R]):
    """Of a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        made: R = self.__wrapped__(*args, **kwargs)
        return made


class AsyncRunTask(Task[P, R]):
    """Of an `async def` whose first parameter is the run."""

    def __call__(self, run: HandlerRun, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        made: Coroutine[Any, Any, R] = self.__wrapped__(run, *args, **kwargs)
        return made


class PlainRunTask(Task[P, R]):
    """Of a plain function whose first parameter is the run."""

    def __call__(self, run: HandlerRun, /, *args: P.args, **kwargs: P.kwargs) -> R:
        made: R = self.__wrapped__(run, *args, **kwargs)
        return made


class Decorator:
    """What `@app.task(…)` and `@app.job(…)` return: it turns a function into a task of its own kind."""

    def __init__(self, register: Callable[[Callable[..., Any]], Task[..., Any]]) -> None:
        self._register = register

    # The kinds overlap for functions without annotations: the first that fits counts.
    @overload
    def __call__(  # type: ignore[overload-overlap] # as above
        self, function: Callable[Concatenate[HandlerRun, P], Coroutine[Any, Any, R]], /
    ) -> AsyncRunTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[HandlerRun, P], R], /) -> PlainRunTask[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap] # as above
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        return self._register(function)


def task_kind(binding: Binding) -> type[Task[..., Any]]:
    if binding.signature.takes_run:
        return AsyncRunTask if binding.is_async else PlainRunTask
    return AsyncTask if binding.is_async else PlainTask


def _mark_coroutine_function(task: Any) -> None:
    """So that frameworks that ask whether to await it get the right answer."""
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(task)
    else:
        task._is_coroutine = getattr(asyncio.coroutines, "_is_coroutine", None)


def _new_run(options: Mapping[str, Any], payload: Any) -> NewRun:
    import msgspec

    from detent.domain.on_demand import NewRun

    given: dict[str, Any] = {
        name: value
        for name, value in options.items()
        if value is not None and name in ("at", "priority", "queue", "unique_key", "concurrency_key")
    }
    if options.get("delay") is not None:
        given["delay_seconds"] = seconds_of("delay", options["delay"])
    if options.get("unique_for") is not None:
        given["unique_for_seconds"] = seconds_of("unique_for", options["unique_for"])
    if payload is not msgspec.UNSET:
        given["payload"] = payload
    try:
        return msgspec.convert(given, NewRun)
    except msgspec.ValidationError as error:
        raise UsageError(f"The options of an enqueue do not fit: {error}.") from error
