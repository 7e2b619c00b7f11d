"""Which addresses a process connects to.

A check at registration is not enough: a name may resolve to another address a second later. So the rules are applied to
the address when the socket is created, for names and literal addresses alike, with the host that the URL names.
"""

from __future__ import annotations

import errno
import socket
from contextvars import ContextVar
from typing import Any

from detent.domain.target_access import TargetFault, TargetRules

AddrInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]

# The connector creates sockets in the task of the request, or in tasks with a copy of its context. Where it is not set,
# no pattern with a name matches.
called_host: ContextVar[str] = ContextVar("the host of the URL that is being called", default="")


class AddressRefusedError(OSError):
    """Raised instead of creating a socket. An OSError, because connectors expect one there."""

    def __init__(self, fault: TargetFault) -> None:
        super().__init__(errno.EACCES, fault.reason)
        self.fault = fault


class AddressGuard:
    """Applies one set of rules to the sockets of a connector."""

    def __init__(self, rules: TargetRules) -> None:
        self.rules = rules

    def open_socket(self, info: AddrInfo) -> socket.socket:
        """Create the socket for exactly this address, or refuse: the last step before the connection."""
        family, kind, protocol, _, address = info
        fault = self.rules.fault(str(address[0]), int(address[1]), called_host.get())
        if fault is not None:
            raise AddressRefusedError(fault)
        return socket.socket(family, kind, protocol)
