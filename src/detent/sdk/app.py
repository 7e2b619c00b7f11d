"""Jobs in code: `app = Detent()`, `@app.job(cron="0 9 * * MON", timezone="America/New_York")`.

At the start of `detent serve --app package.module:app` every job of the app is registered by name: created if it is
new, updated if it differs. Jobs that the app registered before and no longer has are logged, never deleted.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Literal, TypeVar, Unpack, overload

from detent.errors import UsageError
from detent.sdk.binding import Binding
from detent.sdk.connect import Place, open_gateway
from detent.sdk.dependencies import check_dependencies
from detent.sdk.fields import JobFields, documented, schedule_of
from detent.sdk.importable import NOWHERE, is_the_same_program, module_of
from detent.sdk.lifecycle import AppLifecycle, Lifespan
from detent.sdk.portal import portal
from detent.sdk.task import AsyncRunTask, AsyncTask, Decorator, P, PlainRunTask, PlainTask, R, Task, task_kind

if TYPE_CHECKING:
    from detent.sdk.gateway import Gateway
    from detent.sdk.testing import TestMode
    from detent.targets.run import HandlerRun

# Of the program that uses the app: its own settings decide where lines go, and by default warnings reach its terminal.
log = logging.getLogger("detent")

Function = TypeVar("Function", bound=Callable[..., Any])
Isolate = Literal["thread", "process"]


class Detent(AppLifecycle):
    """A collection of jobs and the functions they call.

    `url` is where its runs are enqueued: `postgresql://…`, or `http://…` with a `key`. Without it, an app in a node
    uses the node's database; elsewhere DETENT_API_URL, DETENT_DATABASE_URL, or the server on this machine. `tenant` is
    the tenant of enqueues through the database; a key has its own. `lifespan` is an async context manager that
    surrounds all runs of a worker.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        url: str | None = None,
        key: str | None = None,
        tenant: str = "default",
        lifespan: Lifespan | None = None,
    ) -> None:
        super().__init__(lifespan)
        self.name = name
        self.functions: dict[str, Callable[..., Any]] = {}
        """What runners call: each takes exactly one argument, the run."""
        self.jobs: list[dict[str, Any]] = []
        self.known_jobs: list[dict[str, Any]] = []
        """Jobs that call its functions and are registered elsewhere: a worker names them among what it serves."""
        self.tasks: dict[str, Task[..., Any]] = {}
        self.place = Place(url, key, tenant)
        self.bindings: dict[str, Binding] = {}
        self._attached: Gateway | None = None

    # --- functions and their jobs ---

    def job(
        self,
        *,
        name: str | None = None,
        cron: str | None = None,
        every: str | float | timedelta | None = None,
        rrule: str | None = None,
        at: str | datetime | None = None,
        after: Literal["finish"] | None = None,
        also: Sequence[str | Mapping[str, Any]] = (),
        exclude: Sequence[str | date | Mapping[str, str]] = (),
        payload: Any = None,
        isolate: Isolate = "thread",
        **fields: Unpack[JobFields],
    ) -> Decorator:
        """Register the decorated function and a job that calls it on a schedule. `payload` has its arguments.

        `also` has more schedules: the job ticks when any of them does; `exclude` has days and times at which it does
        not. `every="10m", after="finish"`: ten minutes after the previous run ended.

        `isolate="process"`: the function runs in its own process; if that dies, one attempt fails and nothing else.
        """
        forms = {"cron": cron, "every": every, "rrule": rrule, "at": at}
        schedule = schedule_of({**forms, "after": after, "also": also, "exclude": exclude})
        return self._decorator(name, isolate, payload, {"schedule": schedule, **documented(fields)})

    @overload
    def task(  # type: ignore[overload-overlap] # as in Decorator
        self, function: Callable[Concatenate[HandlerRun, P], Coroutine[Any, Any, R]], /
    ) -> AsyncRunTask[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[HandlerRun, P], R], /) -> PlainRunTask[P, R]: ...
    @overload
    def task(  # type: ignore[overload-overlap] # as in Decorator
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        payload: Any = None,
        isolate: Isolate = "thread",
        **fields: Unpack[JobFields],
    ) -> Decorator: ...
    def task(  # type: ignore[misc] # mypy does not see that **Any accepts what Unpack names
        self, function: Callable[..., Any] | None = None, /, **keywords: Any
    ) -> Any:
        """Register the decorated function and a task that calls it: a job without a schedule, whose runs are enqueued.
        Both `@app.task` and `@app.task(…)` work."""
        if isinstance(function, str):
            raise UsageError(f"@app.task({function!r}) has no keyword: write @app.task(name={function!r}).")
        name, payload = keywords.pop("name", None), keywords.pop("payload", None)
        isolate = keywords.pop("isolate", "thread")
        decorator = self._decorator(name, isolate, payload, documented(keywords))
        return decorator if function is None else decorator(function)

    def function(self, name: str | None = None) -> Callable[[Function], Function]:
        """Register a function without a job; jobs created elsewhere can call it."""
        local = _callers_names()

        def register(function: Function) -> Function:
            self._add(Binding(function, local, named=name is not None), name)
            return function

        return register

    def check(self) -> None:
        """Raise UsageError for what could not be decided while the app was imported, such as annotations that use
        names which are defined later."""
        for binding in self.bindings.values():
            binding.check()
        for task in self.tasks.values():
            _check_payload(task.document, task.binding)

    def _decorator(self, name: str | None, isolate: Isolate, payload: Any, fields: dict[str, Any]) -> Decorator:
        local = _callers_names(2)

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            if isinstance(function, Task):
                raise UsageError(f"{function.name!r} is a job already: register another function for a second job.")
            binding = Binding(function, local)
            chosen = {} if isolate == "thread" else {"isolate": isolate}
            document = {"name": name or function.__name__.replace("_", "-"), "target": {}, **fields}
            if payload is not None:
                document["payload"] = payload
            if document["name"] in self.tasks:
                raise UsageError(f"This app has two jobs named {document['name']!r}: give one of them another name=.")
            if not binding.undecided:  # else `check` does it
                _check_payload(document, binding)
            document["target"] = {"type": "python", "function": self._add(binding, None), **chosen}
            self.jobs.append(document)
            task = task_kind(binding)(self, binding, document)
            self.tasks[task.name] = task
            return task

        return Decorator(register)

    def _add(self, binding: Binding, name: str | None) -> str:
        function = binding.function
        check_dependencies(function)
        reference = name or f"{module_of(function)}:{function.__qualname__.replace('<locals>.', '')}"
        known = self.bindings.get(reference)
        if known is not None and known.function is not function and not is_the_same_program(known.function, function):
            raise UsageError(f"This app has two functions {reference!r}: rename one of them.")
        self.bindings[reference] = binding
        self.functions[reference] = binding.handler
        return reference

    # --- the way into the cluster ---

    @property
    def in_memory(self) -> bool:
        """Whether runs are kept in this process, as in a test."""
        return self._attached is not None and self._attached.in_memory

    def attach(self, gateway: Gateway | None) -> Gateway | None:
        """Enqueue through this gateway, as a test does with its memory; returns the one before."""
        before, self._attached = self._attached, gateway
        return before

    def gateway(self) -> Gateway:
        """The way in of this process. It is opened at the first use."""
        return self._attached or open_gateway(self.place)

    async def register(self) -> None:
        """Create or update all jobs of the app now. A worker that is started with the app does that by itself."""
        self._check_importable()
        await portal.run(self._upsert_all)

    def register_sync(self) -> None:
        """As `register`, and waits in this thread."""
        self._check_importable()
        portal.block(self._upsert_all)

    def _check_importable(self) -> None:
        self.check()
        for document in self.jobs:
            if document["target"]["function"].startswith(f"{NOWHERE}:"):
                raise UsageError(
                    f"No worker can import the function of {document['name']!r}: this program is in no file. Write the"
                    " app in a module, and import it here."
                )

    async def _upsert_all(self) -> None:
        for document in self.jobs:
            job = await self.gateway().upsert(document)
            for warning in job.warnings:
                log.warning("%s: %s", job.name, warning)

    async def close(self) -> None:
        """Close the connections that enqueues opened; the next enqueue opens them again."""
        await portal.run(self.place.close)

    # --- tests ---

    def test(self, start: str | datetime | None = None, *, connection: Any = None) -> TestMode:
        """The app in test mode: real schedules and a clock that the test moves, without a database or a server.

            with app.test(start="2026-03-29T00:00:00Z") as t:
                t.advance(hours=3)
            assert [run.status for run in t.runs_of("nightly-report")] == ["succeeded"]

        `start` is the initial time, by default 2026-01-01T00:00:00Z. `connection` is an asyncpg connection of the
        test, for functions that use `run.transaction()`.
        """
        from detent.sdk.testing import TestMode

        return TestMode(self, start, connection)


def _check_payload(document: dict[str, Any], binding: Binding) -> None:
    """A tick needs all parameters. The payload of a task is a default that each enqueue replaces."""
    scheduled = document.get("schedule") is not None
    if scheduled or document.get("payload") is not None:
        payload = binding.check_payload(document.get("payload"), complete=scheduled)
        if payload is not None:
            document["payload"] = payload  # as JSON, which models of pydantic are not


def _callers_names(depth: int = 1) -> Mapping[str, Any]:
    """The local names where the app is used, for annotations that are text: a function inside a function, as in a test,
    has types that its module does not know."""
    return sys._getframe(depth + 1).f_locals
