"""An app on a worker: its functions as the runners call them, and what happens before the first run and after the last.

    lifespan, up to its yield → start-up hooks → worker-scoped dependencies → runs …
    … → clean-up of these dependencies → shut-down hooks, the last one first → the rest of the lifespan

All of it happens in one task on the handlers' loop: task groups and timeouts of a lifespan have to be left in the task
that entered them. Variables of `contextvars` that it sets are visible in every run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from typing import Any

from detent.errors import StartupFailed, UsageError
from detent.sdk.binding import Binding
from detent.sdk.dependencies import Dependency, name_of, worker_scoped
from detent.sdk.lifecycle import AppLifecycle
from detent.sdk.scopes import ValueScope, attempt
from detent.sdk.steps import Ended, Steps, perform, perform_in_thread
from detent.targets.exceptions import describe
from detent.targets.run import HandlerRun
from detent.telemetry.log import logger

log = logger("app")

HOOK_SECONDS = 10.0
"""How long the shut-down of an app may take."""
_CANCELLING_SECONDS = 1.0
_UNSET = object()


class ServedApp:
    """One app in one process. `start` and `stop` are awaited on the handlers' loop."""

    def __init__(self, app: AppLifecycle, *, eager: bool = True) -> None:
        """`eager`: make worker-scoped dependencies at the start; else the caller does, before it calls a function."""
        self._app = app
        self._eager = eager
        self._worker = ValueScope(app.overrides)
        self._variables: dict[ContextVar[Any], Any] = {}
        self.context = copy_context()
        """The variables that hooks and worker-scoped dependencies set."""
        self._before = dict(self.context)
        self.failures: list[BaseException] = []
        """What failed at the end."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._life: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    @property
    def has_hooks(self) -> bool:
        """Whether anything happens before the first run or after the last one."""
        app = self._app
        declared = app.lifespan is not None or bool(app.startup_hooks or app.shutdown_hooks)
        return declared or bool(self._dependencies())

    def functions(self) -> dict[str, Callable[..., Any]]:
        """The app's functions, each with one argument, the run. Those that nothing surrounds are as they were."""
        hooks = self.has_hooks
        return {
            reference: self._around(binding) if hooks or self._surrounded(binding) else binding.handler
            for reference, binding in self._app.bindings.items()
        }

    def steps(self, binding: Binding, run: HandlerRun) -> Steps[Ended]:
        """One call of the handler with everything around it."""
        for variable, value in self._variables.items():
            variable.set(value)
        app = self._app
        return (yield from attempt(binding, run, app.middlewares, self._worker, app.overrides))

    def _surrounded(self, binding: Binding) -> bool:
        return bool(self._app.middlewares or binding.signature.dependencies)

    def _around(self, binding: Binding) -> Callable[..., Any]:
        async def coroutine(run: HandlerRun) -> Any:
            return _result_of(await perform(self.steps(binding, run)))

        def plain(run: HandlerRun) -> Any:
            assert self._loop is not None, "functions are called after the start"
            return _result_of(perform_in_thread(self.steps(binding, run), copy_context(), self._loop))

        return coroutine if binding.is_async else plain

    # --- before the first run and after the last one ---

    async def start(self) -> None:
        """Raises StartupFailed."""
        self._loop = asyncio.get_running_loop()
        started: asyncio.Future[None] = self._loop.create_future()
        self._life = self._loop.create_task(self._live(started), context=self.context)
        try:
            await started
        except asyncio.CancelledError:
            self._life.cancel()
            raise

    async def stop(self, seconds: float = HOOK_SECONDS) -> None:
        """Never raises: what fails is logged."""
        if self._life is None:
            return
        self._stopping.set()
        done, _ = await asyncio.wait({self._life}, timeout=seconds)
        if not done:
            log.error("the shut-down of the app is cancelled: it took too long", seconds=seconds)
            self._life.cancel()
            await asyncio.wait({self._life}, timeout=_CANCELLING_SECONDS)

    def abandon(self) -> None:
        """End without the hooks: the process has to stop at once."""
        if self._life is not None:
            self._life.cancel()

    async def _live(self, started: asyncio.Future[None]) -> None:
        doing = "lifespan"
        try:
            async with self._lifespan():
                doing = ""
                await self._start_up(started)
                await self._stopping.wait()
                await self._shut_down()
                doing = "lifespan"
        except asyncio.CancelledError:
            pass  # its start or its end took too long, which is logged there
        except BaseException as error:  # SystemExit, too: it would end the loop that all handlers share
            if started.done():
                self._failed("the shut-down of the app failed", doing, error)
            else:
                started.set_exception(_startup_failed(doing, error))
        if not started.done():
            started.set_exception(StartupFailed("The lifespan of the app ended a failed start-up without an error."))

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        lifespan = self._app.lifespan
        if lifespan is None:
            yield
            return
        if inspect.isasyncgenfunction(lifespan):
            lifespan = asynccontextmanager(lifespan)
        entered: Any = lifespan(self._app)
        if not hasattr(entered, "__aenter__"):
            raise UsageError("lifespan is not an async context manager: write @asynccontextmanager above it.")
        async with entered:
            yield

    async def _start_up(self, started: asyncio.Future[None]) -> None:
        for hook in self._app.startup_hooks:
            try:
                await _run_hook(hook)
            except BaseException as error:
                raise _startup_failed(name_of(hook), error) from error
        ended = await perform(self._open_worker_scope(self._dependencies() if self._eager else []))
        if ended.error is not None:
            await perform(self._worker.close(ended))
            raise _startup_failed("a worker-scoped dependency", ended.error) from ended.error
        started.set_result(None)

    def open_for(self, binding: Binding) -> Steps[Ended]:
        """Make what the function and the middleware need of the worker, if it was not made before."""
        app = self._app
        needed = (worker_scoped(each, app.overrides) for each in (binding.function, *app.middlewares))
        return (yield from self._open_worker_scope([each for some in needed for each in some]))

    def _open_worker_scope(self, needed: Sequence[Dependency]) -> Steps[Ended]:
        """Make these values, and keep the variables that were set so far."""
        ended = yield from self._worker.values({str(number): each for number, each in enumerate(needed)})
        self._variables = {
            variable: value
            for variable, value in copy_context().items()
            if self._before.get(variable, _UNSET) is not value
        }
        return ended

    def close_worker_scope(self) -> Steps[None]:
        ended = yield from self._worker.close(Ended())
        if ended.error is not None:
            self._failed("a worker-scoped dependency failed at its end", "", ended.error)

    async def _shut_down(self) -> None:
        await perform(self.close_worker_scope())
        for hook in reversed(self._app.shutdown_hooks):
            try:
                await _run_hook(hook)
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                self._failed("a shut-down hook failed", name_of(hook), error)

    def _failed(self, event: str, what: str, error: BaseException) -> None:
        self.failures.append(error)
        _log_failure(event, what, error)

    def _dependencies(self) -> list[Dependency]:
        """All of the app that are made once per worker."""
        overrides = self._app.overrides
        return [each for function in self._app.surroundings() for each in worker_scoped(function, overrides)]


async def _run_hook(hook: Callable[[], Any]) -> None:
    result = hook()
    if inspect.isawaitable(result):
        await result


def _startup_failed(what: str, error: BaseException) -> StartupFailed:
    if isinstance(error, StartupFailed):
        return error
    _log_failure("the start-up of the app failed", what, error)
    return StartupFailed(
        f"The start-up of the app failed in {what} ({describe(error)}): correct it, the log has the traceback."
    )


def _log_failure(event: str, what: str, error: BaseException) -> None:
    log.error(event, **({"hook": what} if what else {}), exc_info=error)


def _result_of(ended: Ended) -> Any:
    if ended.error is not None:
        raise ended.error
    return ended.result
