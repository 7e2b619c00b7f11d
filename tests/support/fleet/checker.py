"""Checks a record and returns its violations. Pure functions: nothing here depends on how the record was made.

Every rule is a function `Record -> violations`, named as in the list of invariants:

    I1  every tick has exactly one row            I7  the last token granted is the one that was settled under
    I2  no two rows share a tick                  I8  an evicted node writes nothing that comes after its eviction
    I3  nothing is left open                      I9  terms of a partition rise, one holder each
    I4  one key for each run, one run for a key   I10 nothing happens before its time
    I5  every run was called; one effect per key  I11 nothing starts later than promised
    I6  tokens of a run rise with every grant     log: it has no unexpected line

The expected ticks are counted here, only from the clock: every full second between registration and pause.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

import msgspec

from tests.support.fleet import logs
from tests.support.fleet.records import Attempt, Call, Record, Run

SUCCEEDED, DEAD, CANCELLED, SKIPPED, MISSED = 1, 2, 3, 4, 5
CRASH_CAP = 3
# A node's idea of the database's time is a lower bound, a heartbeat's round trip behind at most.
CLOCK_TOLERANCE = 0.2
EARLY_TOLERANCE = 0.001
# `at` of an election is when its statement began, and a statement may have waited for another.
STATEMENT_SECONDS = 2.4
DATABASE_AWAY = ("restart-database", "kill-backend", "promote")
# Between the commit of an eviction and the line that tells of it.
TELLING_SECONDS = 0.5

# A quarter of 256, and three standard deviations either way.
FEWEST_MOVED, MAX_MOVED = 43, 85

RunKey = tuple[int, float, int]
Rule = Callable[[Record], list[str]]
Item = TypeVar("Item")
Key = TypeVar("Key")


class Figures(NamedTuple):
    """What was measured; the columns of the table."""

    faults: int
    ticks: int
    takeovers: int
    rescues: int
    refused: int
    repeated: int
    latest: float


class Verdict(NamedTuple):
    """`untested` says why a run without violations proves nothing."""

    figures: Figures
    violations: list[str]
    untested: list[str]

    @property
    def word(self) -> str:
        return "violated" if self.violations else "unknown" if self.untested else "ok"


class Promise(NamedTuple):
    """What a scenario must keep, and what must have happened in it for that to mean something."""

    latest: float | None = None
    takeovers: int = 0
    rescues: int = 0
    refused: int = 0
    repeated: int = 0
    statuses: tuple[int, ...] = (SUCCEEDED,)
    # Rules of the scenario's own, and the rules that hold in all others.
    rules: tuple[Rule, ...] = ()
    common: tuple[Rule, ...] | None = None


def check(record: Record, promise: Promise) -> Verdict:
    common = RULES if promise.common is None else promise.common
    violations = [line for rule in common for line in rule(record)]
    violations += unexpected_statuses(record, promise.statuses)
    violations += [line for rule in promise.rules for line in rule(record)]
    if promise.latest is not None:
        violations += late_starts(record, promise.latest)
    figures = measure(record)
    return Verdict(figures, violations, untested(record, figures, promise))


def measure(record: Record) -> Figures:
    lateness = judged_lateness(record)
    return Figures(
        len(record.done),
        sum(len(job.due()) for job in record.jobs),
        len(taken_over(record)),
        sum(attempt.outcome in ("lost", "stale") for attempt in record.tables.attempts),
        refused_writes(record),
        len(record.calls) - len({call.key for call in record.calls}),
        max(lateness.values(), default=0.0),
    )


def untested(record: Record, figures: Figures, promise: Promise) -> list[str]:
    """A run in which nothing was tested proves nothing."""
    found = [
        f"{count} {what} where at least {least} were to be seen"
        for what, count, least in (
            ("take-overs", figures.takeovers, promise.takeovers),
            ("rescued runs", figures.rescues, promise.rescues),
            ("refused writes", figures.refused, promise.refused),
            ("repeated calls", figures.repeated, promise.repeated),
        )
        if count < least
    ]
    if figures.faults < len(record.plan.faults):
        found.append(f"{figures.faults} of {len(record.plan.faults)} faults were carried out")
    if figures.ticks < 0.9 * sum(record.plan.seconds // job.every for job in record.jobs):
        found.append(f"only {figures.ticks} ticks came due")
    return found


# --- the ledger ---


def ticks_of(run: Run, every: int = 1) -> list[int]:
    """A range of missed ticks stands for each of them."""
    return [int(run.scheduled_at) + number * every for number in range(run.ticks or 1)]


def by_job(record: Record) -> dict[int, Counter[int]]:
    """For every job, how many rows each of its ticks has, finished or open."""
    every = {job.number: job.every for job in record.jobs}
    rows: dict[int, Counter[int]] = defaultdict(Counter)
    for run in record.tables.runs:
        if run.serial == 0 and run.job in every:
            rows[run.job].update(ticks_of(run, every[run.job]))
    for open_run in record.tables.open_runs:
        if open_run.serial == 0 and open_run.job in every:
            rows[open_run.job][int(open_run.scheduled_at)] += 1
    return rows


def lost_or_foreign_ticks(record: Record) -> list[str]:
    """I1"""
    rows = by_job(record)
    found: list[str] = []
    for job in record.jobs:
        have = rows[job.number].keys()
        found += _summary(f"I1 {job.name}: ticks without a row", job.due() - have)
        found += _summary(f"I1 {job.name}: rows without a tick", have - job.possible())
    return found


def doubled_ticks(record: Record) -> list[str]:
    """I2"""
    found: list[str] = []
    for job, counts in by_job(record).items():
        found += _summary(f"I2 job {job}: ticks with two rows", {tick for tick, count in counts.items() if count > 1})
    return found


def unexpected_statuses(record: Record, statuses: Iterable[int]) -> list[str]:
    """A tick that was due and not yet fired when the pause came is given up by it, and says so."""
    others = Counter(
        (run.status, run.reason)
        for run in record.tables.runs
        if run.status not in tuple(statuses) and run.reason != "paused"
    )
    return [f"I1 {count} runs with status {status} ({reason})" for (status, reason), count in others.items()]


def given_up_too_soon(record: Record) -> list[str]:
    """A run that is dead because its nodes died was tried as often as promised."""
    lost = Counter(_attempt_key(attempt) for attempt in record.tables.attempts if attempt.outcome in ("lost", "stale"))
    return [
        f"{run.run_id} was given up after {lost[run.job, run.scheduled_at, run.serial]} lost attempts"
        for run in record.tables.runs
        if run.status == DEAD and (run.reason != "lost" or lost[run.job, run.scheduled_at, run.serial] <= CRASH_CAP)
    ]


def left_open(record: Record) -> list[str]:
    """I3"""
    owners = Counter(run.owner for run in record.tables.open_runs)
    return [f"I3 {count} runs were left open, held by node {owner}" for owner, count in owners.items()]


def _summary(what: str, ticks: Iterable[int]) -> list[str]:
    listed = sorted(ticks)
    return [f"{what}: {len(listed)}, from {listed[0]} to {listed[-1]}"] if listed else []


# --- calls ---


def keys(record: Record) -> list[str]:
    """I4"""
    found: list[str] = []
    for key, calls in _grouped(record.calls, lambda call: call.key).items():
        if len({call.run_id for call in calls}) > 1:
            found.append(f"I4 two runs under the key {key}")
        if len({call.body for call in calls}) > 1:
            found.append(f"I4 two payloads under the key {key}")
        if len({call.effect for call in calls if call.effect}) > 1:
            found.append(f"I5 two effects under the key {key}")
    for run, calls in _grouped(record.calls, lambda call: call.run_id).items():
        if len({call.key for call in calls}) > 1:
            found.append(f"I4 two keys of the run {run}")
    return found


def effects(record: Record) -> list[str]:
    """I5: every run that succeeded was called, and its result is the one effect of its key."""
    calls = _grouped(record.calls, lambda call: call.run_id)
    ours = {job.number for job in record.jobs}
    found: list[str] = []
    for run in record.tables.runs:
        if run.status != SUCCEEDED or run.job not in ours:
            continue
        made = calls.get(run.run_id, [])
        if not made:
            found.append(f"I5 the run {run.run_id} succeeded without a call")
        elif _words(run.result) != next((call.effect for call in made if call.effect), ""):
            found.append(f"I5 the run {run.run_id} has another result than its effect")
    return found


def _words(result: str | None) -> str:
    return "" if result is None else str(msgspec.json.decode(result)["body"])


def early(record: Record) -> list[str]:
    """I10"""
    found = [
        f"I10 {call.job} was called {-call.lateness:.3f} s before its tick {call.scheduled_at:.0f}"
        for call in record.calls
        if call.lateness < -EARLY_TOLERANCE
    ]
    found += [
        f"I10 the run {run.run_id} started before its time"
        for run in record.tables.runs
        if run.started_at is not None and run.started_at < run.scheduled_at - EARLY_TOLERANCE
    ]
    return found


def first_lateness(record: Record) -> dict[tuple[str, float], float]:
    """For each tick, how late its first call came."""
    first: dict[tuple[str, float], float] = {}
    for call in record.calls:
        tick = (call.job, call.scheduled_at)
        first[tick] = min(first.get(tick, call.lateness), call.lateness)
    return first


def judged_lateness(record: Record) -> dict[tuple[str, float], float]:
    """While there is no database nothing can start, however long its recovery takes: the time counts from then on."""
    away = [(done.begun, done.ended) for done in record.done if done.fault.action in DATABASE_AWAY]
    judged: dict[tuple[str, float], float] = {}
    for (job, at), lateness in first_lateness(record).items():
        back = max((end for begin, end in away if begin - record.ttl < at < end < at + lateness), default=at)
        judged[job, at] = lateness - (back - at)
    return judged


def late_starts(record: Record, latest: float) -> list[str]:
    """I11"""
    late = {tick: lateness for tick, lateness in judged_lateness(record).items() if lateness > latest}
    if not late:
        return []
    (job, at), worst = max(late.items(), key=lambda item: item[1])
    return [f"I11 {len(late)} ticks started later than {latest:.3g} s; the worst {job} at {at:.0f}: {worst:.3f} s"]


# --- tokens ---


def tokens(record: Record) -> list[str]:
    """I6, I7: grants in the order of their tokens do not overlap in time, and the last one is the one that counts."""
    found: list[str] = []
    attempts = _grouped(record.tables.attempts, _attempt_key)
    calls = _grouped(record.calls, lambda call: call.run_id)
    for run in record.tables.runs:
        made = calls.get(run.run_id, [])
        tried = sorted(attempts.get((run.job, run.scheduled_at, run.serial), []), key=lambda attempt: attempt.token)
        found += _judge_calls(run, made)
        found += _judge_attempts(run, tried)
    return found


def _judge_calls(run: Run, made: Sequence[Call]) -> list[str]:
    if run.token is None:
        return []
    granted = [call.token for call in made]
    found = [f"I6 a token of the run {run.run_id} was used for two calls"] if len(granted) != len(set(granted)) else []
    if run.status == SUCCEEDED and granted and max(granted) != run.token:
        found.append(f"I7 the run {run.run_id} was settled under {run.token}, but called under {max(granted)}")
    return found


def _judge_attempts(run: Run, tried: Sequence[Attempt]) -> list[str]:
    """A lost attempt ends when the run is taken from its node; no other node may have begun before."""
    found = [
        f"I6 {run.run_id}: token {later.token} began before token {earlier.token} was over"
        for earlier, later in pairwise(tried)
        if later.started_at is not None and later.started_at < earlier.finished_at - CLOCK_TOLERANCE
    ]
    lost = [attempt for attempt in tried if attempt.outcome in ("lost", "stale")]
    if run.token is not None and lost and run.status == SUCCEEDED:
        last = lost[-1]
        if last.token >= run.token:
            found.append(f"I7 {run.run_id} was settled under {run.token} after {last.token} was lost")
        if run.started_at is not None and run.started_at < last.finished_at - CLOCK_TOLERANCE:
            found.append(f"I6 {run.run_id} began again before it was taken from its node")
    return found


def _attempt_key(attempt: Attempt) -> RunKey:
    return attempt.job, attempt.scheduled_at, attempt.serial


# --- leadership ---


def terms(record: Record) -> list[str]:
    """I9"""
    found: list[str] = []
    by_partition = _grouped(record.tables.elections, lambda election: election.partition)
    for partition, elections in by_partition.items():
        for earlier, later in pairwise(elections):
            if later.term <= earlier.term:
                found.append(f"I9 partition {partition}: term {later.term} after {earlier.term}")
            elif later.at < earlier.at - STATEMENT_SECONDS:
                found.append(f"I9 partition {partition}: term {later.term} was given before {earlier.term}")
    for row in record.tables.partitions:
        last = by_partition.get(row.partition, [])[-1:]
        if last and (row.term != last[0].term or row.holder not in (None, last[0].node)):
            found.append(f"I9 partition {row.partition} is not as its last election says")
    return found


def written_by_the_dead(record: Record) -> list[str]:
    """I8: an evicted node takes no partition, and settles no run whose tick came only after its eviction."""
    found: list[str] = []
    for node, process, at in logs.evictions(logs.events(record.logs)):
        taken = [e for e in record.tables.elections if e.node == node and e.at > at + TELLING_SECONDS]
        settled = [r for r in record.tables.runs if r.node == node and r.scheduled_at > at + TELLING_SECONDS]
        if taken:
            found.append(f"I8 {process} took {len(taken)} partitions as node {node:x}, which had been evicted")
        if settled:
            found.append(f"I8 {process} settled {len(settled)} runs as node {node:x}, which had been evicted")
    return found


def taken_over(record: Record) -> list[int]:
    """Evicted nodes of whose partitions another node took at least one afterwards."""
    evictions = logs.evictions(logs.events(record.logs))
    evicted = {eviction.node: _by_our_clock(eviction.at, record) for eviction in evictions}
    found: set[int] = set()
    for elections in _grouped(record.tables.elections, lambda election: election.partition).values():
        for earlier, later in pairwise(elections):
            if earlier.node in evicted and later.node != earlier.node and later.at > evicted[earlier.node] - 1:
                found.add(earlier.node)
    return sorted(found)


def _by_our_clock(at: float, record: Record) -> float:
    """A log's time may be that of a node whose clock is wrong by hours."""
    return at if at <= record.ended else at - HOUR * math.ceil((at - record.ended) / HOUR)


