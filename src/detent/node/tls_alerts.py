"""Tells a client why its TLS handshake failed.

OpenSSL writes an alert then, such as `certificate required`. asyncio and uvloop close the connection without sending
it, so the client would see that the connection was closed, and nothing of the reason.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from contextvars import ContextVar

accepted_socket: ContextVar[socket.socket | None] = ContextVar("accepted_socket", default=None)
"""The connection for which TLS is being set up."""


class AlertingObject(ssl.SSLObject):
    client: socket.socket | None = None
    outgoing: ssl.MemoryBIO | None = None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.client is not None and self.outgoing is not None:
                with suppress(OSError):  # the client has left
                    self.client.send(self.outgoing.read())
            raise
        self.client = self.outgoing = None


class AlertingContext(ssl.SSLContext):
    sslobject_class = AlertingObject

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        if isinstance(made, AlertingObject):
            made.client, made.outgoing = accepted_socket.get(), outgoing
        return made
