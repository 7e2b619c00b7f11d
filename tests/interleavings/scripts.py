"""What an actor does: the product's statements in the product's order, each a separate step.

Statements that matter to the race are held open over the steps of others (`open`, then `commit`); the rest are alone in
their transaction, as in the product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import asyncpg

from detent.domain.identity import MANUAL, RunKey
from detent.domain.run import Claim, HeldRun
from detent.store.settlements import settle_statements
from tests.interleavings.harness import Actor, Rows, Script
from tests.interleavings.world import (
    CRASH_CAP,
    FIRST_TOKEN,
    INCARNATION,
    PARTITION,
    SECOND,
    World,
    held,
    settlement,
    tick,
)

NO_DELAY = timedelta(0)


def columns(claims: Sequence[Claim]) -> tuple[Sequence[object], ...]:
    return tuple(zip(*((c.job, c.lane, c.scheduled_at, c.serial, c.token) for c in claims), strict=True))


def failed_attempt(claim: Claim) -> tuple[Sequence[object], ...]:
    """The arrays of a settle that retries, without a traceback, as of an attempt that no exception ended."""
    at = [claim.scheduled_at]
    return (*columns([claim]), at, at, ["failed"], ["no"], [NO_DELAY], [None])


def fires(
    node: int,
    ticks: Sequence[int] = (0,),
    *,
    step: timedelta = SECOND,
    hand_off: bool = True,
    settles: bool = False,
    jobs: Sequence[int] = (1,),
    careful: bool = False,
) -> Script:
    """Fire the ticks one after another, each after the reply to the one before; then settle what was handed off."""

    async def script(actor: Actor, world: World) -> None:
        for number in ticks:
            rows = await _open_fire(actor, node, number, step, jobs, hand_off, careful)
            await actor.commit()
            exceptions = {row["job"]: row for row in rows}
            world.fired += [RunKey(job, tick(number)) for job in jobs if not _refused(exceptions.get(job))]
            if hand_off:
                claims = [claim for job in jobs if (claim := _handed_off(job, number, exceptions.get(job)))]
                world.grant(node, claims)
                if claims and settles:
                    await settle_all(actor, world, node, claims)
            if any(_refused(row) for row in rows):
                return

    return script


def _refused(row: Mapping[str, Any] | None) -> bool:
    return row is not None and row["why"] == "refused"


async def _open_fire(
    actor: Actor, node: int, number: int, step: timedelta, jobs: Sequence[int], hand_off: bool, careful: bool
) -> Rows:
    """As the product: a batch of which another run takes a lane in the meantime is sent again as a careful one."""
    count, by = len(jobs), (node, INCARNATION, node if hand_off else None)
    at, following = tick(number), tick(number) + step
    if not careful:
        try:
            return await actor.open("cursor/fire", *by, jobs, at, None, 1, None, following, None, None)
        except asyncpg.UniqueViolationError as taken:
            assert taken.constraint_name == "live_runs_pkey"
            await actor.rollback()
    columns = (jobs, [at] * count, [1] * count, [following] * count, None)
    return await actor.open("cursor/fire_careful", *by, *columns, False)


def _handed_off(job: int, number: int, exception: Mapping[str, Any] | None) -> Claim | None:
    lane = 0 if exception is None else exception["lane"]
    return None if lane is None else Claim(job, lane, tick(number), 0, FIRST_TOKEN, 1)


def fires_in_two_transactions(node: int) -> Script:
    """A broken fire: the cursor moves in one transaction, the run is inserted in the next."""

    async def script(actor: Actor, world: World) -> None:
        arguments = (node, INCARNATION, node, [1], [tick(0)], [1], [tick(1)], None)
        moved = await actor.run("fire: cursor", *arguments)
        if any(_refused(row) for row in moved):
            return
        inserted = await actor.run("fire: run", *arguments)
        if not inserted:
            world.grant(node, [held()])
            await settle_all(actor, world, node, [held()])

    return script


def takes_over(
    node: int, of: int, *, claims: bool = False, refires: bool = False, tidy: bool = True, held_open: bool = True
) -> Script:
    """Evict what has expired, rescue its runs, take its partitions, forget it; then work on, if asked to."""

    async def script(actor: Actor, world: World) -> None:
        evicted = await actor.open("node/evict")
        await actor.commit()
        world.evict(row["node"] for row in evicted)
        if {row["node"] for row in evicted} == {of}:
            await _rescue(actor, of, held_open)
            if tidy:
                taken = await actor.run("partition/take", node, INCARNATION, [PARTITION], [None])
                world.terms.extend(row["term"] for row in taken)
                await actor.run("node/delete", of)
        if refires:
            await _refire(actor, node)
        if claims:
            await claim_and_settle(actor, world, node)

    return script


def beats_and_claims(node: int, clock_offset: float = 0.0) -> Script:
    """A heartbeat of a node that was silent for a while; if it is still a member, it goes on working."""

    async def script(actor: Actor, world: World) -> None:
        (beat,) = await actor.run("node/heartbeat", node, clock_offset, None, None, None)
        if beat["remaining"] is not None:
            await claim_and_settle(actor, world, node)

    return script


async def _rescue(actor: Actor, of: int, held_open: bool) -> None:
    while True:
        if held_open:
            found = await actor.open("run/rescue", of, CRASH_CAP, 1000)
            await actor.commit()
        else:
            found = await actor.run("run/rescue", of, CRASH_CAP, 1000)
        if not found:
            return


async def _refire(actor: Actor, node: int) -> None:
    (cursor,) = await actor.run("cursor/read", [1])
    if cursor["next_tick"] <= tick(1):
        at = cursor["next_tick"]
        ticks = (at, None, cursor["generation"], None, at + SECOND, None, None)
        await actor.open("cursor/fire", node, INCARNATION, None, [1], *ticks)
        await actor.commit()


def claims_and_settles(node: int, *, held_open: bool = True) -> Script:
    async def script(actor: Actor, world: World) -> None:
        await claim_and_settle(actor, world, node, held_open)

    return script


def claims(node: int) -> Script:
    """A claim whose handler is still running when everything else is over."""

    async def script(actor: Actor, world: World) -> None:
        rows = await actor.open("run/claim", node, INCARNATION, [1], 10, False)
        await actor.commit()
        world.grant(node, [Claim(*row.values()) for row in rows])

    return script


def claims_offered(node: int, offer: Claim, *, settle: bool = False) -> Script:
    """A claim of the run that a broker has offered, perhaps to several workers."""

    async def script(actor: Actor, world: World) -> None:
        rows = await actor.open("run/claim_offered", node, INCARNATION, *columns([offer]))
        await actor.commit()
        claims = [Claim(*row.values()) for row in rows]
        world.grant(node, claims)
        if claims and settle:
            await settle_all(actor, world, node, claims, held_open=False)

    return script


async def claim_and_settle(actor: Actor, world: World, node: int, held_open: bool = False) -> None:
    if held_open:
        rows = await actor.open("run/claim", node, INCARNATION, [1], 10, False)
        await actor.commit()
    else:
        rows = await actor.run("run/claim", node, INCARNATION, [1], 10, False)
    claims = [Claim(*row.values()) for row in rows]
    world.grant(node, claims)
    if claims:
        await settle_all(actor, world, node, claims, held_open=held_open)


def settles(node: int, *claims: Claim) -> Script:
    """The results of runs that this node holds, or believes to hold."""

    async def script(actor: Actor, world: World) -> None:
        world.grant(node, claims)
        await settle_all(actor, world, node, claims)

    return script


def settles_again(node: int, claim: Claim) -> Script:
    """A settle whose reply is lost is sent once more, and has then committed before."""

    async def script(actor: Actor, world: World) -> None:
        world.grant(node, [claim])
        await _try_to_settle(actor, world, node, [claim], held_open=True)
        if await _try_to_settle(actor, world, node, [claim], held_open=True):
            jobs, _, ats, serials, tokens = columns([claim])
            if not await actor.run("run/find_settled", jobs, ats, serials, tokens):
                raise AssertionError("a settle that had committed was taken for a stale one")

    return script


def settles_at_once(node: int, claim: Claim) -> Script:
    """As `settles`, in one step: for others that neither lock the run nor wait for it."""

    async def script(actor: Actor, world: World) -> None:
        world.grant(node, [claim])
        await settle_all(actor, world, node, [claim], held_open=False)

    return script


def settles_late(node: int, *claims: Claim) -> Script:
    """A handler that outlived its attempt commits its own result, under the attempt's token; refused, it gives up."""

    async def script(actor: Actor, world: World) -> None:
        world.refused += await _try_to_settle(actor, world, node, claims, held_open=True)

    return script


