"""The product with one rule removed, each in a separate copy. A checker that finds nothing wrong with these proves
nothing.

Each mutant has a run of its own in which the rule is needed; the sound product passes that very run.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.fleet.checker import Promise, unprovoked_evictions
from tests.support.fleet.driver import POLICY, Prepare, Shape, Stage, Ticking
from tests.support.fleet.idle import with_disturbances
from tests.support.fleet.liveness import Liveness
from tests.support.fleet.plans import Fault, Plan

SOURCE = Path(__file__).parents[3] / "src"
TTL = 1.5
HOLD = 2.5 * TTL

# By file: passages that are there exactly once, and what stands there instead.
Patches = Mapping[str, Sequence[tuple[str, str]]]

FENCE = ("SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE", "SELECT $1::bigint AS node")
BEHIND = {"runtime/clock.py": [("return datetime.now(UTC)", "return datetime.now(UTC) - timedelta(seconds=20)")]}


class Mutant(NamedTuple):
    name: str
    patches: Patches
    shape: Shape
    faults: tuple[Fault, ...]
    promise: Promise
    prepare: Prepare | None = None
    # How long nothing is done after the last fault.
    silence: float = 2 * TTL

    @property
    def plan(self) -> Plan:
        last = max((fault.at + fault.seconds for fault in self.faults), default=5.0)
        return Plan(self.name, 0, last + self.silence, self.faults)


def overlay(folder: Path, patches: Patches, source: Path = SOURCE) -> Path:
    """A copy of the product with passages replaced; a passage that is not there exactly once is an error."""
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    for name, replacements in patches.items():
        path = folder / "detent" / name
        text = path.read_text()
        for before, after in replacements:
            if text.count(before) != 1:
                raise AssertionError(f"{name} no longer says {before!r} once: adapt the mutant to it")
            text = text.replace(before, after)
        path.write_text(text)
    return folder


def mutated(shape: Shape, source: Path) -> Shape:
    return shape._replace(variables={**shape.variables, "PYTHONPATH": str(source)})


async def with_a_clock_behind(stage: Stage) -> None:
    """One node lives twenty seconds in the past. The wrong clock is a patch too: of whatever source the others run."""
    source = Path(stage.fleet.variables.get("PYTHONPATH", SOURCE))
    behind = overlay(stage.folder / "behind", BEHIND, source)
    stage.fleet["n1"].variables["PYTHONPATH"] = str(behind)


# More than one worker can do alone: while the other one is stopped, runs wait, and it finds them when it wakes up.
BUSY = Shape(("s1", "w1", "w2", "api"), jobs=18, ttl=TTL, variables={"DETENT_CONCURRENCY": "2"})
ALIKE = Shape(("n1", "n2", "n3"), jobs=20, ttl=TTL)
# A lease that outlasts the cut: the node stays the same one, and nothing begins anew.
QUIET = Shape(("n1",), ticking=(Ticking(fields=POLICY),), ttl=12.0, linked=True)

MUTANTS = (
    Mutant(
        "no node fence in fire and claim",
        {
            f"store/sql/{name}.sql": [FENCE]
            for name in ("cursor/fire", "cursor/fire_careful", "run/claim", "run/claim_shares")
        },
        BUSY,
        (Fault(2.0, "stop-at", "w1", HOLD, "W1=stop@6"), Fault(9.0, "stop-at", "w2", HOLD, "W1=stop@6")),
        Promise(),
    ),
    Mutant(
        "expiry by the node's clock",
        {
            "store/sql/node/heartbeat.sql": [
                ("expires_at = now() + ttl", "expires_at = now() + ttl + $2 * interval '1 second'")
            ]
        },
        ALIKE,
        (),
        Promise(rules=(unprovoked_evictions,)),
        with_a_clock_behind,
    ),
    Mutant(
        "a heartbeat that revives an evicted node",
        {
            "store/sql/node/heartbeat.sql": [
                ("UPDATE nodes SET", "INSERT INTO nodes (node, ttl, expires_at, host, pid, roles, version, tzdata)\n"
                 "SELECT $1, interval '1500 ms', now() + interval '1500 ms', '', 0, '{scheduler,worker}', '', ''\n"
                 "  FROM clock WHERE NOT stepped ON CONFLICT (node) DO UPDATE SET evicted = false,"),
                ("expires_at = now() + ttl", "expires_at = now() + nodes.ttl"),
                ("FROM clock WHERE node = $1 AND NOT evicted AND NOT stepped RETURNING", "RETURNING"),
            ]
        },
        ALIKE,
        (Fault(3.0, "stop", "n1", HOLD), Fault(9.0, "stop", "n2", HOLD)),
        Promise(takeovers=1),
    ),
    Mutant(
        "a tick whose reply was lost is not looked at again",
        {
            "scheduler/firing.py": [
                ("self._ticks.read_again(job, SHORTEST_PAUSE_MS if pause_ms is None else pause_ms)", "pass")
            ],
            "scheduler/missed_ticks.py": [("self._ticks.read_again(job, SHORTEST_PAUSE_MS)", "pass")],
            "scheduler/scheduler.py": [("SWEEP_EVERY = 10.0", "SWEEP_EVERY = 600.0")],
        },
        QUIET,
        (Fault(4.0, "cut", "n1", 5.0, "replies swallow"),),
        Promise(rules=Liveness(8.0, 12.0).rules),
        with_disturbances,
        32.0,
    ),
)  # fmt: skip
