"""A node that lives as long as a web application."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from detent.contrib.asgi.mount import MountedFrontend
from detent.domain.sequences import listed
from detent.errors import UsageError
from detent.node.apps import reference_of
from detent.node.hosted import HostedNode
from detent.sdk.app import Detent
from detent.settings.settings import Settings


class EmbeddedNode:
    """A node of the cluster in the process of a web application: it runs the app's jobs next to the requests.

    The node has its own thread and event loop. With several processes (`uvicorn --workers 4`) each is a node.
    """

    def __init__(
        self,
        app: Detent,
        *,
        worker: bool = True,
        scheduler: bool = True,
        database_url: str | None = None,
        data_dir: str | Path | None = None,
        queues: Sequence[str] = (),
        concurrency: int | None = None,
        drain_seconds: float | None = None,
        migrate: bool | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """`worker=False`: workers are apart, as `detent worker --app …`; `scheduler=False`: schedulers are. With both,
        this process only enqueues runs and serves the dashboard. Everything after these two is a setting of the node
        that `DETENT_…` and `detent.toml` can give as well; `settings` takes any other by name."""
        self._app = app
        self._roles = tuple(role for role, wanted in (("scheduler", scheduler), ("worker", worker)) if wanted)
        self._flags: dict[str, object] = {
            "database_url": database_url,
            "data_dir": None if data_dir is None else str(data_dir),
            "queues": tuple(listed("queues", queues)),
            "concurrency": concurrency,
            "drain_seconds": drain_seconds,
            "migrate": migrate,
            **(settings or {}),
        }
        self._running = False
        self.dashboard = MountedFrontend(self.lifespan)

    @asynccontextmanager
    async def lifespan(self, web: Any = None) -> AsyncIterator[None]:
        """Runs the node: pass it as `lifespan=`, or write `async with node.lifespan(): yield` in your own.

        Raises what keeps the node from starting. At the end the node claims no more runs, lets those that run finish
        within `drain_seconds`, and returns the rest to their queues.
        """
        if self._running:
            raise UsageError("This node runs already: enter its lifespan once, or make another EmbeddedNode.")
        node = HostedNode(self._settings(), self._roles, self._app, self.dashboard)
        self._running = True
        try:
            await _start(node)
            try:
                yield
            finally:
                await _stop(node)
        finally:
            self._running = False

    def _settings(self) -> Settings:
        reference = reference_of(self._app)
        if self._app.name is None:
            if reference is None:
                raise UsageError(
                    "The app has no name: write Detent('shop'), or define it in a module that is imported."
                )
            self._app.name = reference
        if "worker" in self._roles and not self._app.functions:
            raise UsageError(
                "This app has no jobs and no tasks, so its worker would do nothing: import the modules that define "
                "them before the application starts, or pass worker=False."
            )
        self._app.check()
        found = Settings.load(self._flags)
        # A command needs a worker whose memory it cannot read (--allow-shell): this process is not detent's alone.
        return dataclasses.replace(found, app=reference, allow_shell=())


async def _start(node: HostedNode) -> None:
    node.start()
    try:
        await asyncio.wrap_future(node.ready)
    except asyncio.CancelledError:
        await _stop(node)
        raise


async def _stop(node: HostedNode) -> None:
    node.stop()
    try:
        await asyncio.shield(asyncio.wrap_future(node.ended))
    except asyncio.CancelledError:
        node.stop()  # the server does not wait any longer: neither does the node
        raise
