"""A service that nominates leaders, and that is killed under load."""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import TYPE_CHECKING

from tests.support import servers as services
from tests.support.fleet.clocks import MissingError
from tests.support.fleet.driver import Prepare
from tests.support.fleet.plans import SCHEDULERS, Chance, Fault

if TYPE_CHECKING:
    from tests.support.fleet.driver import Stage

KINDS = {kind.name: kind for kind in (services.Etcd, services.Redis, services.ZooKeeper)}


class Outage:
    """The fault `kill-coordinator`: gone for a while, then back; what it keeps in memory only is lost."""

    def __init__(self, service: services.Server) -> None:
        self._service = service

    async def __call__(self, fault: Fault) -> str:
        await asyncio.to_thread(self._service.kill)
        await asyncio.sleep(fault.seconds)
        await asyncio.to_thread(self._service.start)
        return self._service.name


def with_coordinator(name: str) -> Prepare:
    async def prepare(stage: Stage) -> None:
        await asyncio.to_thread(_require)
        folder = stage.folder / name
        folder.mkdir()
        service = KINDS[name](folder)
        stage.on_close(service.kill)
        await asyncio.to_thread(service.start)
        stage.fleet.variables["DETENT_COORDINATOR"] = service.url
        stage.nemesis.deeds["kill-coordinator"] = Outage(service)

    return prepare


def _require() -> None:
    if services.missing_servers() and os.geteuid() == 0 and shutil.which("apt-get"):
        services.install()
    missing = services.missing_servers()
    if missing:
        raise MissingError(f"{' and '.join(missing)} must be installed: {' '.join(services.INSTALL)}")


def outage(chance: Chance, _seconds: float, ttl: float) -> list[Fault]:
    """Away for longer than a lease, while all is well otherwise; later a leader dies, when it is there again."""
    return [
        Fault(chance.rounded(5, 8), "kill-coordinator", seconds=chance.rounded(1.2 * ttl, 2 * ttl)),
        Fault(chance.rounded(24, 27), "kill", chance.choice(SCHEDULERS), chance.rounded(0, 3)),
    ]