async def settle_all(actor: Actor, world: World, node: int, claims: Sequence[Claim], *, held_open: bool = True) -> None:
    """Settle; what matched nothing is looked up, and kept as stale if it had not committed before."""
    late = await _try_to_settle(actor, world, node, claims, held_open)
    if late:
        await tell_stale(actor, world, node, late)


async def _try_to_settle(
    actor: Actor, world: World, node: int, claims: Sequence[Claim], held_open: bool
) -> list[HeldRun]:
    """Settle; returns what was not this node's to settle."""
    batch = [settlement(claim, node) for claim in claims]
    unmatched: list[Any] = []
    for statement, arguments in settle_statements(batch):
        if held_open:
            unmatched += await actor.open(statement.name, node, *arguments)
            await actor.commit()
        else:
            unmatched += await actor.run(statement.name, node, *arguments)
    missed = {(row["job"], row["lane"]) for row in unmatched}
    world.accepted += [(item, node) for item in batch if (item.claim.job, item.claim.lane) not in missed]
    return [item for item in batch if (item.claim.job, item.claim.lane) in missed]


async def tell_stale(actor: Actor, world: World, node: int, late: Sequence[HeldRun]) -> None:
    jobs, _, ats, serials, tokens = columns([item.claim for item in late])
    if await actor.run("run/find_settled", jobs, ats, serials, tokens):
        raise AssertionError("a settle that was sent once and matched nothing was taken for a repeated one")
    world.refused += late
    times = [item.claim.scheduled_at for item in late]
    await actor.run(
        "run/record_stale", node, jobs, ats, serials, tokens, times, times, [1] * len(late), ["late"] * len(late)
    )


