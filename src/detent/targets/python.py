"""Python functions of the user's app as targets.

No user code runs on the loop that fires and settles: async functions run on their own loop in their own thread, plain
functions in a pool of threads, and results and errors are turned into text there too. A handler that blocks delays
other handlers, never a tick; one that never releases the interpreter lock needs its own process (processes.py).
calls.py handles calls that wait for a thread. Only functions that the app registered can be called; a name in a job is
looked up, never imported.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from detent.domain.functions import did_you_mean
from detent.domain.job import PythonTarget
from detent.domain.run import Call, Committed, Failed, NotBegun, Outcome, Succeeded
from detent.errors import UsageError
from detent.targets.calls import BEGIN_WITHIN, Capacity, HandlerCall, Lane
from detent.targets.exceptions import describe, discarded, failure_of
from detent.targets.gate import TenantGate
from detent.targets.handover import Handover
from detent.targets.processes import HandlerProcesses
from detent.targets.results import MAX_RESULT_BYTES, NotJson, as_json
from detent.targets.run import HandlerRun
from detent.targets.threads import DaemonThreads
from detent.telemetry.capture import Handling
from detent.telemetry.log import logger

Result = TypeVar("Result")
MakeRun = Callable[[Call], HandlerRun]
_STOP_SECONDS = 2.0

log = logger("python")


class HandlerThread:
    """Where handlers run: an event loop in a thread for coroutines, and a pool of threads for plain functions."""

    def __init__(self, threads: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="detent-handlers", daemon=True)
        self._stopping = False
        self._handover = Handover(self._loop)
        self._pool = DaemonThreads(threads)
        self.threads = threads

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        """Only `stop` ends the loop. A handler may stop it, or raise SystemExit in a task: then it is started again,
        because all other coroutines would otherwise wait until their timeout."""
        while not self._stopping:
            try:
                self._loop.run_forever()
            except BaseException as error:
                log.error("a handler's task tried to end the process", error=describe(error))

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """From the node's loop: run a coroutine on the handlers' loop; cancelling here cancels it there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        """From the thread of a plain function: run a coroutine on the handlers' loop, and wait for its end."""
        return wait_on(self._loop, work)

    def on_loop(self, work: Callable[[], object]) -> None:
        """From any thread: call this on the handlers' loop, in no certain context."""
        self._handover.hand(work)

    def in_thread(self, work: Callable[[], None]) -> None:
        """Call this in a thread of the pool. A blocked loop does not delay it."""
        self._pool.call(work)

    async def stop(self, last: Callable[[], None] = lambda: None) -> None:
        """`last` is called on the handlers' loop before it ends. A loop that a handler blocks is abandoned."""
        self._pool.end()
        self._stopping = True
        self.on_loop(last)
        self.on_loop(lambda: self._loop.call_soon(self._loop.stop))  # once what `last` began is done
        await asyncio.to_thread(self._thread.join, _STOP_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


class Describer:
    """Turns what a handler returned or raised into an outcome. That calls methods of the user's objects, so it happens
    where the handler runs, never on the node's loop. No exception crosses a thread or a loop: a future refuses
    StopIteration and never completes, SystemExit and KeyboardInterrupt end the loop that all handlers share."""

    def __init__(self, max_result_bytes: int) -> None:
        self._limit = max_result_bytes

    def returned(self, run: HandlerRun, result: object) -> Outcome:
        if run.committed:
            return Committed()
        try:
            return Succeeded(as_json(result, self._limit))
        except NotJson as error:
            return failure_of(error.with_traceback(None))  # it was raised here, not in the handler

    def raised(self, run: HandlerRun, error: BaseException) -> Outcome:
        if not run.committed:
            return discarded(error) or failure_of(error, run.mask)
        # The run has succeeded in the handler's own transaction; a later failure can only be logged.
        log.error("a handler failed after its run had committed", run_id=run.id, job=run.job, error=describe(error))
        return Committed()


class PythonTargetRunner:
    keeps_time = True  # the timeout counts from the call of the handler, which the worker does not see

    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]],
        thread: HandlerThread,
        make_run: MakeRun,
        *,
        max_result_bytes: int = MAX_RESULT_BYTES,
        begin_within: float = BEGIN_WITHIN,
        processes: HandlerProcesses | None = None,
        isolate: bool = False,
        tenant_headroom: float = 0.0,
    ) -> None:
        """`processes`: for functions whose job asks for one, or, with `isolate`, for all. `tenant_headroom`: as in
        the worker, of the threads."""
        self._functions = functions
        self._thread = thread
        self._make_run = make_run
        self._begin_within = begin_within
        self._describer = Describer(max_result_bytes)
        self._gate = TenantGate(thread.threads, tenant_headroom)
        self._threads = Lane(
            f"All {thread.threads} threads for plain functions are busy.", thread.in_thread, self._gate
        )
        self._loop = Lane("A coroutine blocks the loop that all coroutines share.", thread.on_loop)
        self._examined: dict[str, HandlerFunction] = {}
        self._back: Handover | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # a loop holds only weak references to its tasks
        self._processes = processes
        self._isolate = isolate and processes is not None
        lanes = () if processes is None else processes.lanes
        self.capacity = Capacity((self._threads, self._loop, *lanes), self._lanes_for)

    async def __call__(self, call: Call) -> Outcome | NotBegun:
        assert isinstance(call.target, PythonTarget)
        function = self._known(call.target.function)
        if function is None:
            return no_function("This worker", call.target.function, self._functions)
        if self._isolate or call.target.isolate == "process":
            return await self._in_process(call)
        lane = self._loop if function.is_coroutine else self._threads
        if lane.short:
            return NotBegun(lane.why)
        run = self._make_run(call)
        back = self._back or self._begin_handover()
        if lane is self._loop:
            pending = HandlerCall(call.timeout_seconds, self._begin_within, back)
            self._await(pending, run, partial(function, run))
            return await pending.wait(lane)
        if not await self._gate.enter(call.tenant, self._begin_within):
            return NotBegun(f"Its tenant holds its share of the {self._thread.threads} threads for plain functions.")
        pending = HandlerCall(call.timeout_seconds, self._begin_within, back, partial(self._gate.leave, call.tenant))
        try:
            # As a task of the loop has: what a function sets is not seen by the next one in its thread.
            self._thread.in_thread(partial(copy_context().run, self._in_thread, pending, function, run))
        except BaseException:
            self._gate.leave(call.tenant)
            raise
        return await pending.wait(lane)

    async def _in_process(self, call: Call) -> Outcome | NotBegun:
        if self._processes is None:
            return Failed("This worker has no app for a handler process: start it with --app.", retryable=False)
        return await self._processes(call)

    def _begin_handover(self) -> Handover:
        """To the node's loop, on which all calls are made."""
        self._back = Handover(asyncio.get_running_loop())
        return self._back

    def _known(self, name: str) -> HandlerFunction | None:
        known = self._examined.get(name)
        if known is None and name in self._functions:
            known = self._examined[name] = HandlerFunction(self._functions[name])
        return known

    def _lanes_for(self, needs: str) -> Sequence[Lane]:
        kind, _, name = needs.partition(":")
        function = self._known(name) if kind in ("python", "process") else None
        if function is None:
            return ()
        if kind == "process" or self._isolate:
            return () if self._processes is None else self._processes.lanes
        return (self._loop if function.is_coroutine else self._threads,)

    # --- in a handler's thread ---

    def _in_thread(self, pending: HandlerCall, function: HandlerFunction, run: HandlerRun) -> None:
        if not pending.begin():
            return
        run.wait = self._thread.wait_for
        with Handling(run.mask, run):
            try:
                result = function(run)
                if inspect.isawaitable(result):
                    self._await(pending, run, lambda: result, begun=True)
                    return
                outcome = self._describer.returned(run, result)
            except BaseException as error:
                outcome = self._describer.raised(run, error)
        run.ended()
        pending.end(outcome)

    # --- on the handlers' loop ---

    def _await(self, pending: HandlerCall, run: HandlerRun, make: Callable[[], Any], *, begun: bool = False) -> None:
        """The call begins inside the task: between its creation and its first step, others may block the loop. It has
        the context of the caller, with its span."""
        context = copy_context()

        async def work() -> None:
            if not begun and not pending.begin():
                return
            with Handling(run.mask, run):
                try:
                    outcome = self._describer.returned(run, await make())
                except BaseException as error:
                    outcome = self._describer.raised(run, error)
            run.ended()
            pending.end(outcome)

        def start() -> None:
            loop = asyncio.get_running_loop()
            task = loop.create_task(work(), context=context)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            # Behind its first step: a task that is cancelled before that never ends its call.
            pending.interruptible(partial(self._thread.on_loop, partial(loop.call_soon, task.cancel)))

        self._thread.on_loop(start)


class HandlerFunction:
    """A function of the app, with what it takes. Looking at its signature for each call took 12 µs."""

    __slots__ = ("_function", "_takes_run", "is_coroutine")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._takes_run: bool | None = None  # looked at where the function is called: that may fail
        self.is_coroutine = inspect.iscoroutinefunction(function)

    def __call__(self, run: HandlerRun) -> Any:
        takes = self._takes_run
        if takes is None:
            takes = self._takes_run = takes_run(self._function)
        return self._function(run) if takes else self._function()


def wait_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Result]) -> Result:
    """From another thread: run a coroutine on this loop, and wait for its end."""
    if asyncio._get_running_loop() is loop:
        work.close()
        raise UsageError("This would wait for the loop that it runs on: write `async with` or `await` in a coroutine.")
    return asyncio.run_coroutine_threadsafe(work, loop).result()


def takes_run(function: Callable[..., Any]) -> bool:
    return bool(inspect.signature(function).parameters)


def no_function(owner: str, name: str, known: Iterable[str]) -> Failed:
    """`owner`, such as `This worker`, does not have the function."""
    advice = "correct the job, or give the worker an app that has it."
    return Failed(f"{owner} has no function {name!r}{did_you_mean(name, known)}: {advice}", retryable=False)
