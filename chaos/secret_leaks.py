# ruff: noqa: T201 - a script talks on its standard output
"""Planted secrets, jobs of every kind that repeat all they get, failures, and new keys under load: is a value anywhere?

Two nodes run jobs every two seconds: HTTP, commands, Python functions in threads and in processes, and pull workers
with and without the scope `secrets`; some succeed, some fail, some hang until their timeout and miss their deadline.
Meanwhile, again and again: a node is killed, the connections to the database are cut, the signing secret is rotated
with two valid versions, and the encryption key is replaced while jobs go on. After each new key, and at the end, every
place where people or programs can look is searched for every value in every form. Every call must have had its values.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from chaos.harness import Scene, perform
from chaos.leak_jobs import REFERENCES, STORED, Planted, is_complete, is_signed
from chaos.leak_search import Searched, Surroundings, archived, found_of, notices, places, received
from chaos.leak_stage import Stage, all_called, opened, pull, staged
from detent.contract.pull import ClaimedRun
from detent.errors import DetentError
from detent.runtime.envelope import generate_master_key, generate_signing_key
from detent.upkeep.archive import open_archive
from detent.upkeep.retention import Keeper
from tests.support.ledger import none_open

MINUTES = 2.0
ROUNDS = 12  # at most so many in the whole time: a search takes its time, too
KEPT_SECONDS = 20
DOWN_SECONDS = 2.0


# --- failures, and new keys ---


async def kill(stage: Stage) -> None:
    await stage.members[1].node.kill()
    await asyncio.sleep(DOWN_SECONDS)
    stage.members[1] = await stage.start(stage.master_keys[-1])


async def cut(stage: Stage) -> None:
    """Every connection of both nodes to the database, at once."""
    await stage.look.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


async def new_signing_key(stage: Stage) -> None:
    stage.planted.signing.append(generate_signing_key())
    await retried(partial(stage.ask, "rotate_secret", "signing", stage.planted.signing[-1], keep_seconds=KEPT_SECONDS))


async def new_key(stage: Stage) -> None:
    """As docs/howto/secrets.md says: the new and the old key everywhere, all secrets under the new one, without the
    old."""
    old, new = stage.master_keys[-1], generate_master_key()
    stage.master_keys.append(new)
    await stage.restart(new, old)
    done = await retried(partial(stage.ask, "rotate_secret_key"))
    while done["remaining"]:
        done = await retried(partial(stage.ask, "rotate_secret_key"))
    used = await stage.look.fetch("SELECT DISTINCT key_id FROM secret_versions")
    assert [row["key_id"] for row in used] == [done["key_id"]], "secrets are left under the old key"
    await stage.restart(new)


async def retried(send: Callable[[], Awaitable[Any]]) -> Any:
    """Right after a cut, a node may answer that the database does not."""
    for _ in range(20):
        with suppress(DetentError, OSError):
            return await send()
        await asyncio.sleep(0.5)
    return await send()


COUNTED = {
    "kill": "nodes killed",
    "cut": "times that all connections were cut",
    "signing": "signing keys rotated",
    "key": "encryption keys replaced",
    "search": "searches of all places",
}
ACTS = {"kill": kill, "cut": cut, "signing": new_signing_key, "key": new_key}


async def disturb(stage: Stage, minutes: float) -> None:
    """Rounds of all of it until the time is over, the whole of the last one."""
    began = time.monotonic()
    while not stage.counts["search"] or time.monotonic() - began < minutes * 60:
        for name, act in ACTS.items():
            await act(stage)
            stage.counts[name] += 1
            await all_called(stage)
        await search(stage)
        print(f"  round {stage.counts['search']} after {time.monotonic() - began:.0f} s", flush=True)
        next_round = stage.counts["search"] * minutes * 60 / ROUNDS
        await asyncio.sleep(max(0.0, next_round - (time.monotonic() - began)))


# --- the search, and the verdict ---


async def search(stage: Stage) -> None:
    stage.searched = Searched()
    around = Surroundings(stage.scene, stage.server, stage.echo, stage.url, stage.keys, await ended_runs(stage))
    async for place in places(around):
        await stage.searched.add(place, stage.secrets(), stage.literals())
    stage.counts["search"] += 1
    found = [text for some in stage.searched.found.values() for text in some]
    assert not found, "FOUND: " + "; ".join(found[:20])


async def ended_runs(stage: Stage) -> dict[str, Any]:
    """The newest ended run of each job."""
    pages = {name: await stage.ask("list_runs", name, status=("succeeded", "dead")) for name in stage.plans}
    return {name: page["items"][0] for name, page in pages.items()}


async def script(scene: Scene, *, seed: int, minutes: float) -> None:
    async with staged(scene, seed) as stage:
        workers = [
            asyncio.create_task(pull(stage, queue, stage.keys[scope]))
            for queue, scope in (("plain", "work"), ("secrets", "secrets"))
        ]
        try:
            await all_called(stage)
            await disturb(stage, minutes)
            for name in stage.plans:
                await retried(partial(stage.ask, "pause_job", name))
            await scene.judge("every run ends after the pause", none_open(stage.look))
            await search(stage)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        await count_runs(stage)
        count_calls(stage)
        await archive(stage)
        judge_search(stage)


async def count_runs(stage: Stage) -> None:
    """Runs and attempts against the plan. A node that dies loses attempts, which is no failure of theirs."""
    scene, good = stage.scene, [name for name, plan in stage.plans.items() if plan.error is None]
    for name, count in stage.counts.items():
        scene.note(COUNTED[name], count)
    rows = await stage.look.fetch(
        "SELECT j.name, h.status, count(*) FROM run_history h JOIN jobs j USING (job) GROUP BY 1, 2"
    )
    scene.note("runs", f"{sum(row['count'] for row in rows):,}")
    scene.note("runs succeeded", f"{sum(row['count'] for row in rows if row['status'] == 1):,}")
    dead = {row["name"]: row["count"] for row in rows if row["name"] in good and row["status"] == 2}
    scene.expect("runs dead that should succeed", sum(dead.values()), 0)
    rows = await stage.look.fetch("SELECT j.name, a.outcome, a.error FROM attempts a JOIN jobs j USING (job)")
    scene.note("attempts lost with a node", sum(row["outcome"] == "lost" for row in rows))
    failed = [row for row in rows if row["outcome"] in ("failed", "timeout")]
    scene.note("attempts failed as planned", f"{sum(is_planned(stage, row) for row in failed):,}")
    unplanned = [f"{row['name']}: {row['error']}" for row in failed if not is_planned(stage, row)]
    scene.expect("attempts failed for another reason", len(unplanned), 0)
    for text in sorted(set(unplanned))[:10]:
        print(f"\nfailed for another reason: {text}")


def is_planned(stage: Stage, row: Any) -> bool:
    planned = stage.plans[row["name"]].error
    return planned is not None and planned in (row["error"] or "")


def count_calls(stage: Stage) -> None:
    scene, planted = stage.scene, stage.planted
    filled = [call for name in ("http-ok", "http-fail", "http-hang") for call in stage.echo.of(name)]
    scene.note("HTTP calls with secrets", f"{len(filled):,}")
    scene.expect("... without some value", sum(not is_complete(call, planted) for call in filled), 0)
    signed = stage.echo.of("http-ok")
    scene.expect("... with a wrong signature", sum(not is_signed(call, planted) for call in signed), 0)
    both = sum(len(call.headers["webhook-signature"].split()) > 1 for call in signed)
    scene.expect("... some with two signatures", both > 0, True)
    scene.expect("calls of the job whose secret is missing", len(stage.echo.of("missing")), 0)
    plain = [run for run in stage.claims if run.job.startswith("pull-plain")]
    scene.expect("claims without the scope secrets that had a value", sum(not has_references(run) for run in plain), 0)
    given = [run for run in stage.claims if run.job.startswith("pull-secrets")]
    scene.note("claims with the scope secrets", f"{len(given):,}")
    scene.expect("... without some value", sum(not has_values(run, planted) for run in given), 0)


def has_references(run: ClaimedRun) -> bool:
    return all(run.payload[name] == reference for name, reference in REFERENCES.items())


def has_values(run: ClaimedRun, planted: Planted) -> bool:
    return all(run.payload[name] == planted.values[name] for name in STORED)


async def archive(stage: Stage) -> None:
    """Put the whole history away, as if its time were over, and search the files."""
    for member in stage.members:
        member.node.send(signal.SIGTERM)
        await member.node.ended()
    await stage.look.execute("UPDATE turns SET done_at = NULL, until = '-infinity'")
    place = open_archive(stage.scene.nodes.variables["DETENT_ARCHIVE_URL"])
    async with opened(stage.server.url) as store:
        await Keeper(store, 0, -2, place, lambda: None).tick()
    left = await stage.look.fetchval("SELECT count(*) FROM run_history")
    stage.scene.expect("runs left in the history after it was archived", left, 0)
    async for found in archived(stage.scene.nodes.folder / "archive"):
        await stage.searched.add(found, stage.secrets(), stage.literals())


def judge_search(stage: Stage) -> None:
    """The table of places; and the search finds what the targets got, which had to have it."""
    scene, searched = stage.scene, stage.searched
    for kind, count in searched.places.items():
        scene.note(f"searched: {kind}", f"{count:,} x, {searched.bytes[kind]:,} bytes")
        scene.expect("... found", len(searched.found[kind]), 0)
        for text in searched.found[kind][:20]:
            print(f"\nFOUND: {text}")
    scene.expect("notices received", bool(notices(stage.echo)), True)
    scene.expect("files of the archive", searched.places.get("files of the archive", 0) > 0, True)
    shown = sum(count > 0 for count in searched.by_design.values())
    scene.expect("self-check: kinds of places that show literals by design", shown, len(searched.by_design))
    text = "\n".join(received(call) for call in stage.echo.calls)
    wanted = {**stage.planted.cores, **stage.literals()}
    scene.expect(
        f"self-check: of {len(wanted)} values, found where they belong", len(found_of(text, wanted)), len(wanted)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"how long the failures go on [{MINUTES:g}]")
    parser.add_argument("--seed", type=int, help="what the values are drawn from (default: by chance, and printed)")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    return perform("secret leaks", partial(script, seed=seed, minutes=given.minutes), tracebacks=True)


if __name__ == "__main__":
    sys.exit(main())
