"""All nodes reach the database through PgBouncer, which hands its connections on after each transaction."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.support.fleet import plans
from tests.support.fleet.plans import Chance, Fault
from tests.support.pgbouncer import PgBouncer, prepare_role, running_pgbouncer

if TYPE_CHECKING:
    from tests.support.fleet.driver import Stage

SERVER_CONNECTIONS = 20
# Some do everything themselves; others have to be told what there is to run.
NODES = ("n1", "n2", "n3")
MEMBERS = (*NODES, "s1", "w1", "api")


class Restart:
    """The fault `restart-pooler`: all of its clients lose their connections at once."""

    def __init__(self, pooler: PgBouncer) -> None:
        self._pooler = pooler

    async def __call__(self, _fault: Fault) -> str:
        await asyncio.to_thread(self._pooler.restart)
        return "PgBouncer"


async def with_pooler(stage: Stage) -> None:
    stack = ExitStack()
    stage.on_close(stack.close)
    url = stage.server.url
    pooler = await asyncio.to_thread(stack.enter_context, running_pgbouncer(url, SERVER_CONNECTIONS))
    await prepare_role(url)
    stage.fleet.variables["DETENT_DATABASE_POOLER"] = "transaction"
    for member in stage.fleet.members.values():
        member.variables["DETENT_DATABASE_URL"] = pooler.url(url)
    stage.nemesis.deeds["restart-pooler"] = Restart(pooler)


def kills_and_restarts(chance: Chance, seconds: float, ttl: float) -> list[Fault]:
    """Processes are killed in the middle of their runs, and between two of those the pooler is restarted."""
    at = plans.moments(seconds, 6.0, 10.0)
    victims = chance.everybody([*NODES, "w1"], len(at))
    kills = [
        Fault(moment + chance.rounded(0.1, 0.3), "kill", victim, chance.rounded(0.0, ttl / 2))
        for moment, victim in zip(at, victims, strict=True)
    ]
    restarts = [Fault(moment + chance.rounded(4, 6), "restart-pooler") for moment in at[::2]]
    return sorted([*kills, *restarts], key=lambda fault: fault.at)
