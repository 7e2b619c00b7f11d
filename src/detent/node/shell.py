"""Which commands a worker may run: of which tenants, and as which user. Decided once, before it joins the cluster."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from detent.errors import UsageError
from detent.settings.settings import Settings
from detent.store import Store
from detent.targets.shell_user import ShellUser, find_shell_user
from detent.telemetry.log import logger

log = logger("shell")


class ShellAccess(NamedTuple):
    """The tenants whose commands run here, by number, with their names; none: no commands run."""

    tenants: Mapping[int, str] = MappingProxyType({})
    user: ShellUser | None = None


def check_shell_user(settings: Settings, roles: Collection[str]) -> ShellUser | None:
    return find_shell_user(settings.shell_user) if settings.allow_shell and "worker" in roles else None


def refuse_owner(settings: Settings, cluster: Path) -> None:
    """Commands must not run as the user of the embedded PostgreSQL, who can do everything with its data."""
    if settings.shell_user is None or not settings.allow_shell:
        return
    with suppress(KeyError):
        if pwd.getpwnam(settings.shell_user).pw_uid == cluster.stat().st_uid:
            name = settings.shell_user
            raise UsageError(f"--shell-user names {name}, which owns the database in {cluster}: name another user.")


async def shell_access(settings: Settings, roles: Collection[str], store: Store) -> ShellAccess:
    """Raises UsageError if this worker must not run commands. `check_keys` has made sure that the cluster has a key."""
    if not settings.allow_shell or "worker" not in roles:
        return ShellAccess()
    access = ShellAccess(await _tenants(settings.allow_shell, store), check_shell_user(settings, roles))
    _log(access)
    return access


async def _tenants(names: Collection[str], store: Store) -> dict[int, str]:
    found = {name: await store.tenants.number(name) for name in names}
    missing = [name for name, number in found.items() if number is None]
    if missing:
        raise UsageError(
            f"--allow-shell names {', '.join(missing)}, and there is no such tenant: give names that "
            "`detent tenant list` shows, such as default."
        )
    return {number: name for name, number in found.items() if number is not None}


def _log(access: ShellAccess) -> None:
    user = None if access.user is None else access.user.name
    log.info("commands are allowed", tenants=list(access.tenants.values()), user=user)
    if user is None and os.geteuid() == 0:
        log.warning("commands run as root: name another user with --shell-user")
    if sys.platform != "linux":
        log.warning("commands are not contained on this system: processes that leave their group are not ended")
