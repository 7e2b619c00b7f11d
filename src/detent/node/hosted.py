"""A node inside a process of another program, such as a web application.

It has its own thread and its own loop, so that the program's loop cannot delay ticks. It leaves alone what belongs to
the whole process: signals, the configuration of logging, garbage collection and tracing.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

from detent.errors import DetentError
from detent.node.frontend import Frontend
from detent.node.node import Node
from detent.node.process import loop_factory
from detent.node.served import ServedWork
from detent.sdk.app import Detent
from detent.settings.settings import Settings
from detent.telemetry.log import defer_to_host, logger
from detent.telemetry.metrics import Metrics

log = logger("node")


class HostReporter:
    """What the node reports goes to the log of the program, and to the future on which it waits."""

    interactive = False

    def __init__(self) -> None:
        self.ready: Future[None] = Future()

    def note(self, text: str) -> None:
        log.info(text)

    def started(self, url: str | None, keys_needed: bool = False, served: ServedWork | None = None) -> None:
        if not self.ready.done():
            self.ready.set_result(None)


class HostedNode:
    """One life of a node: `start`, then `stop`. Both return at once; `ready` and `ended` are their results."""

    def __init__(self, settings: Settings, roles: tuple[str, ...], app: Detent, frontend: Frontend) -> None:
        self._reporter = HostReporter()
        self._node = Node(settings, roles, self._reporter, Metrics(), frontend=frontend, app=app)
        # A daemon: a program that does not wait for the node ends all the same, and other nodes rescue its runs.
        self._thread = threading.Thread(target=self._run, name="detent-node", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.ready = self._reporter.ready
        self.ended: Future[None] = Future()

    def start(self) -> None:
        defer_to_host()
        self._thread.start()

    def stop(self) -> None:
        """Drain and end; the second call ends the draining. From any thread."""
        if self._loop is not None and not self.ended.done():
            self._loop.call_soon_threadsafe(self._node.stop)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                self._loop = runner.get_loop()
                runner.run(self._node.run())
        except BaseException as error:
            self._fail(error)
        else:
            self.ended.set_result(None)
            if not self.ready.done():  # stopped before it had joined
                self.ready.cancel()

    def _fail(self, error: BaseException) -> None:
        self.ended.set_exception(error)
        if not self.ready.done():
            self.ready.set_exception(error)
        elif isinstance(error, DetentError):
            log.error("the node of this process has ended", error=error.message)
        else:
            log.error("the node of this process has ended", exc_info=error)
