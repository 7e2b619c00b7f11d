"""What must go on: on a node that nothing is wrong with, no tick that is due waits, and no run stays unfinished.

Safety is judged in `checker`, and lateness too, but under load: there the next event frees a tick that is stuck. Here a
record of a quiet cluster is judged. While it is disturbed, and for `recovery` seconds after, its node need not be
trusted, and nothing is expected; the time in between is calm. A tick is overdue when it was due and nothing came of it
during one stretch of calm of more than `oldest` seconds. All of it is counted from the clock and from what the target
saw, so a tick that the product itself has forgotten is found as well. Pure functions of the record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.support.fleet.records import Job, Record

Span = tuple[float, float]


class Liveness(NamedTuple):
    """What a scenario promises of its silence."""

    oldest: float
    recovery: float

    @property
    def rules(self) -> tuple[Callable[[Record], list[str]], ...]:
        return (self.due_ticks, self.open_runs, self.gaps)

    def due_ticks(self, record: Record) -> list[str]:
        """L1: a tick is called, or recorded as skipped or missed, soon after it is due."""
        seen = accounted_at(record)
        waits = (
            (job, tick, (float(tick), min(seen.get((job.name, tick), job.pausing), job.pausing)))
            for job in record.jobs
            for tick in job.due()
        )
        return self._overdue(record, "L1 {0} had a due tick ({1}) for {2:.1f} s on a trusted node", waits)

    def open_runs(self, record: Record) -> list[str]:
        """L2: a run ends: it is claimed, retried, promoted and settled, each without an event from outside."""
        ended = ended_at(record)
        waits = (
            (job, tick, (tick + job.takes, min(ended.get((job.name, tick), job.pausing), job.pausing)))
            for job in record.jobs
            for tick in job.due()
        )
        return self._overdue(record, "L2 {0}: the run of {1} was unfinished for {2:.1f} s on a trusted node", waits)

    def gaps(self, record: Record) -> list[str]:
        """L3: calls go on, whatever the clock of the database says: no stretch of calm without one."""
        waits = (
            (job, int(since), (since + job.every, until))
            for job in record.jobs
            for since, until in pairwise([job.registered, *_call_times(record, job), job.pausing])
        )
        return self._overdue(record, "L3 {0} was not called after {1} for {2:.1f} s more than its interval", waits)

    def _overdue(self, record: Record, sentence: str, waits: Iterable[tuple[Job, int, Span]]) -> list[str]:
        """The worst wait of each job, and how many there are."""
        disturbed = disturbances(record, self.recovery)
        worst: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for job, tick, wait in waits:
            calm = longest_calm(wait, disturbed)
            if calm > self.oldest:
                worst[job.name].append((calm, tick))
        return [
            f"{sentence.format(job, max(found)[1], max(found)[0])} ({len(found)} in all)"
            for job, found in worst.items()
        ]


def oldest_due(record: Record, recovery: float) -> float:
    """The longest that any tick was due in calm: the figure that `oldest` bounds."""
    seen, disturbed = accounted_at(record), disturbances(record, recovery)
    return max(
        (
            longest_calm((float(tick), min(seen.get((job.name, tick), job.pausing), job.pausing)), disturbed)
            for job in record.jobs
            for tick in job.due()
        ),
        default=0.0,
    )


def accounted_at(record: Record) -> dict[tuple[str, int], float]:
    """When something came of each tick: its first call, or the row that says how it ended without one."""
    seen = ended_at(record)
    for call in record.calls:
        if call.scheduled_at.is_integer():  # a run that was triggered stands for no tick
            tick = (call.job, int(call.scheduled_at))
            seen[tick] = min(seen.get(tick, call.at), call.at)
    return seen


def ended_at(record: Record) -> dict[tuple[str, int], float]:
    """When the row of each tick was written. A range of skipped or missed ticks stands for each of them."""
    jobs = {job.number: job for job in record.jobs}
    ended: dict[tuple[str, int], float] = {}
    for run in record.tables.runs:
        job = jobs.get(run.job)
        if job is not None and run.serial == 0:
            for number in range(run.ticks or 1):
                ended[job.name, int(run.scheduled_at) + number * job.every] = run.finished_at
    return ended


def _call_times(record: Record, job: Job) -> list[float]:
    """Repeated calls of a run do not count: they do not show that ticks still fire."""
    first: dict[str, float] = {}
    for call in record.calls:
        if call.job == job.name:
            first[call.key] = min(first.get(call.key, call.at), call.at)
    return sorted(at for at in first.values() if job.registered < at < job.pausing)


def disturbances(record: Record, recovery: float) -> list[Span]:
    """Joined where they overlap."""
    joined: list[Span] = []
    for begun, ended in sorted((done.begun, done.ended + recovery) for done in record.done):
        if joined and begun <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], ended))
        else:
            joined.append((begun, ended))
    return joined


def longest_calm(wait: Span, disturbed: Sequence[Span]) -> float:
    return max(0.0, *(until - since for since, until in _calm(wait, disturbed)))


def _calm(wait: Span, disturbed: Sequence[Span]) -> Iterator[Span]:
    since, until = wait
    for begun, ended in disturbed:
        if ended <= since:
            continue
        if begun >= until:
            break
        yield since, begun
        since = ended
    yield since, until