def fails_and_tries_again(node: int, claim: Claim) -> Script:
    """A failed attempt, then the next one on the same node."""

    async def script(actor: Actor, world: World) -> None:
        world.grant(node, [claim])
        await actor.open("run/settle_retry", node, *failed_attempt(claim))
        await actor.commit()
        await claim_and_settle(actor, world, node)

    return script


def gives_back_and_claims_again(node: int, claim: Claim) -> Script:
    async def script(actor: Actor, world: World) -> None:
        world.grant(node, [claim])
        await actor.open("run/give_back", node, *columns([claim]))
        await actor.commit()
        await claim_and_settle(actor, world, node)

    return script


def puts_off_and_claims_again(node: int, claim: Claim) -> Script:
    """As above, for a host that does not answer; its wait is over at once."""

    async def script(actor: Actor, world: World) -> None:
        world.grant(node, [claim])
        await actor.open("run/put_off", node, *columns([claim]), [NO_DELAY])
        await actor.commit()
        await claim_and_settle(actor, world, node)

    return script


def puts_off_late(node: int, claim: Claim) -> Script:
    """A worker that has lost the run puts it off, under the token of its former claim."""

    async def script(actor: Actor, world: World) -> None:
        await actor.open("run/put_off", node, *columns([claim]), [NO_DELAY])
        await actor.commit()

    return script


def cancels(*at: int) -> Script:
    """Of these ticks, else of the first."""
    ticks = [tick(number) for number in at or (0,)]

    async def script(actor: Actor, world: World) -> None:
        rows = await actor.open("run/cancel", [1] * len(ticks), ticks, [0] * len(ticks))
        await actor.commit()
        for row in rows:
            world.cancel(RunKey(row["job"], row["scheduled_at"], row["serial"]), row["owner"] is None)

    return script


def edits(to_schedule: int, step: timedelta) -> Script:
    """A new schedule with the same next tick; computed again when the cursor moved meanwhile."""

    async def script(actor: Actor, world: World) -> None:
        while not await _edit(actor, to_schedule, step):
            pass
        world.expected[1] = {tick(number) for number in range(4)}

    return script


async def _edit(actor: Actor, to_schedule: int, step: timedelta) -> bool:
    (row,) = await actor.run("cursor/read", [1])
    last_tick = None if row["next_tick"] == tick(0) else tick(0)
    next_tick = tick(0) if last_tick is None else last_tick + step
    generation = row["generation"]
    revised = await actor.open(
        "job/revise", [1], [generation], [1], [1], [to_schedule], [5], [-1], [False], [None],
        ["1"], ["{}"], ["http"], ["[]"], None, [last_tick], None, [1], [100], [False], [None], [None], [False], [None],
    )  # fmt: skip
    moved = revised and await actor.run(
        "cursor/move", [1], [generation + 1], [last_tick], [next_tick], [next_tick], [False], [None], ["active"],
        [to_schedule], [next_tick], ["edited"], [next_tick], ["edited"], [None], [None], None, [], [], [], [], [],
    )  # fmt: skip
    if moved:
        await actor.commit()
    else:
        await actor.rollback()
    return bool(moved)


def releases(node: int, count: int = 1) -> Script:
    """Make up for ticks, one after another, as the leader of the partition does."""

    async def script(actor: Actor, world: World) -> None:
        for _ in range(count):
            due = [row for row in await actor.run("catch_up/list_due", [PARTITION], [0], 10) if not row["dead"]]
            if not due:
                return
            row = due[0]
            following = row["next_tick"] + SECOND
            sent = (
                row["catchup"],
                row["next_tick"],
                row["generation"],
                None if following > row["until"] else following,
            )
            if not await actor.open("catch_up/lock_jobs", node, [1]):
                await actor.rollback()  # another actor has locked the job
                continue
            fates = await actor.run("catch_up/release", node, INCARNATION, MANUAL, *([value] for value in sent))
            await actor.commit()
            if [fate["fate"] for fate in fates] == ["released"]:
                world.released.append(row["next_tick"])

    return script


def stops(status: str, last: int) -> Script:
    """Pause or delete a job whose last tick was this one."""

    async def script(actor: Actor, world: World) -> None:
        (row,) = await actor.run("cursor/read", [1])
        now, through = [tick(last + 1)], [tick(last)]
        moved = await actor.open(
            "cursor/move", [1], [row["generation"]], through, [None], [None], [False], [None], [status],
            [1], now, [status], now, [status], [None], [None], None, [], [], [], [], [],
        )  # fmt: skip
        await actor.commit()
        assert moved, "no other actor changes this job"
        world.paused = len(world.released)

    return script


def drops() -> Script:
    """Give up what is left; read again when it has moved meanwhile."""

    async def script(actor: Actor, world: World) -> None:
        while rows := await actor.run("catch_up/list_of_job", 1):
            (row,) = rows
            number, first, last = [row["catchup"]], [row["next_tick"]], [row["until"]]
            count = [(row["until"] - row["next_tick"]) // SECOND + 1]
            await actor.open("catch_up/drop", number, first, number, first, last, count, ["dropped"])
            await actor.commit()

    return script


def promotes_and_claims(node: int, *, held_open: bool = True) -> Script:
    """Whoever claims lets those move up first that wait for an end."""

    async def script(actor: Actor, world: World) -> None:
        if held_open:
            await actor.open("run/promote", None, 1000)
            await actor.commit()
        else:
            await actor.run("run/promote", None, 1000)
        await claim_and_settle(actor, world, node)

    return script
