"""`--reload`: a supervisor that starts the process again when the code of its app changes. For development only.

The supervisor imports nothing of the app (that of Django has loaded its models, but no tasks). It runs the same command
as a child process, watches Python files, and at a change asks the child to stop with SIGTERM: running handlers finish,
as at every stop. Then it starts the next one. While no child runs, runs wait in their queues. A child that ends by
itself, such as one whose code has a syntax error, has said why; the supervisor waits for the next change. It holds the
embedded PostgreSQL, which keeps running.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress
from importlib.machinery import PathFinder
from pathlib import Path

from detent.errors import UsageError
from detent.node.console import say
from detent.settings.settings import Settings

CHILD = "--reloaded"
MAX_NAMED = 3
# PostgreSQL writes below the working directory too, if its data is there: changes are collected no longer than this.
COLLECT_MS = 300
KILL_AFTER = 20.0


def check_reload(settings: Settings) -> None:
    """Raises UsageError if this process cannot reload its code, or must not."""
    if settings.production:
        raise UsageError("--reload is for development, and production is on: leave out --reload.")
    if settings.app is None:
        raise UsageError("--reload starts an app again when its code changes: name the app with --app MODULE:NAME.")
    try:
        import watchfiles  # noqa: F401
    except ImportError:
        raise UsageError(
            "--reload needs the package watchfiles: install it with `pip install 'detent[reload]'`."
        ) from None


def supervise(settings: Settings, command: Sequence[str], folders: Sequence[Path]) -> int:
    """Run the command, without --reload, again and again until a signal ends it; returns the exit code. Python files
    are watched in these folders."""
    again = [*(each for each in command if each != "--reload"), CHILD, str(os.getpid())]
    return asyncio.run(Reloader(settings, again, folders).run())


class Reloader:
    def __init__(self, settings: Settings, command: Sequence[str], folders: Sequence[Path]) -> None:
        self._settings = settings
        self._command = command
        self._folders = folders
        self._child: asyncio.subprocess.Process | None = None
        self._signals = 0
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        async with AsyncExitStack() as stack:
            await self._hold_database(stack)
            watching = loop.create_task(self._watch())
            try:
                await self._repeat(watching)
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
        return 0

    async def _hold_database(self, stack: AsyncExitStack) -> None:
        """The embedded PostgreSQL ends with the last process that uses it: this one uses it until its own end."""
        if self._settings.database_url is None:
            from detent.store.embedded import EmbeddedServer

            await stack.enter_async_context(EmbeddedServer(self._settings.data_dir))

    async def _repeat(self, watching: asyncio.Task[None]) -> None:
        where = ", ".join(map(str, self._folders))
        say(f"Reload: watching Python files in {where}. Ctrl-C stops.")
        while not self._stop.is_set():
            self._changed.clear()
            child = self._child = await asyncio.create_subprocess_exec(*self._command)
            await self._first(child.wait(), self._changed.wait(), self._stop.wait(), watching)
            if child.returncode is None:
                await self._end(child)
            elif not self._stop.is_set():
                self._child = None
                say(f"Reload: the process ended with code {child.returncode}. Waiting for the next change.")
                await self._first(self._changed.wait(), self._stop.wait(), watching)
            self._child = None
            if watching.done() and not self._stop.is_set():
                watching.result()  # raises what ended it
                return

    async def _end(self, child: asyncio.subprocess.Process) -> None:
        """Ask it to stop, unless a signal has done so. One that outlives the drain by far is killed."""
        if not self._signals:
            child.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self._settings.drain_seconds + KILL_AFTER):
                await child.wait()
        except TimeoutError:
            say("Reload: the process does not stop. Killing it; its runs are retried.")
            child.kill()
            await child.wait()

    def _on_signal(self) -> None:
        """Each signal here is one for the child: the second ends its drain."""
        self._signals += 1
        self._stop.set()
        if self._child is not None and self._child.returncode is None:
            with suppress(ProcessLookupError):
                self._child.send_signal(signal.SIGTERM)

    async def _watch(self) -> None:
        async for names in changes(self._folders, self._stop):
            more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
            then = "Starting again." if self._child is None else "Running jobs finish, then the app starts again."
            say(f"Reload: {', '.join(names[:MAX_NAMED])}{more} changed. {then}")
            self._changed.set()

    async def _first(self, *events: object) -> None:
        """Wait until one of these is done; those that were made for this are cancelled."""
        tasks = [asyncio.ensure_future(event) for event in events]  # type: ignore[call-overload]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task, event in zip(tasks, events, strict=True):
            if task is not event:
                task.cancel()


async def changes(folders: Sequence[Path], stop: asyncio.Event) -> AsyncIterator[list[str]]:
    """The names of Python files that changed together."""
    from watchfiles import PythonFilter, awatch

    async for found in awatch(*folders, watch_filter=PythonFilter(), stop_event=stop, debounce=COLLECT_MS):
        yield sorted({_short(path) for _, path in found})


def watched_folders(settings: Settings) -> list[Path]:
    """The working directory, and the folder of the app's package if it is elsewhere."""
    here = Path.cwd()
    package = _package(str(settings.app).partition(":")[0], here)
    return [here] if package is None or package.is_relative_to(here) else [here, package]


def _package(module: str, here: Path) -> Path | None:
    """The folder of the top-level package, found without importing anything."""
    found = PathFinder.find_spec(module.partition(".")[0], [str(here), *sys.path])
    if found is None:
        return None
    places = list(found.submodule_search_locations or []) or ([found.origin] if found.origin else [])
    if not places:
        return None
    place = Path(places[0]).resolve()
    return place if place.is_dir() else place.parent


def _short(path: str) -> str:
    with suppress(ValueError):
        return str(Path(path).relative_to(Path.cwd()))
    return path