def unprovoked_evictions(record: Record) -> list[str]:
    """A node that nothing was done to has not been given up by the others."""
    touched = {done.fault.target: done for done in record.done}
    return [
        f"{eviction.process} was evicted although nothing was done to it"
        for eviction in logs.evictions(logs.events(record.logs))
        if eviction.process.partition(".")[0] not in touched
    ]


def moves(record: Record) -> list[str]:
    """A node that joins gets about its share of the partitions, by one election each, and no other node gets any."""
    found: list[str] = []
    names = logs.identities(logs.events(record.logs))
    (join,) = (done for done in record.done if done.fault.action == "join")
    (leave,) = (done for done in record.done if done.fault.action == "leave")
    taken = [e for e in record.tables.elections if join.begun < e.at < leave.begun]
    newcomers = [e for e in taken if names.get(e.node, "?").partition(".")[0] == join.fault.target]
    if not FEWEST_MOVED <= len(newcomers) <= MAX_MOVED:
        found.append(f"{join.fault.target} got {len(newcomers)} of 256 partitions where a quarter was to be expected")
    if len(taken) != len(newcomers):
        found.append(f"{len(taken) - len(newcomers)} partitions changed hands that {join.fault.target} did not get")
    if leave.note != "exit code 0":
        found.append(f"{leave.fault.target} ended with {leave.note}")
    return found


