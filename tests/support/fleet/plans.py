"""What shall happen to a cluster: drawn from a seed before the run, written down, and replayed from the file."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

SCHEDULERS = ("s1", "s2", "s3")
WORKERS = ("w1", "w2")
# Longer than the time to live of a lease, so that every stop ends in an eviction.
SHORTEST_STOP, LONGEST_STOP = 1.2, 1.8


class Fault(msgspec.Struct, frozen=True):
    """One thing to do: when (seconds after the first tick), to whom, for how long, and how."""

    at: float
    action: str
    target: str = ""
    seconds: float = 0.0
    detail: str = ""


class Plan(msgspec.Struct, frozen=True):
    scenario: str
    seed: int
    seconds: float
    faults: tuple[Fault, ...]

    def write(self, path: Path) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")

    @staticmethod
    def read(path: Path) -> Plan:
        return msgspec.json.decode(path.read_bytes(), type=Plan)


class Chance(random.Random):
    """The dice of one plan: the scenario's name is part of the seed, so that two scenarios draw differently."""

    def __init__(self, scenario: str, seed: int) -> None:
        super().__init__(f"{scenario} {seed}")

    def rounded(self, low: float, high: float) -> float:
        return round(self.uniform(low, high), 1)

    def amid_runs(self, low: int, high: int) -> float:
        """A moment in one of these seconds at which the slow ones of its runs are under way."""
        return self.randint(low, high) + self.rounded(0.1, 0.3)

    def everybody(self, members: Sequence[str], count: int) -> list[str]:
        """Members in random order, but each once before any is repeated, so that every run disturbs every role."""
        drawn: list[str] = []
        while len(drawn) < count:
            drawn += self.sample(members, len(members))
        return drawn[:count]


