"""Clocks that are wrong: of a node, or of the database's server. Set by libfaketime, which Debian brings.

The monotonic clock is not changed, as when an operator sets a machine's time.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.fleet import checker
from tests.support.fleet.plans import Chance, Fault
from tests.support.fleet.records import Record
from tests.support.fleet.servers import install_faketime
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.fleet.driver import Stage

INSTALL = "apt-get install -y faketime"
AHEAD = "+2h"
DAY = 86_400.0
# For a moment after the step, what was claimed before may still be called.
IN_FLIGHT_SECONDS = 2.0
LATE_SECONDS = 60.0


class MissingError(Exception):
    """Something that this machine does not have; the text says how to get it."""


def library() -> Path:
    found = install_faketime()
    if found is None:
        raise MissingError(f"libfaketime is not here: {INSTALL}")
    return found


def faked(**variables: str) -> dict[str, str]:
    return {"LD_PRELOAD": str(library()), "FAKETIME_DONT_FAKE_MONOTONIC": "1", **variables}


async def with_wrong_nodes(stage: Stage) -> None:
    """A scheduler and a worker live two hours ahead."""
    for name in ("s1", "w1"):
        stage.fleet[name].variables |= faked(FAKETIME=AHEAD)


def wrong_nodes(chance: Chance, _seconds: float, ttl: float) -> list[Fault]:
    """They take over from others, and others from them."""
    return [
        Fault(chance.amid_runs(5, 8), "kill", chance.choice(["s2", "s3"]), ttl),
        Fault(chance.amid_runs(18, 20), "kill", "s1", ttl),
        Fault(chance.amid_runs(30, 32), "kill", "w1", ttl),
    ]


# --- the database's clock ---


async def with_clock_to_set(stage: Stage) -> None:
    """The server reads its time from a file, which the fault `step-clock` changes."""
    setting = stage.folder / "clock"
    setting.write_text("+0\n")
    setting.chmod(0o644)
    variables = faked(FAKETIME_TIMESTAMP_FILE=str(setting), FAKETIME_NO_CACHE="1")
    stage.server.variables.update(variables)
    await stage.server.restart("fast")
    stage.nemesis.deeds["step-clock"] = ClockStep(stage, setting)


class ClockStep:
    """The fault `step-clock`: a step forward; after a while an operator resumes the ticks."""

    def __init__(self, stage: Stage, setting: Path) -> None:
        self._stage = stage
        self._setting = setting

    async def __call__(self, fault: Fault) -> str:
        self._setting.write_text(f"{fault.detail}\n")
        stage = self._stage
        async with stage.server.session() as look:
            held = await until(
                lambda: look.fetchval("SELECT held_reason FROM cluster WHERE held_at IS NOT NULL"),
                20,
                "the cluster to be held",
            )
        await asyncio.sleep(fault.seconds)
        await stage.fleet.command("resume", "--all", DETENT_API_URL=stage.client.url)
        return f"{time.time():.3f} {held}"


def clock_step(chance: Chance, _seconds: float, _ttl: float) -> list[Fault]:
    return [Fault(chance.rounded(8, 12), "step-clock", seconds=6.0, detail="+1d")]


def no_burst(record: Record) -> list[str]:
    """Between the step and the word to go on nothing is called. After it each job has its own ticks, and those of the
    last minute, which count as late and not as missed; what a stepped clock would owe are 86,400."""
    (step,) = (done for done in record.done if done.fault.action == "step-clock")
    resumed = float(step.note.split()[0])
    found: list[str] = []
    meanwhile = [call for call in record.calls if step.begun + IN_FLIGHT_SECONDS < call.at < resumed - 1]
    if meanwhile:
        found.append(f"{len(meanwhile)} calls came while the cluster was held")
    after = Counter(call.job for call in record.calls if call.at > resumed)
    if len(after) < len(record.jobs):
        found.append(f"only {len(after)} of {len(record.jobs)} jobs went on")
    most = LATE_SECONDS + record.ended - resumed
    bursts = {job: count for job, count in after.items() if count > most}
    return [*found, f"bursts: {bursts}"] if bursts else found


# Ticks cannot be counted by our clock here, nor can lateness be told by it; all else must hold.
RULES = (
    checker.doubled_ticks,
    checker.left_open,
    checker.keys,
    checker.effects,
    checker.terms,
    checker.said,
    checker.audited,
    no_burst,
)
