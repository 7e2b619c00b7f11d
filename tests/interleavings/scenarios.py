"""Which actors run concurrently. Each scenario is small enough that all its orders can be played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import asyncpg

from detent.domain.identity import ON_DEMAND, RunKey
from tests.interleavings import scripts, task_scripts
from tests.interleavings.harness import Play, Script
from tests.interleavings.rules import broken_rules
from tests.interleavings.world import (
    CLEAR,
    EVERY_SECOND,
    EVERY_THREE,
    NEW,
    OLD,
    STEPS,
    SURVIVOR,
    Survivor,
    World,
    cursor,
    held,
    overlaps,
    owes,
    run,
    tick,
    violations,
    waits,
)

ON_DEMAND_RUNS = f"SELECT job, scheduled_at, serial FROM runs WHERE serial >= {ON_DEMAND}"


@dataclass(frozen=True)
class Scenario(Play):
    name: str
    rows: str
    actors: Sequence[tuple[str, Script]]
    ticks: Mapping[int, Sequence[int]] = field(default_factory=lambda: {1: (0, 1)})
    texts: Mapping[str, str] = field(default_factory=dict)
    # Where nothing ends: how many lanes must be taken once there are as many runs, so that none was skipped falsely.
    lanes: int | None = None
    # Whether the rules of on-demand runs are checked after every step.
    watched: bool = False

    async def reset(self, admin: Any) -> World:
        await admin.execute(CLEAR + self.rows)
        world = World({job: {tick(number) for number in numbers} for job, numbers in self.ticks.items()})
        world.given += [RunKey(*row.values()) for row in await admin.fetch(ON_DEMAND_RUNS)] if self.watched else []
        return world

    async def watch(self, admin: Any) -> list[str]:
        return await broken_rules(admin) if self.watched else []

    async def judge(self, admin: Any, world: World) -> list[str]:
        found = await self._judge_lanes(admin, world)
        try:
            await Survivor(admin, world).recover()
        except asyncpg.PostgresError as error:
            found.append(f"the recovery failed: {error}")
        return found + await violations(admin, world)

    async def _judge_lanes(self, admin: Any, world: World) -> list[str]:
        if self.lanes is None:
            return []
        taken = await admin.fetchval("SELECT count(*) FROM live_runs")
        wanted = min(self.lanes, len(world.fired) + len(world.enqueued))
        return [] if taken == wanted else [f"{taken} lanes are taken where {wanted} should be"]

    def mutated(self, texts: Mapping[str, str]) -> Scenario:
        return replace(self, texts=texts)


FIRE_AND_TAKE_OVER = Scenario(
    "fire against take-over",
    cursor(),
    (("fire", scripts.fires(OLD)), ("take-over", scripts.takes_over(NEW, OLD))),
)
FIRE_SETTLE_AND_TAKE_OVER = Scenario(
    "fire with hand-off and settle against take-over",
    cursor(),
    (
        ("fire", scripts.fires(OLD, settles=True)),
        ("take-over", scripts.takes_over(NEW, OLD, held_open=False)),
    ),
)
TWO_FIRES = Scenario(
    "two fires of the same ticks",
    cursor(1) + cursor(2),
    (
        ("old", scripts.fires(OLD, (0, 1), jobs=(1, 2))),
        ("new", scripts.fires(NEW, (0, 1), jobs=(1, 2))),
    ),
    {1: (0, 1, 2), 2: (0, 1, 2)},
)
CAREFUL_FIRE = Scenario(
    "a fire against a careful one",
    cursor(1) + cursor(2),
    (
        ("plain", scripts.fires(OLD, (0, 1), jobs=(1, 2))),
        ("careful", scripts.fires(NEW, (0, 1), jobs=(1, 2), careful=True)),
    ),
    {1: (0, 1, 2), 2: (0, 1, 2)},
)
FIRE_AND_EDIT = Scenario(
    "fire against an edit that leaves the next tick where it is",
    cursor(schedule=EVERY_THREE),
    (
        ("fire", scripts.fires(OLD, step=STEPS[EVERY_THREE])),
        ("edit", scripts.edits(EVERY_SECOND, STEPS[EVERY_SECOND])),
    ),
    {1: (0, 3)},
)
CLAIM_AND_RESCUE = Scenario(
    "claim against eviction and rescue",
    run(),
    (("claim", scripts.claims(OLD)), ("take-over", scripts.takes_over(NEW, OLD))),
)
CLAIM_SETTLE_AND_RESCUE = Scenario(
    "claim and settle against eviction and rescue",
    run(),
    (
        ("claim", scripts.claims_and_settles(OLD)),
        ("take-over", scripts.takes_over(NEW, OLD, held_open=False, claims=True)),
    ),
)
OFFER_AND_RESCUE = Scenario(
    "claim of an offer against eviction and rescue",
    run(),
    (("claim", scripts.claims_offered(OLD, held())), ("take-over", scripts.takes_over(NEW, OLD))),
)
ONE_OFFER_FOR_TWO = Scenario(
    "two claims of the same offer",
    run(),
    (
        ("claim", scripts.claims_offered(OLD, held(), settle=True)),
        ("other", scripts.claims_offered(NEW, held(), settle=True)),
    ),
)
OFFER_AND_CLAIM = Scenario(
    "claim of an offer against a claim by priority",
    run(),
    (
        ("offer", scripts.claims_offered(OLD, held(), settle=True)),
        ("claim", scripts.claims_and_settles(NEW, held_open=False)),
    ),
)
BEAT_AND_TAKE_OVER = Scenario(
    "a heartbeat against eviction and rescue",
    run(),
    (("beat", scripts.beats_and_claims(OLD)), ("take-over", scripts.takes_over(NEW, OLD, held_open=False))),
)
BEAT_AND_EVICTION = Scenario(
    "a heartbeat of a node whose clock is wrong against eviction",
    run(),
    (
        ("beat", scripts.beats_and_claims(NEW, clock_offset=-7200.0)),
        ("take-over", scripts.takes_over(SURVIVOR, OLD, held_open=False)),
    ),
)
SETTLE_AND_NEW_OWNER = Scenario(
    "settle against rescue, claim and settle by a new owner",
    run(owner=OLD, started=True),
    (
        ("settle", scripts.settles(OLD, held())),
        ("take-over", scripts.takes_over(NEW, OLD, tidy=False, claims=True)),
    ),
)
SETTLE_AND_CANCEL = Scenario(
    "settle against cancel",
    run(owner=OLD),
    (("settle", scripts.settles(OLD, held())), ("cancel", scripts.cancels())),
)
CLAIM_AND_CANCEL = Scenario(
    "claim and settle against cancel",
    run(),
    (("claim", scripts.claims_and_settles(OLD)), ("cancel", scripts.cancels())),
)
RETRY_AND_RESCUE = Scenario(
    "a failed attempt against rescue",
    run(owner=OLD, started=True),
    (
        ("retry", scripts.fails_and_tries_again(OLD, held())),
        ("take-over", scripts.takes_over(NEW, OLD, tidy=False, claims=True)),
    ),
)
RETRY_AND_CANCEL = Scenario(
    "a failed attempt against cancel",
    run(owner=OLD),
    (("retry", scripts.fails_and_tries_again(OLD, held())), ("cancel", scripts.cancels())),
)
FIRE_AND_TRIGGER = Scenario(
    "fire against a trigger on SKIP",
    cursor(),
    (("fire", scripts.fires(OLD, (0, 1))), ("trigger", task_scripts.triggers())),
    {1: (0, 1, 2)},
    lanes=1,
)
FIRE_AND_TWO_TRIGGERS = Scenario(
    "fire against two triggers on ALLOW with two lanes",
    cursor(lanes=2),
    (("fire", scripts.fires(OLD)), ("trigger", task_scripts.triggers()), ("another", task_scripts.triggers())),
    lanes=2,
)
ZOMBIE_AND_ITS_SUCCESSOR = Scenario(
    "a late settle against the next claim of the same node",
    run(owner=NEW),
    (
        ("late", scripts.settles_late(NEW, held())),
        ("next", scripts.gives_back_and_claims_again(NEW, held())),
    ),
)
ZOMBIE_AND_ITS_SUCCESSOR_THAT_WAITED = Scenario(
    "a late settle against a run that is put off and claimed again by the same node",
    run(owner=NEW),
    (
        ("late", scripts.settles_late(NEW, held())),
        ("next", scripts.puts_off_and_claims_again(NEW, held())),
    ),
)
LATE_PUT_OFF_AND_SUCCESSOR = Scenario(
    "a run that is put off late against its next claim by the same node",
    run(owner=NEW),
    (
        ("late", scripts.puts_off_late(NEW, held())),
        ("next", scripts.gives_back_and_claims_again(NEW, held())),
    ),
)
PUT_OFF_AND_RESCUE = Scenario(
    "a run that is put off against the rescue of its node's runs",
    run(owner=OLD),
    (
        ("waits", scripts.puts_off_and_claims_again(OLD, held())),
        ("take-over", scripts.takes_over(NEW, OLD, held_open=False, tidy=False, claims=True)),
    ),
)
ZOMBIE_AND_ITS_RETRY = Scenario(
    "a late settle against the next attempt on the same node",
    run(owner=NEW),
    (("late", scripts.settles_late(NEW, held())), ("retry", scripts.fails_and_tries_again(NEW, held()))),
)
SETTLE_AGAIN_AND_NEXT_TICK = Scenario(
    "a settle that is sent again against the next tick in its lane",
    run(owner=NEW),
    (("again", scripts.settles_again(NEW, held())), ("fire", scripts.fires(NEW, (1,)))),
)
# Several runs of one job, which are settled by their lanes.
BOTH = (held(), held(at=1, lane=1))
SETTLE_OF_LANES_AND_CANCEL = Scenario(
    "settle of two lanes against cancels",
    overlaps(OLD),
    (
        ("settle", scripts.settles(OLD, *BOTH)),
        ("cancel", scripts.cancels(1, 0)),
        ("another", scripts.cancels(0, 1)),
    ),
)
SETTLE_OF_LANES_AND_NEW_OWNER = Scenario(
    "settle of two lanes against take-over",
    overlaps(OLD),
    (
        ("settle", scripts.settles(OLD, *BOTH)),
        ("take-over", scripts.takes_over(NEW, OLD, tidy=False, claims=True)),
    ),
)
ZOMBIES_AND_ONE_SUCCESSOR = Scenario(
    "a late settle of two lanes against the next claim of one of them by the same node",
    overlaps(NEW),
    (
        ("late", scripts.settles_late(NEW, *BOTH)),
        ("next", scripts.gives_back_and_claims_again(NEW, BOTH[1])),
    ),
)
ZOMBIES_AND_ONE_RETRY = Scenario(
    "a late settle of two lanes against the next attempt of one of them on the same node",
    overlaps(NEW),
    (("late", scripts.settles_late(NEW, *BOTH)), ("retry", scripts.fails_and_tries_again(NEW, BOTH[1]))),
)
# Ticks that are made up for.
RELEASE_AND_RELEASE = Scenario(
    "two releases of the same ticks",
    owes(0, 2, lanes=5),
    (("old", scripts.releases(OLD)), ("new", scripts.releases(NEW))),
    {1: (0, 1, 2)},
)
RELEASE_AND_TAKE_OVER = Scenario(
    "a release against take-over",
    owes(0, 2, lanes=5),
    (("release", scripts.releases(OLD)), ("take-over", scripts.takes_over(NEW, OLD))),
    {1: (0, 1, 2)},
)
RELEASE_AND_PAUSE = Scenario(
    "releases against a pause",
    owes(0, 2, lanes=5),
    (("release", scripts.releases(NEW, 2)), ("pause", scripts.stops("paused", 2))),
    {1: (0, 1, 2)},
)
RELEASE_AND_DELETE = Scenario(
    "releases against a deletion",
    owes(0, 2, lanes=5),
    (("release", scripts.releases(NEW, 2)), ("delete", scripts.stops("deleted", 2))),
    {1: (0, 1, 2)},
)
RELEASE_AND_DROP = Scenario(
    "a release against an operator who drops the rest",
    owes(0, 2, lanes=5),
    (("release", scripts.releases(NEW)), ("drop", scripts.drops())),
    {1: (0, 1, 2)},
)
RELEASE_AND_TRIGGER = Scenario(
    "a release against a trigger on SKIP",
    owes(0, 0),
    (("release", scripts.releases(NEW)), ("trigger", task_scripts.triggers())),
    {1: (0,)},
)
# Runs that wait for the one before.
PROMOTE_AND_SETTLE = Scenario(
    "a promotion against the settle of the one before",
    waits(owner=OLD),
    (("settle", scripts.settles(OLD, held())), ("promote", scripts.promotes_and_claims(NEW))),
    {1: (0, 1, 2)},
)
PROMOTE_AND_RESCUE = Scenario(
    "a promotion against the rescue of the one before",
    waits(owner=OLD, started=True, cancel=True),
    (
        ("take-over", scripts.takes_over(NEW, OLD, tidy=False)),
        ("promote", scripts.promotes_and_claims(NEW, held_open=False)),
    ),
    {1: (0, 1, 2)},
)
PROMOTE_AND_FIRE = Scenario(
    "a promotion against the next tick",
    waits() + "DELETE FROM live_runs WHERE lane = 0;",
    (("fire", scripts.fires(OLD, (2,))), ("promote", scripts.promotes_and_claims(NEW))),
    {1: (1, 2, 3)},
)
TWO_PROMOTIONS = Scenario(
    "two promotions",
    waits() + "DELETE FROM live_runs WHERE lane = 0;",
    (("old", scripts.promotes_and_claims(OLD)), ("new", scripts.promotes_and_claims(NEW))),
    {1: (1, 2)},
)
REPLACE_AND_SETTLE = Scenario(
    "a replacement against the settle of what it replaces",
    waits(-2, owner=OLD),
    (("settle", scripts.settles(OLD, held())), ("promote", scripts.promotes_and_claims(NEW))),
    {1: (0, 1, 2)},
)
REPLACE_AND_CLAIM = Scenario(
    "a replacement against the claim of what it replaces",
    waits(-2),
    (("claim", scripts.claims_and_settles(OLD)), ("promote", scripts.promotes_and_claims(NEW))),
    {1: (0, 1, 2)},
)
FIRE_AND_TRIGGER_ON_QUEUE = Scenario(
    "fire against a trigger on QUEUE",
    cursor(lanes=-1),
    (("fire", scripts.fires(OLD)), ("trigger", task_scripts.triggers())),
    lanes=2,
)
# The largest ones: a third actor, or a successor that goes on to fire.
TAKE_OVER_THAT_FIRES = Scenario(
    "fire against a take-over that fires on",
    cursor(),
    (
        ("fire", scripts.fires(OLD, settles=True)),
        ("take-over", scripts.takes_over(NEW, OLD, held_open=False, refires=True)),
    ),
)
CLAIM_RESCUE_AND_CLAIM = Scenario(
    "claim against eviction and rescue, and a third node that claims",
    run(),
    (
        ("claim", scripts.claims_and_settles(OLD)),
        ("take-over", scripts.takes_over(NEW, OLD, held_open=False)),
        ("other", scripts.claims_and_settles(NEW, held_open=False)),
    ),
)
SETTLE_RESCUE_AND_CANCEL = Scenario(
    "settle against rescue and cancel",
    run(owner=OLD, started=True),
    (
        ("settle", scripts.settles(OLD, held())),
        ("take-over", scripts.takes_over(NEW, OLD, held_open=False, tidy=False)),
        ("cancel", scripts.cancels()),
    ),
)

SMALL = (
    FIRE_AND_TAKE_OVER,
    FIRE_SETTLE_AND_TAKE_OVER,
    TWO_FIRES,
    CAREFUL_FIRE,
    FIRE_AND_EDIT,
    CLAIM_AND_RESCUE,
    CLAIM_SETTLE_AND_RESCUE,
    OFFER_AND_RESCUE,
    ONE_OFFER_FOR_TWO,
    OFFER_AND_CLAIM,
    BEAT_AND_TAKE_OVER,
    BEAT_AND_EVICTION,
    SETTLE_AND_NEW_OWNER,
    SETTLE_AND_CANCEL,
    CLAIM_AND_CANCEL,
    RETRY_AND_RESCUE,
    RETRY_AND_CANCEL,
    FIRE_AND_TRIGGER,
    FIRE_AND_TWO_TRIGGERS,
    ZOMBIE_AND_ITS_SUCCESSOR,
    ZOMBIE_AND_ITS_SUCCESSOR_THAT_WAITED,
    LATE_PUT_OFF_AND_SUCCESSOR,
    PUT_OFF_AND_RESCUE,
    ZOMBIE_AND_ITS_RETRY,
    SETTLE_AGAIN_AND_NEXT_TICK,
    SETTLE_OF_LANES_AND_CANCEL,
    SETTLE_OF_LANES_AND_NEW_OWNER,
    ZOMBIES_AND_ONE_SUCCESSOR,
    ZOMBIES_AND_ONE_RETRY,
    RELEASE_AND_RELEASE,
    RELEASE_AND_TAKE_OVER,
    RELEASE_AND_PAUSE,
    RELEASE_AND_DELETE,
    RELEASE_AND_DROP,
    RELEASE_AND_TRIGGER,
    PROMOTE_AND_SETTLE,
    PROMOTE_AND_RESCUE,
    PROMOTE_AND_FIRE,
    TWO_PROMOTIONS,
    REPLACE_AND_SETTLE,
    REPLACE_AND_CLAIM,
    FIRE_AND_TRIGGER_ON_QUEUE,
)
LARGE = (TAKE_OVER_THAT_FIRES, CLAIM_RESCUE_AND_CLAIM, SETTLE_RESCUE_AND_CANCEL)
