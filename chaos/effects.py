# ruff: noqa: T201 - printing is the purpose of a script
"""Effects and steps while workers are killed: `python -m chaos.effects [--increments N] [--seed N]`.

2,000 increments in PostgreSQL go through `run.once`, each asked for by two runs, on nodes that are killed with -9 all
the time: their sum must be exactly 2,000. And a job of five steps is killed in each step and behind each step: none
that was stored may be repeated.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from tests.support import guardian
from tests.support.effects.driver import POINTS, increment, order, write_app
from tests.support.fleet.servers import Server
from tests.support.processes import Nodes

INCREMENTS = 2000
KILLS = 8
LEASE = "2"


async def play(folder: Path, increments: int, seed: int) -> list[str]:
    """What is wrong."""
    server = Server(folder, "primary")
    await server.create()
    try:
        await server.start()
        await server.make_database()
        with closing(Nodes(folder, DETENT_DATABASE_URL=server.url, DETENT_LEASE_TTL_SECONDS=LEASE)) as nodes:
            await nodes.run("db", "migrate", DETENT_DATABASE_URL=server.url)
            return await judged(folder, nodes, server, increments, seed)
    finally:
        server.close()


async def judged(folder: Path, nodes: Nodes, server: Server, increments: int, seed: int) -> list[str]:
    async with server.session() as look:
        await write_app(folder, look)
        began = time.monotonic()
        counted = await increment(nodes, look, increments, seed=seed, kills=KILLS)
        print(
            f"  {increments:,} increments by {2 * increments:,} runs: sum {counted.total:,}, {counted.succeeded:,} "
            f"succeeded, {counted.kills} kills, {counted.lost} attempts lost, {time.monotonic() - began:.0f} s",
            flush=True,
        )
        wrong = []
        if (counted.total, counted.succeeded) != (increments, 2 * increments):
            wrong.append(f"the sum is {counted.total:,}, and {counted.succeeded:,} runs succeeded")
        if not counted.lost:
            wrong.append("no attempt was lost: this proved nothing")
        for node in nodes.started:
            node.close()
        began = time.monotonic()
        wrong += await order(nodes, look, POINTS)
        print(f"  five steps, killed at {len(POINTS)} points: {time.monotonic() - began:.0f} s", flush=True)
        return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--increments", type=int, default=INCREMENTS, help="so many (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="seed of the dice (default: a random one, which is printed)")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else secrets.randbelow(10**6)
    guardian.protect()
    print(f"effects: seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="detent-chaos-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)  # the server's user has to get through when root runs this
        wrong = asyncio.run(play(folder, given.increments, seed))
    for line in wrong:
        print(f"  {line}")
    print(f"  {'violated' if wrong else 'ok'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
