"""What an actor does with on-demand runs. Heads are not read, because a worker remembers them anyway."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

import asyncpg

from detent.domain.identity import RunKey, decode_run_id
from detent.domain.run import Claim
from detent.store.connection import Connection
from detent.store.live_runs import cancel_runs
from detent.store.tasks import TaskHead, claims_of_tasks, release_laned_on
from tests.interleavings.harness import Actor, Script
from tests.interleavings.scripts import NO_DELAY, claim_and_settle, columns, failed_attempt, settle_all
from tests.interleavings.world import INCARNATION, World, tick

PRIORITY = 5
LIMIT = 10
LANED = TaskHead(1, 1, False, PRIORITY, tick(0), True)


def key_of_run(run: UUID) -> RunKey:
    key = decode_run_id(run)
    assert key is not None
    return key


def enqueues(
    unique: str | None = None,
    key: str | None = None,
    *,
    rolls_back: bool = False,
    isolation: str = "READ COMMITTED",
    looks_first: bool = False,
) -> Script:
    """Enqueue a run in the caller's transaction. `looks_first`: it has taken its snapshot before, where it has one."""
    document: dict[str, Any] = {} if unique is None else {"unique_key": unique, "payload": {"unique": unique}}
    document |= {} if key is None else {"concurrency_key": key}

    async def script(actor: Actor, world: World) -> None:
        actor.begin(isolation)
        if looks_first:
            await actor.run("task/find", 1, tick(0), 0)
        try:
            (row,) = await actor.run("task/enqueue", 1, json.dumps([document]))
        except asyncpg.SerializationError:
            await actor.rollback()
            return
        except asyncpg.UndefinedObjectError:  # the job is deleted
            await actor.rollback()
            return
        await _end(actor, world, row, rolls_back)

    return script


async def _end(actor: Actor, world: World, row: Any, rolls_back: bool) -> None:
    key = key_of_run(row["run"])
    if rolls_back:
        await actor.rollback()
        world.withdrawn += [key] if row["created"] else []
        return
    await actor.commit()
    (world.enqueued if row["created"] else world.found).append(key)


def triggers() -> Script:
    """Enqueue a run of a job with a schedule, and give it a lane of its job if one is free."""

    async def script(actor: Actor, world: World) -> None:
        await actor.open("run/lock_job", 1)
        (row,) = await actor.run("task/enqueue", 1, "[{}]")
        await release_laned_on(cast("Connection", actor), [LANED], although_held=True)
        await actor.commit()
        world.enqueued.append(key_of_run(row["run"]))

    return script


def releases_laned(node: int) -> Script:
    """Give waiting runs of a job with a schedule the lanes that are free, then claim and settle what is ready."""

    async def script(actor: Actor, world: World) -> None:
        actor.begin()
        await release_laned_on(cast("Connection", actor), [LANED])
        await actor.commit()
        await claim_and_settle(actor, world, node)

    return script


async def _take(actor: Actor, node: int | None, keyed: bool, held_open: bool, limit: int = LIMIT) -> list[Claim]:
    name = "task/claim_keyed" if keyed else "task/claim"
    arguments = (node, 0 if node is None else INCARNATION, [1], [1], [PRIORITY], limit, False, LIMIT, limit)
    if not held_open:
        return claims_of_tasks(await actor.run(name, *arguments))
    rows = await actor.open(name, *arguments)
    await actor.commit()
    return claims_of_tasks(rows)


def takes(
    node: int, *, keyed: bool = False, settles: bool = True, held_open: bool = True, limit: int = LIMIT
) -> Script:
    """Claim runs from the backlog; their handlers end, or are still running when everything else is over."""

    async def script(actor: Actor, world: World) -> None:
        claims = await _take(actor, node, keyed, held_open, limit)
        world.grant(node, claims)
        if claims and settles:
            await settle_all(actor, world, node, claims, held_open=False)

    return script


def releases_from_backlog(node: int, *, keyed: bool = False) -> Script:
    """Make waiting runs pending, then claim them as others are claimed."""

    async def script(actor: Actor, world: World) -> None:
        await _take(actor, None, keyed, held_open=True)
        await claim_and_settle(actor, world, node)

    return script


def unparks_and_takes(node: int, key: str) -> Script:
    """A run of this key has ended elsewhere: make one ready that waits for its place, and claim it."""

    async def script(actor: Actor, world: World) -> None:
        await actor.run("task/unpark", [1], [key])
        claims = await _take(actor, node, keyed=True, held_open=True)
        world.grant(node, claims)

    return script


