"""How the API of a node is reached: on a port of its own, or through an application that serves it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Protocol

from detent.settings.settings import Settings
from detent.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from detent.node.tls import ServerTls

MakeApi = Callable[[], Awaitable["Starlette"]]


class Frontend(Protocol):
    async def open(self, stack: AsyncExitStack, make_api: MakeApi) -> str | None:
        """Serve the API that `make_api` makes until the stack is left. Returns its URL, if it has one of its own."""


class ListeningFrontend:
    """A port of this process. Constructed before anything is started, so that a bad certificate fails at once."""

    def __init__(self, settings: Settings, metrics: Metrics, note: Callable[[str], None]) -> None:
        self._settings = settings
        self._note = note
        self.tls: ServerTls | None = None
        if settings.tls_given:
            from detent.node.tls import server_tls

            self.tls = server_tls(settings, metrics)

    async def open(self, stack: AsyncExitStack, make_api: MakeApi) -> str:
        from detent.node.server import ApiServer

        if self.tls is not None:
            await stack.enter_async_context(self.tls)
        chosen, app = self._settings, await make_api()
        server = ApiServer(app, chosen.host, chosen.port, settings=chosen, seek=chosen.seeks_port, tls=self.tls)
        await stack.enter_async_context(server)
        if server.note:
            self._note(server.note)
        return server.url
