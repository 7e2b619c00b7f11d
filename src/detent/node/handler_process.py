"""The process that runs isolated handlers: `python -m detent.node.handler_process FD PARENT`.

A node starts it (targets/process.py), names the app in the first message, and sends one call after another. Coroutines
run on the loop of the main thread, plain functions in a second thread. A third thread reads messages from the node, so
that a handler that blocks can still ask whether its run is held. The process exits as soon as its node is gone.
"""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any

from detent.domain.effects import NewStep, OnceKey
from detent.domain.run import Call, Outcome
from detent.errors import DetentError, OwnershipLost, StartupFailed
from detent.node.apps import attach_database, load_app
from detent.sdk.app import Detent
from detent.sdk.serving import HOOK_SECONDS, ServedApp
from detent.store.effects import EffectPool
from detent.store.limits import work_limits
from detent.targets.frames import (
    LENGTH_BYTES,
    Ask,
    Begun,
    CallAnswer,
    FromProcess,
    Holding,
    ProcessReady,
    Setup,
    Start,
    Stop,
    ToProcess,
    Unfit,
    call_in,
    done_with,
    frame,
    length_of,
    read_by_process,
)
from detent.targets.output import AttemptOutput
from detent.targets.outputs import Outputs
from detent.targets.python import Describer, HandlerFunction, no_function, wait_on
from detent.targets.run import HandlerRun
from detent.targets.shell_user import hide_memory
from detent.targets.threads import DaemonThreads
from detent.telemetry.capture import Handling, captured_streams
from detent.telemetry.log import captured_logging, configure

_PR_SET_PDEATHSIG = 1
_LEAVING_SECONDS = 1.0
SEND_EVERY = 0.25
_numbers = count()


class CallChannel:
    """The socket to the node: one thread reads it, any thread writes to it."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)  # programs that handlers start must not keep it open
        self._socket = socket.socket(fileno=descriptor)
        self._writing = threading.Lock()

    def send(self, message: FromProcess) -> None:
        with self._writing:
            self._socket.sendall(frame(message))

    def receive(self) -> ToProcess | None:
        """None: the node closed the socket, or is gone."""
        header = self._exactly(LENGTH_BYTES)
        body = None if header is None else self._exactly(length_of(header))
        return None if body is None else read_by_process(body)

    def _exactly(self, count: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(min(count - len(parts), 1 << 20))
            if not part:
                return None
            parts += part
        return bytes(parts)


class ProcessOutputs(Outputs):
    """Sends lines and progress to the node, a few times a second, from a thread of its own."""

    def __init__(self, line: CallChannel, limit: int) -> None:
        super().__init__(limit, self._rouse_sender)
        self._line = line
        self._work = threading.Event()
        self._sending = threading.Lock()
        self._started = False

    def _rouse_sender(self) -> None:
        if not self._started:
            self._started = True
            threading.Thread(target=self._send_all, name="detent-output", daemon=True).start()
        self._work.set()

    def _send_all(self) -> None:
        with suppress(OSError):  # the node is gone, and this process is about to end
            while self._work.wait():
                self._work.clear()
                while self.flush() or not self.rest():
                    threading.Event().wait(SEND_EVERY)

    def flush(self) -> bool:
        """Send what is there; returns whether more may follow."""
        with self._sending:
            found = self.collect()
            for chunk in found.chunks:
                self._line.send(chunk)
            for mark in found.marks:
                self._line.send(mark)
        return found.more


class NodeBackend:
    """What a handler's Run asks of the node that holds it."""

    def __init__(self, line: CallChannel, effects: EffectPool, outputs: ProcessOutputs) -> None:
        self._line = line
        self._outputs = outputs
        self._effects = effects
        self._asking = threading.Lock()
        self.answers: SimpleQueue[CallAnswer] = SimpleQueue()
        self.stopped = False

    def held(self, run_id: str, token: int) -> bool:
        return self._holding() is not None

    def output(self, call: Call) -> AttemptOutput | None:
        return self._outputs.begin(call)

    def progress(self, run_id: str, token: int, fraction: float, message: str) -> None:
        self._outputs.progress(run_id, token, fraction, message)

    def _holding(self) -> Holding | None:
        if self.stopped:
            return None
        with self._asking:
            self._line.send(Ask(number := next(_numbers)))
            while (answer := self.answers.get()).number != number:
                pass  # the answer to a question of an earlier run
        return None if self.stopped else answer.holding

    async def _held(self, lost: str) -> Holding:
        holding = await asyncio.to_thread(self._holding)
        if holding is None:
            raise OwnershipLost(f"This run was cancelled or taken over: {lost}.")
        return holding

    @asynccontextmanager
    async def once(self, run_id: str, token: int, once: OnceKey) -> AsyncIterator[Any]:
        holding = await self._held("the effect has not happened")
        async with self._effects.once(holding.node, holding.claim, once) as connection:
            if connection is not None:  # it may have waited for long
                await self._held("the effect has not happened")
            yield connection

    async def steps(self, run_id: str, token: int) -> dict[str, str | None]:
        return await self._effects.steps((await self._held("stop")).claim)

    async def add_step(self, run_id: str, token: int, step: NewStep) -> None:
        holding = await self._held(f"its step {step.name!r} was not stored")
        await self._effects.add_step(holding.node, holding.claim, step)

    @asynccontextmanager
    async def transaction(self, run_id: str, token: int) -> AsyncIterator[Any]:
        """A transaction on this process's own connection; its settle names run, token and node, like any other."""
        holding = await self._held("there is nothing to commit")
        async with self._effects.transaction(holding.node, holding.claim, holding.started) as connection:
            yield connection


