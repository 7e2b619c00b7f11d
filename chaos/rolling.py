# ruff: noqa: T201 - printing is the purpose of a script
"""A rolling upgrade under load: two nodes of the previous version run, the database is migrated, and two nodes of the
present version join.

Then one node of each version is killed and started again, the old one on a schema that it does not know, but whose
migrations say that it is compatible. At the end the old nodes are replaced one by one. Every tick must have exactly one
run all the time. Meanwhile callers trigger jobs at nodes of both versions and, after the migration, enqueue runs. Each
of these ends once too, and only nodes of the new version run what was enqueued.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from chaos.harness import Scene, milliseconds, percentile, perform
from chaos.upgrade_load import Callers, is_on_demand, none_waiting, not_ended_once, prepare, refusal, wrong_calls
from chaos.versions import CannotUpgrade, Version, present, previous
from detent.domain.identity import ON_DEMAND
from detent.store.db import connect
from detent.store.embedded import EmbeddedServer
from tests.support.ledger import Watched, check_calls, check_ledger, create_ticking, none_open, pause_all
from tests.support.processes import Node
from tests.support.sink import http_target
from tests.support.waiting import until

JOBS = 40
CALM_SECONDS = 5.0
LATEST_AFTER_A_KILL = 6.0
# A migration may change what a statement returns that an old node has prepared. If that is in a transaction, the node
# answers its request with 503 once, and prepares the statement anew.
OUTDATED = "InvalidCachedStatementError"
MAX_OUTDATED = 4


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
    present = [await upgrade.start(upgrade.old) for _ in range(2)]
    jobs = [create_ticking(present[0].client, f"job-{number}", target) for number in range(JOBS)]
    callers = Callers(upgrade.url, lambda: present, [job.name for job in jobs])
    try:
        callers.begin(callers.trigger)
        await asyncio.sleep(CALM_SECONDS)
        migrated = await migrate_under_load(upgrade, callers, target)
        joined = await change_nodes(upgrade, present, target)
        scene.limit("longest start lateness, with kills", latest(scene, migrated), LATEST_AFTER_A_KILL)
        scene.limit("... of on-demand runs", latest(scene, joined, on_demand=True), LATEST_AFTER_A_KILL)
        handed_over = datetime.now(UTC)
        for number in range(2):
            present[number] = await replace(upgrade, present[number], upgrade.new, kill=False)
        await asyncio.sleep(CALM_SECONDS)
        scene.note("longest start lateness, while the old ones are replaced", milliseconds(latest(scene, handed_over)))
        scene.expect("a task is created, when the old nodes are gone", refusal(present[0].client, "late", target), "")
    finally:
        await callers.end()
    # Before the jobs are paused: the runs of a paused job wait.
    await scene.judge("every run that waits gets its turn", none_waiting(upgrade.look))
    await verdict(upgrade, present[0], jobs, migrated)
    await judge_callers(upgrade, callers)
    code, said = await scene.nodes.run("audit", "--since", "10m", DETENT_API_URL=present[0].url)
    scene.expect("exit code of detent audit", code, 0)
    if code:
        print(said)


async def migrate_under_load(upgrade: Upgrade, callers: Callers, target: dict[str, Any]) -> datetime:
    scene = upgrade.scene
    callers.begin(callers.probe)
    said = await upgrade.migrate(upgrade.new)
    scene.expect(f"{upgrade.added} applied under the old nodes", f"Applied {upgrade.added}." in said, True)
    scene.note("longest wait of a statement on live runs, until then", milliseconds(callers.longest_wait))
    migrated = datetime.now(UTC)
    await prepare(upgrade.look, target)
    callers.begin(callers.enqueue)
    return migrated


async def change_nodes(upgrade: Upgrade, present: list[Node], target: dict[str, Any]) -> datetime:
    """Two new nodes join the two old ones; then one of each is killed, and another of its version takes its place.
    Returns when the first had joined: from then on there is a node for what is enqueued."""
    present.append(await upgrade.start(upgrade.new))
    joined = datetime.now(UTC)
    present.append(await upgrade.start(upgrade.new))
    await until(lambda: leaders(upgrade.look, 4), 30, "all four nodes to lead something")
    why = refusal(present[2].client, "early", target)
    upgrade.scene.expect("a task is refused because of an old node", "upgrade all nodes" in why, True)
    await asyncio.sleep(CALM_SECONDS)
    for number, version in ((1, upgrade.old), (3, upgrade.new)):
        present[number] = await replace(upgrade, present[number], version, kill=True)
    return joined


async def judge_callers(upgrade: Upgrade, callers: Callers) -> None:
    scene, look = upgrade.scene, upgrade.look
    scene.note("runs enqueued, and committed", len(callers.enqueued))
    scene.note("runs enqueued, and rolled back", len(callers.rolled_back))
    scene.note("enqueues refused because of an old node", callers.refused)
    scene.expect("... and there were some of each", min(len(callers.enqueued), callers.refused) > 0, True)
    by_new = sum(each.on_demand for each in callers.triggered)
    scene.note("triggers at old nodes, at new nodes", f"{len(callers.triggered) - by_new}, {by_new}")
    scene.note("... skipped by an old node, which said so", callers.skipped)
    outdated = sum(text.count(OUTDATED) for _, text in scene.nodes.logs)
    scene.note("... refused once for an outdated statement", outdated)
    scene.expect("... by each old node a few times at most", outdated <= 2 * MAX_OUTDATED, True)
    scene.expect("... and there were some of each", 0 < by_new < len(callers.triggered), True)
    runs = [*callers.enqueued, *(each.run for each in callers.triggered)]
    scene.expect("of all these did not end once, well", (await not_ended_once(look, runs))[:5], [])
    scene.expect("wrong calls", wrong_calls(callers, scene.sink)[:5], [])
    committed = {str(row["run"]) for row in await look.fetch("SELECT run FROM public.orders")}
    scene.expect("the callers' table has the same runs", committed == set(callers.enqueued), True)
    new = numbers_of(scene, upgrade.new.python)
    strangers = "SELECT count(*) FROM run_history WHERE serial >= $1 AND node <> ALL ($2::bigint[])"
    scene.expect("on-demand runs that old nodes ran", await look.fetchval(strangers, ON_DEMAND, new), 0)


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


def latest(scene: Scene, since: datetime, *, on_demand: bool = False) -> float:
    """Of ticks and triggers at old nodes, or of on-demand runs."""
    return max(
        call.lateness
        for call in scene.sink.calls
        if call.scheduled_at >= since and is_on_demand(call.run_id) is on_demand
    )


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
    count: int = await look.fetchval(
        "SELECT count(*) FROM run_history WHERE node = ANY ($1::bigint[]) AND scheduled_at > $2",
        numbers_of(scene, python),
        since,
    )
    return count


def numbers_of(scene: Scene, python: Path) -> list[int]:
    """The nodes of a version."""
    return [int(name, 16) for node in scene.nodes.started if node.python == python for name in node.identities]


if __name__ == "__main__":
    try:
        sys.exit(perform("a rolling upgrade", script, excused=OUTDATED))
    except CannotUpgrade as error:
        print(error)
        sys.exit(2)
