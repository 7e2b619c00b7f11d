# ruff: noqa: T201 - printing is the purpose of a script
"""A rolling upgrade under load: two nodes of the previous version run, the database is migrated, and two nodes of the
present version join.

Then one node of each version is killed and started again, the old one on a schema that it does not know, but whose
migrations say that it is compatible. At the end the old nodes are replaced one by one. Every tick must have exactly one
run all the time.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from chaos.harness import Scene, milliseconds, percentile, perform
from chaos.versions import CannotUpgrade, Version, present, previous
from detent.store.db import connect
from detent.store.embedded import EmbeddedServer
from tests.support.ledger import Watched, check_calls, check_ledger, create_ticking, none_open, pause_all
from tests.support.processes import Node
from tests.support.sink import http_target
from tests.support.waiting import until

JOBS = 40
CALM_SECONDS = 5.0
LATEST_AFTER_A_KILL = 6.0


class Upgrade(NamedTuple):
    scene: Scene
    url: str
    look: Any
    old: Version
    new: Version

    async def start(self, version: Version) -> Node:
        node = await self.scene.nodes.start("serve", python=version.python, database_url=self.url)
        await node.says("partitions taken")
        return node

    @property
    def added(self) -> str:
        count = self.new.migrations - self.old.migrations
        return f"{count} migration{'s' if count > 1 else ''}"

    async def migrate(self, version: Version) -> str:
        code, said = await self.scene.nodes.run("db", "migrate", python=version.python, DETENT_DATABASE_URL=self.url)
        assert code == 0, said
        return said


async def script(scene: Scene) -> None:
    folder = scene.nodes.folder
    old = previous()
    new = present(old, folder)
    scene.note("the old version", old.name)
    scene.note("the new version", new.name)
    async with EmbeddedServer(folder / "server", system_dir=folder / "system") as server:
        await Upgrade(scene, server.url, None, old, new).migrate(old)
        look = await connect(server.url, "detent")
        try:
            await roll(Upgrade(scene, server.url, look, old, new))
        finally:
            await look.close()
            for node in scene.nodes.started:
                node.close()


async def roll(upgrade: Upgrade) -> None:
    scene, target = upgrade.scene, http_target(upgrade.scene.sink, "slow/0.2")
    old_nodes = [await upgrade.start(upgrade.old) for _ in range(2)]
    jobs = [create_ticking(old_nodes[0].client, f"job-{number}", target) for number in range(JOBS)]
    await asyncio.sleep(CALM_SECONDS)

    said = await upgrade.migrate(upgrade.new)
    scene.expect(f"{upgrade.added} applied under the old nodes", f"Applied {upgrade.added}." in said, True)
    migrated = datetime.now(UTC)
    new_nodes = [await upgrade.start(upgrade.new) for _ in range(2)]
    await until(lambda: leaders(upgrade.look, 4), 30, "all four nodes to lead something")
    await asyncio.sleep(CALM_SECONDS)

    old_nodes[1] = await replace(upgrade, old_nodes[1], upgrade.old, kill=True)
    new_nodes[1] = await replace(upgrade, new_nodes[1], upgrade.new, kill=True)
    scene.limit("longest start lateness, with kills", latest(scene, migrated), LATEST_AFTER_A_KILL)
    handed_over = datetime.now(UTC)
    for number, node in enumerate(old_nodes):
        old_nodes[number] = await replace(upgrade, node, upgrade.new, kill=False)
    await asyncio.sleep(CALM_SECONDS)
    scene.note("longest start lateness, while the old ones are replaced", milliseconds(latest(scene, handed_over)))
    await verdict(upgrade, [*old_nodes, *new_nodes][0], jobs, migrated)


async def leaders(look: Any, count: int) -> bool:
    found: int = await look.fetchval("SELECT count(DISTINCT holder) FROM partitions")
    free: int = await look.fetchval("SELECT count(*) FROM partitions WHERE holder IS NULL")
    return found == count and not free


async def replace(upgrade: Upgrade, node: Node, version: Version, *, kill: bool) -> Node:
    if kill:
        await node.kill()
    else:
        node.send(signal.SIGTERM)
        upgrade.scene.expect(f"exit code of {node.name}, which was ended", await node.ended(), 0)
    successor = await upgrade.start(version)
    await until(lambda: leaders(upgrade.look, 4), 30, "four nodes to lead everything again")
    await asyncio.sleep(CALM_SECONDS)
    return successor


def latest(scene: Scene, since: datetime) -> float:
    return max(call.lateness for call in scene.sink.calls if call.scheduled_at >= since)


async def verdict(upgrade: Upgrade, node: Node, jobs: list[Watched], migrated: datetime) -> None:
    scene, look = upgrade.scene, upgrade.look
    jobs = pause_all(node.client, jobs)
    await scene.judge("every run ends after the pause", none_open(look))
    await scene.judge("every tick has one run, none lost, none doubled", check_ledger(look, jobs, "succeeded"))
    await scene.judge("one result per key, tokens rise", check_calls(look, scene.sink, jobs))
    for name, version in (("old", upgrade.old), ("new", upgrade.new)):
        count = await runs_by(look, scene, version.python, migrated)
        scene.note(f"runs by {name} nodes on the new schema", count)
        scene.expect(f"... and there were some by {name} ones", count > 0, True)
    scene.note("attempts lost with a node", await look.fetchval("SELECT count(*) FROM attempts WHERE outcome = 'lost'"))
    scene.expect("take-overs", await look.fetchval("SELECT count(*) > 256 FROM elections"), True)
    keys = scene.sink.by_key()
    scene.note("start lateness, p50", milliseconds(percentile([call.lateness for call in scene.sink.calls], 0.5)))
    scene.expect("effects of the deduplicating target", len(scene.sink.effects), len(keys))


async def runs_by(look: Any, scene: Scene, python: Path, since: datetime) -> int:
    """Runs of ticks after `since` that nodes of this version finished."""
    numbers = [int(name, 16) for node in scene.nodes.started if node.python == python for name in node.identities]
    count: int = await look.fetchval(
        "SELECT count(*) FROM run_history WHERE node = ANY ($1::bigint[]) AND scheduled_at > $2", numbers, since
    )
    return count


if __name__ == "__main__":
    try:
        sys.exit(perform("a rolling upgrade", script))
    except CannotUpgrade as error:
        print(error)
        sys.exit(2)
