"""A process that is a node: its signals, its log, its memory and its console. `detent serve` and the like run here."""

from __future__ import annotations

import asyncio
import gc
import signal
from typing import Any

from detent.node.console import Console
from detent.node.frontend import ListeningFrontend
from detent.node.node import Node
from detent.node.reporter import Demo
from detent.node.supervised import obey_supervisor
from detent.runtime import failpoints
from detent.settings.settings import Settings
from detent.targets.shell_user import hide_memory
from detent.telemetry import tracing
from detent.telemetry.log import configure
from detent.telemetry.metrics import Metrics


def run(settings: Settings, roles: tuple[str, ...], demo: Demo | None = None, *, supervisor: int | None = None) -> int:
    """Run until a signal stops the process; returns the exit code. `supervisor`: the process that `--reload` runs."""
    console = Console(settings, roles, demo=demo is not None, supervised=supervisor is not None)
    if supervisor is not None:
        obey_supervisor(supervisor)
    configure(settings.log_format, console.log_level)
    failpoints.arm(settings.failpoints, production=settings.production)
    collect_garbage_seldom()
    if settings.traces == "otlp":
        tracing.start(settings.trace_ratio)
    if settings.allow_shell:
        hide_memory()
    console.starting()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_until_signalled(settings, roles, console, demo))
    finally:
        tracing.stop()
    console.stopped()
    return 0


async def _until_signalled(settings: Settings, roles: tuple[str, ...], console: Console, demo: Demo | None) -> None:
    loop, metrics = asyncio.get_running_loop(), Metrics()
    frontend = ListeningFrontend(settings, metrics, console.note) if "api" in roles else None
    node = Node(settings, roles, console, metrics, frontend=frontend, demo=demo)

    def stop() -> None:
        if not node.stopping:
            console.stopping()
        node.stop()

    for number in (signal.SIGTERM,) if console.supervised else (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if frontend is not None and frontend.tls is not None:
        loop.add_signal_handler(signal.SIGHUP, frontend.tls.reload)
    await node.run()


def collect_garbage_seldom() -> None:
    """A batch is many objects that all live until it ends. Collections that walk through them took up to half of the
    time of a registration when measured."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