class Handlers:
    """Calls handlers on the running loop, one at a time."""

    def __init__(self, setup: Setup, functions: dict[str, Callable[..., Any]], line: CallChannel) -> None:
        reach = setup.effects
        self._effects = EffectPool(reach.url, reach.schema, work_limits(reach.ttl), size=2, pooled=reach.pooled)
        self._functions = {name: HandlerFunction(function) for name, function in functions.items()}
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._threads = DaemonThreads(1)
        self._describer = Describer(setup.max_result_bytes)
        self._outputs = ProcessOutputs(line, setup.run_log_bytes)
        self._task: asyncio.Task[None] | None = None
        self._backend: NodeBackend | None = None

    # --- in the thread that reads ---

    def receive(self, message: ToProcess) -> None:
        backend = self._backend
        match message:
            case Start():
                self._loop.call_soon_threadsafe(self._start, message)
            case Stop() if backend is not None:
                backend.stopped = True
                self._loop.call_soon_threadsafe(self._stop, backend)
            case CallAnswer() if backend is not None:
                backend.answers.put(message)

    @property
    def busy(self) -> bool:
        return self._backend is not None

    # --- on the loop ---

    def _start(self, start: Start) -> None:
        self._backend = NodeBackend(self._line, self._effects, self._outputs)
        self._task = self._loop.create_task(self._run(start, self._backend))

    def _stop(self, backend: NodeBackend) -> None:
        if self._task is not None and self._backend is backend:
            self._task.cancel()

    async def _run(self, start: Start, backend: NodeBackend) -> None:
        outcome = await self._call(start, backend)
        self._outputs.flush()  # before the answer: afterwards the node takes nothing of this call
        backend.stopped, self._backend = True, None
        self._line.send(done_with(outcome))

    async def _call(self, start: Start, backend: NodeBackend) -> Outcome:
        self._line.send(Begun())
        function = self._functions.get(start.function)
        if function is None:
            return no_function("The app in this process", start.function, self._functions)
        run = HandlerRun(call_in(start), backend)
        try:
            with Handling(run.mask, run):
                return await self._invoke(function, run)
        finally:
            run.ended()

    async def _invoke(self, function: HandlerFunction, run: HandlerRun) -> Outcome:
        try:
            if function.is_coroutine:
                return self._describer.returned(run, await function(run))
            result, error = await self._in_thread(function, run)
            if error is not None:
                return self._describer.raised(run, error)
            return self._describer.returned(run, await result if inspect.isawaitable(result) else result)
        except BaseException as error:
            return self._describer.raised(run, error)

    async def _in_thread(self, function: HandlerFunction, run: HandlerRun) -> tuple[Any, BaseException | None]:
        """A plain function cannot be interrupted: a cancellation waits for its end, or the node kills the process."""
        over: asyncio.Future[tuple[Any, BaseException | None]] = self._loop.create_future()
        run.wait = partial(wait_on, self._loop)

        def work() -> None:
            ended: tuple[Any, BaseException | None]
            try:
                with Handling(run.mask, run):
                    ended = function(run), None
            except BaseException as error:
                ended = None, error
            self._loop.call_soon_threadsafe(over.set_result, ended)

        self._threads.call(partial(copy_context().run, work))
        while not over.done():
            with suppress(asyncio.CancelledError):
                await asyncio.shield(over)
        return over.result()


def _die_with(parent: int) -> None:
    """Have Linux kill this process when its node exits, even while a handler holds the interpreter lock."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _ignore_signals() -> None:
    """The node decides when this process ends: a signal to the whole service must not end a run that may finish. A
    function, not SIG_IGN, because programs that handlers start would inherit SIG_IGN."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)


async def _serve(setup: Setup, app: Detent, line: CallChannel) -> None:
    served = ServedApp(app)
    try:
        await served.start()
    except StartupFailed as error:
        line.send(Unfit(error.message))
        return
    handlers, over = Handlers(setup, served.functions(), line), asyncio.Event()
    loop = asyncio.get_running_loop()
    leaving_seconds = HOOK_SECONDS + _LEAVING_SECONDS if served.has_hooks else _LEAVING_SECONDS

    def read() -> None:
        with suppress(OSError):
            while (message := line.receive()) is not None:
                handlers.receive(message)
        if handlers.busy:
            os._exit(1)
        loop.call_soon_threadsafe(over.set)
        threading.Event().wait(leaving_seconds)  # a hook or an exit handler of the app may hang
        os._exit(0)

    threading.Thread(target=read, name="detent-node", daemon=True).start()
    line.send(ProcessReady())
    await over.wait()
    await served.stop()


def main() -> None:
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    _die_with(parent)
    _ignore_signals()
    line = CallChannel(descriptor)
    setup = line.receive()
    if not isinstance(setup, Setup):
        return
    if setup.hidden:
        hide_memory()
    configure(setup.log_format, setup.log_level)
    try:
        app = load_app(setup.app)
    except DetentError as error:
        line.send(Unfit(error.message))
        return
    reach = setup.effects
    attach_database(app, reach.url, reach.schema, pooled=reach.pooled)
    with captured_logging(), captured_streams():
        asyncio.run(_serve(setup, app, line))


if __name__ == "__main__":
    main()
