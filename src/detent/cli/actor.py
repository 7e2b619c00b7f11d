"""Names the user of a command that writes to the database directly, for the audit log."""

from __future__ import annotations

import getpass
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from detent.domain.audit_event import Actor


def this_command(name: str) -> Actor:
    """`name` is the command; the user and the machine are those that it runs as and on."""
    from detent.domain.audit_event import Actor

    return Actor("command", _user(), name, socket.gethostname())


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        return None
