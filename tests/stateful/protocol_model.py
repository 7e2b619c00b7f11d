"""What the database should hold: the protocol again, as plain Python over a dictionary of ticks."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from detent.domain.identity import RunKey
from detent.domain.run import Claim
from detent.domain.states import RunStatus
from detent.store.nodes import CRASH_CAP
from tests.support.factories import LONG_AGO

QUEUE = 1
FIRST_TOKEN = 1 << 22 | 1
SECOND = timedelta(seconds=1)


def tick(number: int) -> datetime:
    return LONG_AGO + number * SECOND


@dataclass
class Run:
    """A live run."""

    key: RunKey
    lane: int
    once: bool
    token: int = FIRST_TOKEN
    owner: int | None = None
    attempt: int = 1
    crashes: int = 0
    alone: bool = False
    lost_alone: int = 0
    started: bool = False
    cancel: bool = False

    def row(self) -> tuple[object, ...]:
        counts = (self.attempt, self.crashes, self.lost_alone)
        return self.lane, self.token, self.owner, *counts, self.started, self.cancel


@dataclass
class Job:
    lanes: int
    once: bool
    generation: int = 1
    next_tick: int = 0


@dataclass
class Model:
    jobs: dict[int, Job]
    nodes: dict[int, bool] = field(default_factory=dict)  # False: evicted; gone: forgotten
    live: dict[RunKey, Run] = field(default_factory=dict)
    ended: dict[RunKey, tuple[RunStatus, int | None]] = field(default_factory=dict)
    grants: list[tuple[int, Claim]] = field(default_factory=list)

    def alive(self, node: int) -> bool:
        return self.nodes.get(node, False)

    def free_lane(self, number: int) -> int | None:
        taken = {run.lane for run in self.live.values() if run.key.job == number}
        return next((lane for lane in range(self.jobs[number].lanes) if lane not in taken), None)

    def held_by_the_living(self) -> list[Run]:
        return [run for run in self.live.values() if run.owner is not None and self.alive(run.owner)]

    def outlived(self) -> list[tuple[int, Claim]]:
        """Grants of runs that their node holds again, under a later token."""
        return [
            (node, claim)
            for node, claim in self.grants
            if (run := self.live.get(claim.key)) is not None and run.owner == node and run.token != claim.token
        ]

    def held(self, node: int, claim: Claim) -> Run | None:
        """The run this claim still holds, for this node."""
        run = self.live.get(claim.key)
        return run if run is not None and (run.owner, run.token) == (node, claim.token) else None

    def fire(self, node: int, number: int, hand_off: bool) -> tuple[int | None, str | None]:
        """Fire the job's tick, the cursor being as expected: the lane, and why there is none."""
        job = self.jobs[number]
        key = RunKey(number, tick(job.next_tick))
        job.next_tick += 1
        lane = self.free_lane(number)
        if lane is None:
            self.ended[key] = (RunStatus.SKIPPED, None)
            return None, "overlap"
        run = self.live[key] = Run(key, lane, job.once, owner=node if hand_off else None)
        if hand_off:
            self.grants.append((node, self.claim_of(run)))
        return lane, None

    def claimable(self) -> list[Run]:
        return [run for run in self.live.values() if run.owner is None]

    def claim(self, node: int, key: RunKey) -> Claim:
        run = self.live[key]
        run.owner, run.token = node, run.token + 1
        claim = self.claim_of(run)
        self.grants.append((node, claim))
        return claim

    def claim_of(self, run: Run) -> Claim:
        job, at, serial = run.key
        return Claim(job, run.lane, at, serial, run.token, 1, run.attempt, run.crashes, run.once, run.cancel, QUEUE)

    def start(self, node: int, claim: Claim, alone: bool = False) -> str | None:
        """Whether a run may be called; None if it is not this claim's any more."""
        run = self.held(node, claim)
        if run is None or run.cancel:
            return None if run is None else "cancel"
        if run.once and run.started:
            return "begun"
        run.started, run.alone = True, alone
        return "go"

    def end(self, run: Run, status: RunStatus) -> None:
        del self.live[run.key]
        self.ended[run.key] = (status, run.token)

    def retry(self, run: Run) -> None:
        if run.cancel:
            self.end(run, RunStatus.CANCELLED)
            return
        run.owner, run.started = None, False
        run.attempt += 1

    def give_back(self, run: Run) -> None:
        run.owner, run.started = None, False
        run.token += 1

    def rescue(self, node: int) -> set[RunKey]:
        """Free the runs of an evicted node."""
        if self.nodes.get(node, True):
            return set()
        rescued = [run for run in self.live.values() if run.owner == node]
        for run in rescued:
            self._lose(run)
        return {run.key for run in rescued}

    def _lose(self, run: Run) -> None:
        if run.started and (run.once or (run.alone and run.lost_alone + 1 >= CRASH_CAP)):
            self.end(run, RunStatus.DEAD)
        elif run.cancel:
            self.end(run, RunStatus.CANCELLED)
        else:
            run.attempt += run.started
            run.crashes += run.started or run.crashes == 0
            run.lost_alone += run.started and run.alone
            run.owner, run.started = None, False
            run.token += 1

    def cancel(self, key: RunKey) -> int | None:
        """Ask a live run to stop: its owner, or None if it ended here."""
        run = self.live[key]
        if run.owner is None:
            self.end(run, RunStatus.CANCELLED)
        else:
            run.cancel = True
        return run.owner

    def forgettable(self, node: int) -> bool:
        return not self.nodes.get(node, True) and not any(run.owner == node for run in self.live.values())
