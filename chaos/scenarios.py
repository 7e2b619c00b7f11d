"""The scenarios by name: which faults, on which processes, and what must be true nevertheless.

Bounds are those of the default lease of 5 s. Common to all: three schedulers, two workers and an API, 300 jobs that run
every second, and the rules of `fleet.checker`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.support.fleet import clocks, coordinators, failover, idle, plans, poolers
from tests.support.fleet.checker import (
    CANCELLED,
    DEAD,
    MISSED,
    SKIPPED,
    SUCCEEDED,
    Promise,
    given_up_too_soon,
    moves,
    unprovoked_evictions,
)
from tests.support.fleet.driver import Prepare, Shape, Ticking
from tests.support.fleet.liveness import Liveness
from tests.support.fleet.plans import Chance, Fault

LEASE = 5.0
CALM = 1.0
# One lease, and a second to notice, to take over and to catch up.
FAILOVER = LEASE + 1.0
# As above, and a third of a lease: the last heartbeat may have arrived although its answer did not.
AFTER_A_CUT = LEASE + LEASE / 3 + 1.0
# Nothing that is due waits for longer on a node that nothing is wrong with: less than the time between two sweeps, so
# that a wake-up that was lost is found although the next sweep makes up for it.
OLDEST = 3.0
# As above: the service gives up a node after its own time to live, and it is asked every third of that.
AFTER_A_NOMINATION = AFTER_A_CUT


class Scenario(NamedTuple):
    name: str
    faults: Callable[[Chance, float, float], list[Fault]]
    promise: Promise
    seconds: float
    shape: Shape = Shape()
    prepare: Prepare | None = None

    @property
    def quiet(self) -> bool:
        """Little is done in it most of the time, so that several can be performed at once."""
        return self.name.startswith("idle-")


def nothing(_chance: Chance, _seconds: float, _ttl: float) -> list[Fault]:
    return []


LINKED = Shape(linked=True)

ALL = (
    Scenario("calm", nothing, Promise(latest=CALM, rules=(unprovoked_evictions,)), 15.0),
    Scenario("kill", plans.kills, Promise(latest=FAILOVER, takeovers=1, rescues=1), 90.0),
    Scenario("stop", plans.stops, Promise(latest=FAILOVER, takeovers=1, rescues=1, refused=1), 90.0),
    Scenario("cut", plans.cuts, Promise(latest=AFTER_A_CUT, takeovers=1, rescues=1), 100.0, LINKED),
    Scenario(
        "join", plans.joins, Promise(latest=CALM, rules=(moves, unprovoked_evictions)), 36.0, Shape(later=("s4",))
    ),
    Scenario(
        "promote",
        failover.synchronous_promotion,
        Promise(latest=FAILOVER, rules=(failover.nothing_given_twice, failover.nothing_lost)),
        30.0,
        LINKED,
        failover.with_synchronous_standby,
    ),
    Scenario(
        "promote-late",
        failover.asynchronous_promotion,
        Promise(latest=FAILOVER, repeated=1, rules=(failover.nothing_given_twice,)),
        30.0,
        LINKED,
        failover.with_asynchronous_standby,
    ),
    *(
        Scenario(
            f"coordinator-{name}",
            coordinators.outage,
            Promise(latest=AFTER_A_NOMINATION, takeovers=1),
            34.0,
            prepare=coordinators.with_coordinator(name),
        )
        for name in coordinators.KINDS
    ),
    Scenario(
        "pooler",
        poolers.kills_and_restarts,
        Promise(latest=FAILOVER, takeovers=1, rescues=1),
        60.0,
        Shape(poolers.MEMBERS),
        poolers.with_pooler,
    ),
    Scenario(
        "clock",
        clocks.wrong_nodes,
        Promise(latest=FAILOVER, takeovers=1, rescues=1),
        40.0,
        prepare=clocks.with_wrong_nodes,
    ),
    Scenario(
        "database-clock",
        clocks.clock_step,
        Promise(statuses=(SUCCEEDED, SKIPPED, MISSED), common=clocks.RULES),
        25.0,
        prepare=clocks.with_clock_to_set,
    ),
    # Everything upon everything, on nodes that schedule and work at once; what holds at all times must hold here too.
    # A run whose node dies again and again is given up in the end.
    Scenario(
        "storm",
        plans.storms,
        Promise(takeovers=1, rescues=1, statuses=(SUCCEEDED, DEAD), rules=(given_up_too_soon,)),
        60.0,
        Shape(plans.MEMBERS, ttl=2.0, linked=True),
    ),
)


# --- one job, and silence after each disturbance ---

POLICIES = {
    "second": Ticking(),
    "ten": Ticking(10),
    "queue": Ticking(1, "slow/0.3", 0.3, {"concurrent_policy": "QUEUE"}),
    "replace": Ticking(1, "slow/0.3", 0.3, {"concurrent_policy": "REPLACE"}),
    "retry": Ticking(2, "fail/1", 1.5, {"max_retries": 8, "retry_base_seconds": 0.5, "retry_max_seconds": 1}),
}
QUIET_STATUSES = (SUCCEEDED, CANCELLED, SKIPPED)
# A run that a lost reply told of is adopted after two looks at the database, about a lease apart.
LIVE = Liveness(OLDEST, 2 * (LEASE + 1.0))
# Where runs take a while and come one after another, the ticks of an outage of 12 s are made up for in so many more.
SLOWLY = LIVE._replace(recovery=LIVE.recovery + 5.0)


def quiet(
    name: str,
    faults: tuple[Fault, ...],
    shape: Shape,
    prepare: Prepare = idle.with_disturbances,
    live: Liveness = LIVE,
) -> Scenario:
    promise = Promise(statuses=QUIET_STATUSES, rules=live.rules)
    return Scenario(f"idle-{name}", idle.one_at_a_time(faults), promise, idle.lasting(faults), shape, prepare)


ONE = Shape(("n1",), ticking=(POLICIES["second"],), linked=True)
FEW = {"DETENT_CONCURRENCY": "1"}

IDLE = (
    *(
        quiet(name, idle.DISTURBANCES, ONE._replace(ticking=(kind,)), live=SLOWLY if kind.takes else LIVE)
        for name, kind in POLICIES.items()
    ),
    quiet("pair", idle.DISTURBANCES, ONE._replace(members=("n1", "n2"))),
    quiet("burst", idle.BURSTS, ONE),
    quiet("full", idle.FULL, ONE._replace(variables=FEW), idle.with_handlers),
    quiet("limit", idle.LIMITED, ONE),
    # Neither ticks nor lateness can be counted by our clock here, but calls must go on.
    Scenario(
        "idle-clock",
        idle.one_at_a_time(idle.STEPS, shuffled=False),
        Promise(
            statuses=(*QUIET_STATUSES, MISSED),
            common=(*(rule for rule in clocks.RULES if rule is not clocks.no_burst), LIVE.gaps),
        ),
        idle.lasting(idle.STEPS),
        ONE,
        idle.with_small_steps,
    ),
)

SCENARIOS = {scenario.name: scenario for scenario in (*ALL, *IDLE)}
