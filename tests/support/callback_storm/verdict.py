"""What a storm of callbacks left behind, and the rules that judge it. Pure: it knows nothing about the product.

Each run ends once: with a report of its target that was answered 200, under the token of its last attempt. A late
report is refused as stale, and recorded so; a forged one is refused; a doubled one gets the answer of the first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

FORGED = ("forged", "of another run", "without credential", "of another token")
GENUINE = ("early", "plain", "after heartbeats", "doubled", "contrary", "late", "failure")
REFUSED = (401, 403, 409)
STALE = "/problems/stale"


class Called(NamedTuple):
    """A call that the target got."""

    run: str
    attempt: int
    token: int


class Reported(NamedTuple):
    """A report that the target sent, and its answer. `kind`: why it was sent, `result`: what it said."""

    run: str
    token: int
    verb: str
    kind: str
    status: int
    problem: str = ""
    answer: str = ""
    result: str = ""


class EndedRun(NamedTuple):
    """A row of the history."""

    run: str
    status: str
    token: int
    result: str


class RecordedAttempt(NamedTuple):
    run: str
    token: int
    outcome: str


class StormRecord(NamedTuple):
    """`runs`: the ids that were enqueued. `unfinished`: how many are left. `kills`: of nodes."""

    runs: Sequence[str]
    calls: Sequence[Called]
    reports: Sequence[Reported]
    history: Sequence[EndedRun]
    attempts: Sequence[RecordedAttempt]
    unfinished: int = 0
    kills: int = 0
    lost_with_node: int = 0


class StormVerdict(NamedTuple):
    violations: list[str]
    untested: list[str]
    figures: dict[str, int]

    @property
    def ok(self) -> bool:
        return not self.violations and not self.untested


def judge(record: StormRecord) -> StormVerdict:
    found = [*_ends(record), *_forged(record), *_late(record), *_doubled(record), *_contrary(record)]
    return StormVerdict(found, list(_untested(record)), _figures(record))


def _ends(record: StormRecord) -> Iterator[str]:
    """Every run has one end, which is that of the one report that was accepted."""
    if record.unfinished:
        yield f"{record.unfinished} runs have not ended"
    ended = Counter(row.run for row in record.history)
    yield from (f"{run} has {ended[run]} ends" for run in record.runs if ended[run] != 1)
    yield from (f"{run} was not enqueued" for run in ended.keys() - set(record.runs))
    accepted: defaultdict[str, set[tuple[int, str]]] = defaultdict(set)
    for report in record.reports:
        if report.verb == "complete" and report.status == 200:
            accepted[report.run].add((report.token, report.result))
    latest: defaultdict[str, int] = defaultdict(int)
    for call in record.calls:
        latest[call.run] = max(latest[call.run], call.token)
    for row in record.history:
        if row.status != "succeeded":
            yield f"{row.run} is {row.status}"
        elif accepted[row.run] != {(row.token, row.result)}:
            yield f"{row.run} ended under {row.token} with {row.result}, and accepted were {sorted(accepted[row.run])}"
        elif row.token != latest[row.run]:
            yield f"{row.run} ended under {row.token}, and was called again under {latest[row.run]}"


def _forged(record: StormRecord) -> Iterator[str]:
    for report in record.reports:
        if report.kind in FORGED and report.status not in REFUSED:
            yield f"a report {report.kind} about {report.run} was answered {report.status}"


def _late(record: StormRecord) -> Iterator[str]:
    """Late reports are refused as stale; the attempt that was given up says so."""
    outcomes = {(attempt.run, attempt.token): attempt.outcome for attempt in record.attempts}
    for report in record.reports:
        if report.kind != "late":
            continue
        if (report.status, report.problem) != (409, STALE):
            yield f"a late report about {report.run} was answered {report.status} {report.problem}"
        if outcomes.get((report.run, report.token)) != "stale":
            yield f"the late report about {report.run} is recorded as {outcomes.get((report.run, report.token))}"


def _doubled(record: StormRecord) -> Iterator[str]:
    """Both copies get the same answer."""
    answers: defaultdict[tuple[str, int], set[tuple[int, str]]] = defaultdict(set)
    for report in record.reports:
        if report.kind == "doubled":
            answers[report.run, report.token].add((report.status, report.answer))
    yield from (
        f"copies of a report about {run} got {sorted(got)}" for (run, _), got in answers.items() if len(got) > 1
    )


def _contrary(record: StormRecord) -> Iterator[str]:
    """Of a success and a failure under one token, one is accepted."""
    accepted: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    for report in record.reports:
        if report.status == 200 and report.verb in ("complete", "fail"):
            accepted[report.run, report.token].add(report.verb)
    yield from (
        f"{run} was completed and failed under {token}" for (run, token), both in accepted.items() if len(both) > 1
    )
    failed = {(attempt.run, attempt.token) for attempt in record.attempts if attempt.outcome == "failed"}
    for (run, token), verbs in accepted.items():
        if verbs == {"fail"} and (run, token) not in failed:
            yield f"the failure of {run} under {token} is not recorded"


def _untested(record: StormRecord) -> Iterator[str]:
    sent = Counter(report.kind for report in record.reports)
    yield from (f"no report was {kind}" for kind in (*GENUINE, *FORGED) if not sent[kind])
    if not record.kills:
        yield "no node was killed"
    if not record.lost_with_node:
        yield "no run was lost with its node"
    if not any(report.verb == "heartbeat" and report.status == 200 for report in record.reports):
        yield "no heartbeat was answered"


def _figures(record: StormRecord) -> dict[str, int]:
    sent = Counter(report.kind for report in record.reports)
    refused = Counter(report.status for report in record.reports if report.kind in FORGED)
    outcomes = Counter(attempt.outcome for attempt in record.attempts)
    return {
        "runs": len(record.runs),
        "calls": len(record.calls),
        "nodes killed": record.kills,
        "runs lost with their node": record.lost_with_node,
        "heartbeats": sum(report.verb == "heartbeat" for report in record.reports),
        **{f"reports, {kind}": sent[kind] for kind in (*GENUINE, *FORGED)},
        **{f"forged reports answered {status}": count for status, count in sorted(refused.items())},
        **{f"attempts recorded as {outcome}": count for outcome, count in sorted(outcomes.items())},
    }
