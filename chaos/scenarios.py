"""The scenarios by name: what is done, to whom, and what must hold nevertheless."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fleet import clocks, coordinators, failover, plans
from fleet.checker import MISSED, SKIPPED, SUCCEEDED, Promise, moves, unprovoked_evictions
from fleet.driver import Prepare, Shape
from fleet.plans import Chance, Fault

# One lease of 5 s, and a second to notice, to take over and to catch up.
FAILOVER = 6.0
# As above, and a third of a lease: the last heartbeat may have arrived although its answer did not.
AFTER_A_CUT = 5.0 + 5.0 / 3 + 1.0
# The service gives up a node after its own time to live, and it is asked every third of that.
AFTER_A_NOMINATION = 5.0 + 5.0 / 3 + 1.0
# Counted from the moment when the new primary can be reached: everybody joins anew, under a higher incarnation.
AFTER_A_PROMOTION = 6.0


class Scenario(NamedTuple):
    name: str
    faults: Callable[[Chance, float, float], list[Fault]]
    promise: Promise
    seconds: float = 90.0
    shape: Shape = Shape()
    prepare: Prepare | None = None


def nothing(_chance: Chance, _seconds: float, _ttl: float) -> list[Fault]:
    return []


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("calm", nothing, Promise(latest=1.0, rules=(unprovoked_evictions,)), seconds=30.0),
        Scenario("kill", plans.kills, Promise(latest=FAILOVER, takeovers=1, rescues=1)),
        Scenario(
            "cut",
            plans.cuts,
            Promise(latest=AFTER_A_CUT, takeovers=1, rescues=1),
            seconds=100.0,
            shape=Shape(linked=True),
        ),
        Scenario(
            "join",
            plans.joins,
            Promise(latest=1.0, rules=(moves, unprovoked_evictions)),
            seconds=40.0,
            shape=Shape(later=("s4",)),
        ),
        Scenario(
            "promote",
            failover.synchronous_promotion,
            Promise(latest=AFTER_A_PROMOTION, rules=(failover.nothing_given_twice, failover.nothing_lost)),
            seconds=30.0,
            shape=Shape(linked=True),
            prepare=failover.with_synchronous_standby,
        ),
        Scenario(
            "promote-late",
            failover.asynchronous_promotion,
            Promise(latest=AFTER_A_PROMOTION, repeated=1, rules=(failover.nothing_given_twice,)),
            seconds=30.0,
            shape=Shape(linked=True),
            prepare=failover.with_asynchronous_standby,
        ),
        Scenario(
            "clock",
            clocks.wrong_nodes,
            Promise(latest=FAILOVER, takeovers=1, rescues=1),
            seconds=40.0,
            prepare=clocks.with_wrong_nodes,
        ),
        Scenario(
            "database-clock",
            clocks.clock_step,
            Promise(statuses=(SUCCEEDED, SKIPPED, MISSED), common=clocks.RULES),
            seconds=30.0,
            prepare=clocks.with_clock_to_set,
        ),
        *(
            Scenario(
                f"coordinator-{name}",
                coordinators.outage,
                Promise(latest=AFTER_A_NOMINATION, takeovers=1),
                seconds=36.0,
                prepare=coordinators.with_coordinator(name),
            )
            for name in coordinators.KINDS
        ),
        Scenario(
            "storm",
            plans.storms,
            Promise(takeovers=1, rescues=1),
            seconds=60.0,
            shape=Shape(plans.MEMBERS, ttl=2.0, linked=True),
        ),
        Scenario("stop", plans.stops, Promise(latest=FAILOVER, takeovers=1, rescues=1, refused=1)),
    )
}