def refused_writes(record: Record) -> int:
    """Writes that came too late and were refused: results, and fires of a node that had been evicted meanwhile."""
    said = list(logs.events(record.logs))
    stale = sum(attempt.outcome == "stale" for attempt in record.tables.attempts)
    fires = sum(event.fields["jobs"] for event in said if event.name.startswith("fires refused"))
    return stale + fires


# --- what was said ---


def said(record: Record) -> list[str]:
    """Nodes and servers may warn; they may not be surprised."""
    nodes = {name: text for name, text in record.logs.items() if "." in name}
    servers = {name: text for name, text in record.logs.items() if "." not in name}
    found = [f"log {line}" for line in logs.faults(nodes)]
    found += [f"log {line}" for name, text in servers.items() for line in logs.server_faults(name, text)]
    return found + [f"{name} ended although the test did not end it" for name in record.gone]


def audited(record: Record) -> list[str]:
    """The product computes the ticks anew, from what it knows of its jobs, and must come to the same end as we do."""
    audit = record.audit
    return [f"detent audit ended with code {audit.code}: {audit.text}"] if audit is not None and audit.code else []


HOUR = 3600.0

RULES: tuple[Rule, ...] = (
    lost_or_foreign_ticks,
    doubled_ticks,
    left_open,
    keys,
    effects,
    early,
    tokens,
    terms,
    written_by_the_dead,
    said,
    audited,
)


def _grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    groups: defaultdict[Key, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups
