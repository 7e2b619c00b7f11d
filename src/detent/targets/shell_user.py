"""The system user that commands run as, and what keeps commands of the node's own user out of the node's memory."""

from __future__ import annotations

import ctypes
import os
import pwd
from contextlib import suppress
from typing import NamedTuple

from detent.errors import UsageError

_PR_SET_DUMPABLE = 4


class ShellUser(NamedTuple):
    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


def find_shell_user(name: str | None) -> ShellUser | None:
    """None: commands run as the user of this process. Raises UsageError."""
    if name is None:
        return None
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise UsageError(f"--shell-user names {name}, which is not a user of this machine: create it first.") from None
    if found.pw_uid == 0:
        raise UsageError(f"--shell-user names {name}, which is root: name a user without privileges.")
    if os.geteuid() != 0:
        raise UsageError(
            f"--shell-user {name} needs root, because only root can run commands as another user: start this worker as "
            f"root, or start it as {name} and leave out --shell-user."
        )
    groups = tuple(os.getgrouplist(name, found.pw_gid))
    return ShellUser(name, found.pw_uid, found.pw_gid, groups, found.pw_dir)


def hide_memory() -> None:
    """Let no other process of the same user read the memory and the environment of this one, trace it, or make it dump
    core. Root can, and nothing hides files. A new program starts without this protection."""
    with suppress(OSError, AttributeError):  # other systems than Linux
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