def takes_parked(node: int, key: str) -> Script:
    """The same in one statement; the handler is still running when everything else is over."""

    async def script(actor: Actor, world: World) -> None:
        rows = await actor.open("task/claim_parked", node, INCARNATION, [1], [key], [1], LIMIT)
        await actor.commit()
        world.grant(node, claims_of_tasks(rows))

    return script


def admits(job: int = 1) -> Script:
    """Give runs in lanes that wait for their concurrency key free places of it."""

    async def script(actor: Actor, world: World) -> None:
        await actor.open("run/admit", [job], None)
        await actor.commit()

    return script


def fails_and_returns(node: int, claim: Claim, *, again: bool = True, held_open: bool = True) -> Script:
    """A failed attempt of a task's run, which returns to the backlog; then the next attempt on the same node."""

    async def script(actor: Actor, world: World) -> None:
        world.grant(node, [claim])
        await _fail(actor, world, node, claim, held_open)
        if again:
            await takes(node, held_open=False)(actor, world)

    return script


def puts_off_and_takes_again(node: int, claim: Claim, *, again: bool = True) -> Script:
    """A run whose target was not called returns to the backlog; its wait is over at once."""

    async def script(actor: Actor, world: World) -> None:
        world.grant(node, [claim])
        await actor.open("task/put_off", node, *columns([claim]), [NO_DELAY])
        await actor.commit()
        if again:
            await takes(node, held_open=False)(actor, world)

    return script


def puts_off_late(node: int, claim: Claim) -> Script:
    """A worker that has lost the run puts it off, under the token of its former claim."""

    async def script(actor: Actor, world: World) -> None:
        await actor.open("task/put_off", node, *columns([claim]), [NO_DELAY])
        await actor.commit()

    return script


def fails_late(node: int, claim: Claim) -> Script:
    """A handler that outlived its attempt reports that it failed, under the attempt's token."""

    async def script(actor: Actor, world: World) -> None:
        await _fail(actor, world, node, claim, held_open=True)

    return script


async def _fail(actor: Actor, world: World, node: int, claim: Claim, held_open: bool) -> None:
    arguments = (node, *failed_attempt(claim))
    if held_open:
        refused = await actor.open("task/settle_retry", *arguments)
        await actor.commit()
    else:
        refused = await actor.run("task/settle_retry", *arguments)
    if not refused:
        world.retry(claim)


def cancels(*keys: RunKey, redriven: bool = False) -> Script:
    """The product's own cancel, of these runs or of those whose enqueue was acknowledged. `redriven`: a run that it
    finds to have ended may begin again."""

    async def script(actor: Actor, world: World) -> None:
        wanted = list(keys or world.enqueued)
        if not wanted:
            return
        actor.begin()
        owners = await cancel_runs(cast("Connection", actor), wanted)
        await actor.commit()
        for key in wanted:
            if key in owners:
                world.cancel(key, owners[key] is None)
            elif not redriven:
                world.miss(key)

    return script


def cancels_once(key: RunKey) -> Script:
    """A broken cancel: it does not look again for a run that moved meanwhile."""

    async def script(actor: Actor, world: World) -> None:
        found: list[Any] = []
        for name in ("task/cancel", "run/cancel"):
            found += await actor.run(name, [key.job], [key.scheduled_at], [key.serial])
        for row in found:
            world.cancel(key, row["owner"] is None)
        if not found:
            world.miss(key)

    return script


def deletes() -> Script:
    """Delete the task and end what is pending in live_runs; upkeep ends what is in the backlog."""

    async def script(actor: Actor, world: World) -> None:
        now = [tick(1)]
        moved = await actor.open(
            "cursor/move", [1], [1], [None], [None], [None], [False], [None], ["deleted"],
            [1], now, ["deleted"], now, ["deleted"], [None], [None], None, [], [], [], [], [],
        )  # fmt: skip
        assert moved, "no other actor changes this job"
        await actor.run("run/end_of_deleted_jobs", [1])
        await actor.commit()

    return script


def redrives(keys: Sequence[RunKey]) -> Script:
    async def script(actor: Actor, world: World) -> None:
        await actor.open("run/lock_jobs", [1], 1, None)
        await actor.run("task/redrive", *zip(*keys, strict=True), 1, LIMIT, None)
        await actor.commit()

    return script


def purges(name: str, *page: object) -> Script:
    """Upkeep deletes keys that are no longer held."""

    async def script(actor: Actor, world: World) -> None:
        await actor.run(name, *page)

    return script
