"""Checks what was seen of enqueued runs. Pure functions: nothing here depends on how the record was made.

D1  every committed order has one run, and that run has one end       D5  unique keys: one unfinished run of each
D2  no run without a committed order: what was rolled back never ran  D6  concurrency keys: never more calls at once
D3  nothing is left waiting or open                                   D7  nothing is called before it is due
D4  a run is called again only after its last attempt was recorded    D8  calls get what their order gave
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from tests.support.fleet import logs
from tests.support.fleet.checker import CRASH_CAP, DEAD, EARLY_TOLERANCE, SUCCEEDED
from tests.support.fleet.records import Call
from tests.support.orders.records import EndedRun, Order, OrderBook
from tests.support.orders.tasks import BY_NAME

Rule = Callable[[OrderBook], list[str]]
SHOWN = 3
# A commit has its time before it is flushed, and is seen by others only after that.
SEEN_AFTER_COMMIT = 1.0
NODE, ENQUEUER = "n", "e"
# Callers of the higher isolation levels repeat their transactions. A deadlock would be of the product's making.
EXPECTED_SERVER_WORDS = ("could not serialize",)
# Of the task whose first calls fail there are more than a node that does not wait would log. The others are of a start
# without an answer from the database in time, which is away, or busy on a machine that has too much to do.
EXPECTED_NODE_WORDS = ("attempt failed, retry follows", "could not join", "unexpected connection_lost() call")


class OrderFigures(NamedTuple):
    orders: int
    created: int
    deduplicated: int
    rolled_back: int
    repeated_transactions: int
    node_kills: int
    enqueuer_kills: int
    calls: int
    repeated_calls: int
    lost_attempts: int
    dead: int
    waits_for_keys: int
    latest_start: float


class OrderVerdict(NamedTuple):
    """`untested` says why a record without violations proves nothing."""

    figures: OrderFigures
    violations: list[str]
    untested: list[str]

    @property
    def word(self) -> str:
        return "violated" if self.violations else "unknown" if self.untested else "ok"


def check(book: OrderBook) -> OrderVerdict:
    figures = measure(book)
    return OrderVerdict(figures, [line for rule in RULES for line in rule(book)], untested(figures))


def measure(book: OrderBook) -> OrderFigures:
    created = [order for order in book.orders if order.created]
    return OrderFigures(
        len(book.orders),
        len(created),
        len(book.orders) - len(created),
        len(book.rolled_back),
        len(book.repeated),
        sum(kill.place.startswith(NODE) for kill in book.kills),
        sum(kill.place.startswith(ENQUEUER) for kill in book.kills),
        len(book.calls),
        len(book.calls) - len({call.key for call in book.calls}),
        sum(attempt.outcome == "lost" for attempt in book.attempts),
        sum(run.status == DEAD for run in book.runs),
        waits_for_keys(book),
        max(first_starts(book), default=0.0),
    )


def untested(figures: OrderFigures) -> list[str]:
    seen = {
        "runs": figures.created,
        "runs that a unique key was answered with": figures.deduplicated,
        "runs of rolled-back transactions": figures.rolled_back,
        "transactions that were repeated": figures.repeated_transactions,
        "kills of nodes": figures.node_kills,
        "kills of enqueuers": figures.enqueuer_kills,
        "repeated calls": figures.repeated_calls,
        "lost attempts": figures.lost_attempts,
        "runs that waited for their concurrency key": figures.waits_for_keys,
    }
    return [f"proves nothing: there were no {what}" for what, count in seen.items() if not count]


# --- orders and runs ---


def orders_without_one_end(book: OrderBook) -> list[str]:
    """D1"""
    ends = Counter(run.run_id for run in book.runs)
    created = Counter(order.run_id for order in book.orders if order.created)
    found = _some("D1 runs of committed orders without an end", [run for run in created if not ends[run]])
    found += _some("D1 runs with two rows of history", [run for run, count in ends.items() if count > 1])
    return found + _some("D1 runs that two orders created", [run for run, count in created.items() if count > 1])


def runs_without_an_order(book: OrderBook) -> list[str]:
    """D2"""
    ordered = {order.run_id for order in book.orders if order.created}
    rolled_back = set(book.rolled_back)
    ticks = {call.run_id for call in book.calls if not _payload(call).get("order")}
    ended = {run.run_id for run in book.runs}
    called = {call.run_id for call in book.calls} - ticks
    found = _some("D2 ended runs without an order", ended - ordered)
    found += _some("D2 called runs without an order", called - ordered)
    return found + _some("D2 runs of rolled-back transactions", rolled_back & (ended | called | ordered))


def statuses(book: OrderBook) -> list[str]:
    """D1: all succeed, but a run whose nodes die again and again is given up in the end."""
    lost = Counter((each.job, each.scheduled_at, each.serial) for each in book.attempts if each.outcome == "lost")
    others = [
        f"{run.run_id} ({run.status}, {run.reason})"
        for run in book.runs
        if run.status != SUCCEEDED
        and not (run.status == DEAD and run.reason == "lost" and lost[_key_of(run)] >= CRASH_CAP)
    ]
    return _some("D1 runs that did not succeed", others)


def left_behind(book: OrderBook) -> list[str]:
    """D3"""
    return [f"D3 {count} rows were left in {table}" for table, count in book.left.items() if count]


# --- calls ---


def repeats(book: OrderBook) -> list[str]:
    """D4: tokens of a run rise, and each call but the last belongs to an attempt that was recorded as failed or lost.
    The run is settled once, under the token of its last call."""
    recorded: defaultdict[tuple[int, float, int], set[int]] = defaultdict(set)
    for attempt in book.attempts:
        if attempt.outcome != "stale":
            recorded[attempt.job, attempt.scheduled_at, attempt.serial].add(attempt.token)
    runs = {run.run_id: run for run in book.runs}
    found: list[str] = []
    for run_id, calls in _grouped(book.calls, lambda call: call.run_id).items():
        if run_id in runs:
            found += _judge_calls(runs[run_id], calls, recorded[_key_of(runs[run_id])])
    succeeded = {run.run_id for run in book.runs if run.status == SUCCEEDED}
    return found + _some("D4 runs that succeeded without a call", succeeded - {call.run_id for call in book.calls})


def _judge_calls(run: EndedRun, calls: Sequence[Call], recorded: set[int]) -> list[str]:
    found: list[str] = []
    if len({call.key for call in calls}) > 1:
        found.append(f"D4 {run.run_id} was called under two idempotency keys")
    for earlier, later in pairwise(calls):
        if later.token <= earlier.token:
            found.append(f"D4 {run.run_id} was called under {later.token} after {earlier.token}")
        if earlier.token not in recorded:
            found.append(f"D4 {run.run_id} was called again, but its attempt {earlier.token} is not recorded as over")
    if run.status == SUCCEEDED and calls[-1].token != run.token:
        found.append(f"D4 {run.run_id} was settled under {run.token}, but called last under {calls[-1].token}")
    return found


def early(book: OrderBook) -> list[str]:
    """D7"""
    return _some("D7 calls before their time", [call.run_id for call in book.calls if call.lateness < -EARLY_TOLERANCE])


def payloads(book: OrderBook) -> list[str]:
    """D8"""
    given = {order.run_id: (order.task, order.reference, order.customer) for order in book.orders if order.created}
    wrong = [
        call.run_id
        for call in book.calls
        if call.run_id in given
        and (call.job, _payload(call).get("order"), _payload(call).get("customer")) != given[call.run_id]
    ]
    return _some("D8 calls with the payload of another order", wrong)


def first_starts(book: OrderBook) -> list[float]:
    """How long each run without keys waited: from its time, or its commit if that came later, to its first call."""
    ready = {
        order.run_id: order.committed
        for order in book.orders
        if order.created and not BY_NAME[order.task].unique and BY_NAME[order.task].limit is None
    }
    first: dict[str, Call] = {}
    for call in book.calls:
        if call.run_id in ready:
            first.setdefault(call.run_id, call)
    return [call.at - max(call.scheduled_at, ready[run_id]) for run_id, call in first.items()]


# --- keys ---


def unique_keys(book: OrderBook) -> list[str]:
    """D5: the lives of the runs of one key, each from the commit of its order to that of its end, do not overlap."""
    ends = {run.run_id: run.committed for run in book.runs}
    found: list[str] = []
    created = [order for order in book.orders if order.created and order.unique_key is not None]
    for key, orders in _grouped(created, lambda order: (order.task, order.unique_key)).items():
        for earlier, later in pairwise(sorted(orders, key=lambda order: order.committed)):
            if ends.get(earlier.run_id, later.committed) >= later.committed:
                found.append(f"D5 {earlier.run_id} had not ended when {later.run_id} took its key {key}")
    return found


def answers_of_unique_keys(book: OrderBook) -> list[str]:
    """D5: a caller whose run is not created gets the run that has the key, and that had not ended when it asked."""
    created = {order.run_id: order for order in book.orders if order.created}
    ends = {run.run_id: run.committed for run in book.runs}
    found: list[str] = []
    for order in book.orders:
        if not order.created:
            found += _judge_answer(order, created.get(order.run_id), ends.get(order.run_id))
    return found


def _judge_answer(order: Order, holder: Order | None, ended: float | None) -> list[str]:
    if holder is None:
        return [f"D5 the order {order.reference} was answered with the run {order.run_id!r}, which nobody created"]
    if (holder.task, holder.unique_key) != (order.task, order.unique_key):
        return [f"D5 the order {order.reference} was answered with a run of another key"]
    if holder.committed > order.committed:
        return [f"D5 the order {order.reference} was answered with a run that was committed after it"]
    if ended is not None and ended < order.asked - SEEN_AFTER_COMMIT:
        return [
            f"D5 the order {order.reference} was answered with a run that had ended {order.asked - ended:.3f} s ago"
        ]
    return []


def concurrency_keys(book: OrderBook) -> list[str]:
    """D6, by what the target saw: from the arrival of a call to its answer."""
    return [
        f"D6 {most} calls at once of {key}, where {limit} are allowed"
        for (key, limit), calls in _by_limit(book).items()
        if (most := most_at_once(calls)) > limit
    ]


def waits_for_keys(book: OrderBook) -> int:
    """Runs that were ready while another call of their key was under way, and were called after it."""
    ready = {order.run_id: order.committed for order in book.orders if order.created}
    return sum(
        later.run_id != earlier.run_id
        and max(ready.get(later.run_id, later.at), later.scheduled_at) < (earlier.answered or earlier.at) <= later.at
        for calls in _by_limit(book).values()
        for earlier, later in pairwise(calls)
    )


def _by_limit(book: OrderBook) -> dict[tuple[str, int], list[Call]]:
    limited: defaultdict[tuple[str, int], list[Call]] = defaultdict(list)
    for call in book.calls:
        kind = BY_NAME[call.job]
        if (key := kind.key(str(_payload(call).get("customer", "")))) is not None and kind.limit is not None:
            limited[key, kind.limit].append(call)
    return limited


def most_at_once(calls: Iterable[Call]) -> int:
    changes = [(call.at, 1) for call in calls] + [(call.answered or call.at, -1) for call in calls]
    most = now = 0
    for _, change in sorted(changes):  # an end before a begin of the same moment
        now += change
        most = max(most, now)
    return most


# --- what was said ---


def said(book: OrderBook) -> list[str]:
    nodes = {name: _without(EXPECTED_NODE_WORDS, text) for name, text in book.logs.items() if "." in name}
    servers = {name: text for name, text in book.logs.items() if "." not in name}
    found = [f"log {line}" for line in logs.faults(nodes)]
    for name, text in servers.items():
        found += [f"log {line}" for line in logs.server_faults(name, _without(EXPECTED_SERVER_WORDS, text))]
    return found + [f"{name} ended although the test did not end it" for name in book.gone]


def audited(book: OrderBook) -> list[str]:
    audit = book.audit
    return [f"detent audit ended with code {audit.code}: {audit.text}"] if audit is not None and audit.code else []


RULES: tuple[Rule, ...] = (
    orders_without_one_end,
    runs_without_an_order,
    statuses,
    left_behind,
    repeats,
    early,
    payloads,
    unique_keys,
    answers_of_unique_keys,
    concurrency_keys,
    said,
    audited,
)


def _without(words: Iterable[str], text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not any(word in line for word in words))


def _key_of(run: EndedRun) -> tuple[int, float, int]:
    return run.job, run.scheduled_at, run.serial


def _payload(call: Call) -> dict[str, Any]:
    payload = msgspec.json.decode(call.body)
    return payload if isinstance(payload, dict) else {}


def _some(what: str, items: Iterable[str]) -> list[str]:
    listed = sorted(items)
    return [f"{what}: {len(listed)}, such as {', '.join(listed[:SHOWN])}"] if listed else []


def _grouped(items: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    groups: defaultdict[Any, list[Any]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups
