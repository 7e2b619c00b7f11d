"""Runs that wait for a callback: the answer 202, the callback, the end of the lease, and a take-over, in every order.

Beside the rules of `world.py`: of the reports under one token one is accepted, and after a heartbeat was answered the
report of the same target is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import asyncpg

from detent.domain.run import Claim
from detent.store.statement import STATEMENTS
from tests.interleavings import scripts
from tests.interleavings.harness import Actor, Rows, Script
from tests.interleavings.mutants import Mutant, changed
from tests.interleavings.scenarios import Scenario
from tests.interleavings.scripts import NO_DELAY, claim_and_settle, columns
from tests.interleavings.world import NEW, OLD, SECOND, World, held, run, settlement, words_of

WORKER, TENANT = 9, 1
MINUTE = 60 * SECOND
LONGEST = timedelta(days=36_500)
SUCCEEDED, RETRY = 1, None
PREPARE = f"""
DELETE FROM pull_leases; DELETE FROM pull_workers;
INSERT INTO pull_workers (worker, tenant, name) OVERRIDING SYSTEM VALUE VALUES ({WORKER}, {TENANT}, 'callback:test');
UPDATE jobs SET definition = '{{"target": {{"callback": {{}}}}}}';
"""
LEASED = f"""
INSERT INTO pull_leases (job, scheduled_at, serial, token, worker, tenant, lane, ends_at, lease,
                         lease_until, accepted_at)
SELECT job, scheduled_at, serial, token, {WORKER}, {TENANT}, lane, now() + interval '1 hour', interval '1 minute',
       now() - interval '1 second', now() FROM live_runs;