def moments(seconds: float, first: float, every: float) -> list[float]:
    """When to act: the last one early enough for what it breaks to be put right before the end."""
    count = int((seconds - first) // every)
    return [first + number * every for number in range(count)]


def kills(chance: Chance, seconds: float, ttl: float) -> list[Fault]:
    at = moments(seconds, 6.0, 10.0)
    victims = chance.everybody([*SCHEDULERS, *WORKERS], len(at))
    return [
        Fault(moment + chance.rounded(*_part_of_second(victim)), "kill", victim, chance.rounded(0.0, ttl / 2))
        for moment, victim in zip(at, victims, strict=True)
    ]


def _part_of_second(victim: str) -> tuple[float, float]:
    """A worker dies amid the slow ones of a second's runs: at any moment, one seed in five found no run to rescue."""
    return (0.1, 0.3) if victim in WORKERS else (0.0, 0.9)


# Where a process can be made to stop itself, with the hits to choose from. S3: ticks planned, not sent. S4: fired, not
# committed. S5: committed, reply unseen. W1: about to claim. W2: claimed, reply unseen. W4: called, not settled.
SCHEDULER_STEPS = {"S4": (2, 4), "S3": (2, 4), "S5": (2, 4)}
WORKER_STEPS = {"W4": (50, 300), "W1": (3, 12), "W2": (2, 6)}


def stops(chance: Chance, seconds: float, ttl: float) -> list[Fault]:
    """Stopped by themselves at the steps where it hurts most, and from outside at any moment. Schedulers and workers
    take turns: a stop lasts longer than the time between two, and one process of each role must be left."""
    steps = [[*_shuffled(chance, SCHEDULER_STEPS), ""], [*_shuffled(chance, WORKER_STEPS), ""]]
    hits = SCHEDULER_STEPS | WORKER_STEPS
    faults: list[Fault] = []
    for number, moment in enumerate(moments(seconds, 4.0, 10.0)):
        role, turn = number % 2, number // 2
        step = steps[role][turn % len(steps[role])]
        target = chance.choice((SCHEDULERS, WORKERS)[role])
        hold = chance.rounded(SHORTEST_STOP * ttl, LONGEST_STOP * ttl)
        if step:
            faults.append(Fault(moment, "stop-at", target, hold, f"{step}=stop@{chance.randint(*hits[step])}"))
        else:
            faults.append(Fault(moment, "stop", target, hold))
    return faults


def _shuffled(chance: Chance, steps: Iterable[str]) -> list[str]:
    names = sorted(steps)
    return chance.sample(names, len(names))


CUTS = tuple(f"{which} {how}" for which in ("requests", "replies", "both") for how in ("hold", "swallow"))
DATABASE_FAULTS = (("restart-database", "fast"), ("kill-backend", ""), ("restart-database", "immediate"))


def cuts(chance: Chance, seconds: float, ttl: float) -> list[Fault]:
    """Every manner of cutting, schedulers and workers in turn; in the last third it is the database itself."""
    at = moments(seconds, 4.0, 10.0)
    manners = chance.sample(CUTS, len(CUTS))
    faults = [
        Fault(
            moment + chance.rounded(0.1, 0.3),  # amid the slow ones of a second's runs
            "cut",
            chance.choice((SCHEDULERS, WORKERS)[number % 2]),
            chance.rounded(SHORTEST_STOP * ttl, LONGEST_STOP * ttl),
            manners[number % len(manners)],
        )
        for number, moment in enumerate(at[:-3])
    ]
    blows = chance.sample(DATABASE_FAULTS, len(DATABASE_FAULTS))
    return faults + [Fault(moment, action, detail=how) for moment, (action, how) in zip(at[-3:], blows, strict=True)]


def joins(_chance: Chance, _seconds: float, _ttl: float) -> list[Fault]:
    """A fourth scheduler comes; later one of the first three goes."""
    return [Fault(12.0, "join", "s4"), Fault(24.0, "leave", "s2")]


STORM_STEPS = {**SCHEDULER_STEPS, **WORKER_STEPS, "S6": (2, 4), "W3": (20, 100), "W5": (2, 8), "W6": (2, 8)}
MEMBERS = ("n1", "n2", "n3", "n4")


def storms(chance: Chance, seconds: float, ttl: float) -> list[Fault]:
    """Anything, one thing upon another; a place that is still busy with its last fault is left alone."""
    faults: list[Fault] = []
    busy = dict.fromkeys(MEMBERS, 0.0)
    at = 3.0
    while at < seconds - 2 * ttl:
        idle = [member for member, until in busy.items() if until <= at]
        if chance.random() < DATABASE_SHARE:
            action, how = chance.choice(DATABASE_FAULTS)
            faults.append(Fault(round(at, 1), action, detail=how))
            at += 4.0
        elif idle:
            fault = _storm_fault(chance, round(at, 1), chance.choice(idle), ttl)
            busy[fault.target] = at + fault.seconds + REPLACING_SECONDS
            faults.append(fault)
        at += chance.uniform(0.5, 4.0)
    return faults


# How often it is the database, and how long a polite replacement and its failpoint may take.
DATABASE_SHARE = 0.1
REPLACING_SECONDS = 8.0


def _storm_fault(chance: Chance, at: float, target: str, ttl: float) -> Fault:
    hold = chance.rounded(0.3 * ttl, 3 * ttl)
    match chance.choice(("kill", "stop", "cut", "stop-at", "stop-at")):
        case "kill":
            return Fault(at, "kill", target, hold)
        case "stop":
            return Fault(at, "stop", target, hold)
        case "cut":
            return Fault(at, "cut", target, hold, chance.choice(CUTS))
        case _:
            step = chance.choice(sorted(STORM_STEPS))
            action = chance.choice(("stop", "exit")) if step != "S6" else "exit"
            kind = "stop-at" if action == "stop" else "exit-at"
            return Fault(at, kind, target, hold, f"{step}={action}@{chance.randint(*STORM_STEPS[step])}")
