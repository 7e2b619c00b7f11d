"""Which addresses a worker connects to.

A check at registration is not enough: a name may resolve to another address a second later. So the policy checks the
address when the socket is created, for names and literal addresses alike.
"""

from __future__ import annotations

import errno
import socket
from typing import Any

from detent.domain.addresses import address_fault

AddrInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]


class AddressRefusedError(OSError):
    """Raised instead of creating a socket. An OSError, because connectors expect one there."""

    def __init__(self, sentence: str) -> None:
        super().__init__(errno.EACCES, sentence)
        self.sentence = sentence


class AddressPolicy:
    """The policy of one worker: private addresses are called only if the operator allows it."""

    def __init__(self, allow_private: bool = False) -> None:
        self.allow_private = allow_private

    def check(self, address: str) -> str | None:
        """Why this IP address is refused, in a sentence, or None."""
        return address_fault(address, allow_private=self.allow_private)

    def open_socket(self, info: AddrInfo) -> socket.socket:
        """Create the socket for exactly this address, or refuse: the last step before the connection."""
        family, kind, protocol, _, address = info
        sentence = self.check(str(address[0]))
        if sentence is not None:
            raise AddressRefusedError(sentence)
        return socket.socket(family, kind, protocol)