UPDATE live_runs SET owner = -{WORKER}, started_at = now();
"""
END_LEASES = "UPDATE pull_leases SET lease_until = now() - interval '1 second'"


@dataclass
class CallbackWorld(World):
    # Reports that were accepted, by their tokens.
    reported: list[int] = field(default_factory=list)

    def report(self, token: int) -> None:
        if token in self.reported:
            self.faults.append(f"two reports under the token {token} were accepted")
        self.reported.append(token)


class CallbackScenario(Scenario):
    async def reset(self, admin: Any) -> World:
        world = await super().reset(admin)
        return CallbackWorld(world.expected)

    async def judge(self, admin: Any, world: World) -> list[str]:
        """What is left under a lease ends with it, before the survivor does the rest."""
        await admin.execute(END_LEASES)
        found: list[str] = []
        try:
            async with admin.transaction():
                silent = await admin.fetch(STATEMENTS["pull/lock_expired"].text, 100, 0)
                for row in silent:
                    claim = Claim(row["job"], row["lane"], row["scheduled_at"], row["serial"], row["token"], 1)
                    await admin.fetch(STATEMENTS["pull/settle"].text, *_settles(claim, RETRY, "lost"))
        except asyncpg.PostgresError as error:
            found.append(f"the leases cannot be ended: {error}")
        return found + await super().judge(admin, world)


def _settles(claim: Claim, status: int | None, outcome: str, result: str | None = None) -> Sequence[object]:
    key = ([claim.job], [claim.scheduled_at], [claim.serial], [claim.token])
    return (TENANT, *key, [status], [None], [result], [outcome], [None], [NO_DELAY], [None])


def accepts(node: int, claim: Claim) -> Script:
    """The node has the answer 202; what it no longer holds is looked up, and kept as stale unless it was settled."""

    async def script(actor: Actor, world: World) -> None:
        if claim.key not in [grant.key for grant in world.grants]:
            world.grant(node, [claim])
        rows = await actor.open(
            "pull/accept", node, *columns([claim]), [claim.scheduled_at], [WORKER], [TENANT], [LONGEST], [MINUTE]
        )
        await actor.commit()
        if rows:
            jobs, _, ats, serials, tokens = columns([claim])
            if not await actor.run("run/find_settled", jobs, ats, serials, tokens):
                times = [claim.scheduled_at]
                stale = (node, jobs, ats, serials, tokens, times, times, [1], ["refused: accepted"])
                await actor.run("run/record_stale", *stale)

    return script


def reports(claim: Claim, status: int | None = SUCCEEDED, *, beats: bool = False, then: Script | None = None) -> Script:
    """The target reports the end of its attempt, as worker/pull.py does it; then its node goes on, if asked to."""

    async def script(actor: Actor, world: World) -> None:
        assert isinstance(world, CallbackWorld)
        beaten = beats and bool(await _beat(actor, claim))
        accepted = await _report(actor, claim, status)
        if accepted:
            world.report(claim.token)
            if status is SUCCEEDED:
                world.accepted.append((settlement(claim, -WORKER), -WORKER))
        elif beaten:
            world.faults.append("a heartbeat was answered, and the report after it refused")
        if then is not None:
            await then(actor, world)

    return script


async def _beat(actor: Actor, claim: Claim) -> Rows:
    key = ([claim.job], [claim.scheduled_at], [claim.serial], [claim.token])
    return await actor.run("pull/heartbeat", TENANT, *key, [MINUTE])


async def _report(actor: Actor, claim: Claim, status: int | None) -> bool:
    words = words_of(claim, -WORKER) if status is SUCCEEDED else None
    settle = _settles(claim, status, "succeeded" if status is SUCCEEDED else "failed", words)
    if await actor.run("pull/settle", *settle):
        return True
    key = (claim.job, claim.scheduled_at, claim.serial, claim.token)
    taken = await actor.open("pull/accept_early", TENANT, *key, WORKER)
    settled = bool(taken) and bool(await actor.run("pull/settle", *settle))
    await actor.commit()
    return settled or bool(await actor.run("pull/settle", *settle))


def expires() -> Script:
    """The lease has ended: the attempt is lost, and another one follows."""

    async def script(actor: Actor, world: World) -> None:
        rows = await actor.open("pull/lock_expired", 100, 0)
        for row in rows:
            claim = Claim(row["job"], row["lane"], row["scheduled_at"], row["serial"], row["token"], 1)
            await actor.run("pull/settle", *_settles(claim, RETRY, "lost"))
        await actor.commit()

    return script


async def _next_attempt(actor: Actor, world: World) -> None:
    await claim_and_settle(actor, world, NEW)


EARLY = CallbackScenario(
    "the answer 202 against its callback",
    run(owner=NEW) + PREPARE,
    (("accept", accepts(NEW, held())), ("report", reports(held()))),
)
EARLY_FAILURE = CallbackScenario(
    "the answer 202 against a callback that fails and the next attempt",
    run(owner=NEW) + PREPARE,
    (("accept", accepts(NEW, held())), ("report", reports(held(), RETRY, then=_next_attempt))),
)
DOUBLED = CallbackScenario(
    "two contrary callbacks",
    run(owner=NEW) + PREPARE,
    (("failure", reports(held(), RETRY)), ("success", reports(held()))),
)
OVERTAKEN = CallbackScenario(
    "a callback against eviction, rescue and the next attempt",
    run(owner=OLD, started=True) + PREPARE,
    (
        ("report", reports(held())),
        ("take-over", scripts.takes_over(NEW, OLD, held_open=False, tidy=False, claims=True)),
    ),
)
ACCEPTED_AND_TAKEN_OVER = CallbackScenario(
    "the answer 202 and its callback against eviction and rescue",
    run(owner=OLD, started=True) + PREPARE,
    (
        ("accept", accepts(OLD, held())),
        ("take-over", scripts.takes_over(NEW, OLD, tidy=False, claims=True)),
    ),
)
LATE = CallbackScenario(
    "a heartbeat and a callback against the end of the lease",
    run(owner=NEW) + PREPARE + LEASED,
    (("report", reports(held(), beats=True)), ("expiry", expires())),
)
CANCELLED = CallbackScenario(
    "the answer 202 and its callback against cancel",
    run(owner=NEW) + PREPARE,
    (("report", reports(held())), ("cancel", scripts.cancels())),
)
CALLBACKS = (EARLY, EARLY_FAILURE, DOUBLED, OVERTAKEN, ACCEPTED_AND_TAKEN_OVER, LATE, CANCELLED)

FENCE = "AND token = batch.token AND owner = $1 FOR UPDATE"
CALLBACK_MUTANTS = (
    Mutant(
        "an acceptance without the owner",
        EARLY_FAILURE,
        {"pull/accept": changed("pull/accept", (FENCE, "AND token = batch.token AND $1::bigint > 0 FOR UPDATE"))},
    ),
    Mutant(
        "an acceptance without the token",
        EARLY_FAILURE,
        {"pull/accept": changed("pull/accept", (FENCE, "AND owner = $1 FOR UPDATE"))},
    ),
    Mutant(
        "an early callback without the token",
        OVERTAKEN,
        {
            "pull/accept_early": changed(
                "pull/accept_early",
                ("lane < 32768 AND scheduled_at = $3 AND serial = $4 AND token = $5 AND owner > 0",
                 "lane < 32768 AND scheduled_at = $3 AND serial = $4 AND $5::bigint > 0 AND owner > 0"),
                ("serial = $4 AND token = $5\n", "serial = $4\n"),
            )
        },
    ),
    Mutant(
        "an early callback without an owner",
        DOUBLED,
        {
            "pull/accept_early": changed(
                "pull/accept_early",
                ("AND token = $5 AND owner > 0", "AND token = $5"),
                ("\n               AND owner > 0 FOR UPDATE", "\n               FOR UPDATE"),
            )
        },
    ),
    Mutant(
        "an expiry that locks no lease",
        LATE,
        {"pull/lock_expired": changed("pull/lock_expired", (" FOR UPDATE OF l SKIP LOCKED", ""))},
    ),
)  # fmt: skip
