"""Tests of the checker for enqueued runs: a record without a fault, and one for each kind of fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.support.fleet.records import Attempt, Audit, Call
from tests.support.orders.checker import check
from tests.support.orders.records import EndedRun, Kill, Order, OrderBook

T = 1_800_000_000.0
SERIAL = 201_326_592
change = msgspec.structs.replace


def order(number: int, at: float, task: str = "mail", **fields: Any) -> Order:
    made = Order(f"o{number}", task, "c1", f"run-{number}", True, None, "read_committed", T + at, T + at + 0.1)
    return change(made, **fields)


def run(number: int, ended: float, token: int = 2, **fields: Any) -> EndedRun:
    made = EndedRun(f"run-{number}", 1, T, SERIAL + number, token, 1, None, 1, T + ended, T + ended)
    return change(made, **fields)


def call(number: int, at: float, token: int = 2, task: str = "mail", **fields: Any) -> Call:
    body = json.dumps({"order": f"o{number}", "customer": "c1"})
    made = Call(f"key-{number}", f"run-{number}", task, T, 1, token, body, T + at, "effect", T + at + 0.3)
    return change(made, **fields)


def good() -> OrderBook:
    """Run 1 is called again after its node is killed. Runs 2 and 4 take one unique key in turn, and order 3 gets run 2.
    Runs 5 and 6 share a concurrency key."""
    unique = {"task": "invoice", "unique_key": "c1"}
    return OrderBook(
        1, T, T + 20,
        [
            order(1, 0),
            order(2, 1, **unique),
            order(3, 1.2, run_id="run-2", created=False, **unique),
            order(4, 3, **unique),
            order(5, 4, "solo"),
            order(6, 4, "solo"),
        ],
        [run(1, 6, 4), run(2, 2), run(4, 4), run(5, 5), run(6, 6)],
        [Attempt(1, T, SERIAL + 1, 2, 7, None, T + 5, 1, "lost")],
        [
            call(1, 1), call(1, 5.5, 4), call(2, 1.5, task="invoice"), call(4, 3.5, task="invoice"),
            call(5, 4.5, task="solo"), call(6, 4.9, task="solo"),
        ],
        [Kill("n1", T + 1.1), Kill("e1", T + 2, "W2=exit@5")],
        ["run-9"],
        ["serializable"],
        {"backlog": 0, "live_runs": 0},
        {"n1.1": "", "primary": "ERROR:  could not serialize access due to concurrent update"},
        [],
        Audit(0, ""),
    )  # fmt: skip


def broken(**fields: Any) -> OrderBook:
    return change(good(), **fields)


def with_orders(edit: Callable[[Order], Order]) -> OrderBook:
    return broken(orders=[edit(each) for each in good().orders])


def with_calls(edit: Callable[[Call], Call]) -> OrderBook:
    return broken(calls=[edit(each) for each in good().calls])


def test_a_record_without_a_fault_is_ok() -> None:
    verdict = check(good())
    assert (verdict.violations, verdict.untested, verdict.word) == ([], [], "ok")
    assert verdict.figures.created == 5
    assert verdict.figures.deduplicated == 1
    assert verdict.figures.repeated_calls == 1
    assert verdict.figures.waits_for_keys == 1


FAULTS = {
    "D1 runs of committed orders without an end": broken(runs=good().runs[1:]),
    "D1 runs with two rows of history": broken(runs=[*good().runs, good().runs[0]]),
    "D1 runs that two orders created": broken(orders=[*good().orders, order(1, 0)]),
    "D1 runs that did not succeed": broken(runs=[*good().runs[:-1], run(6, 6, status=2, reason="failed")]),
    "D2 ended runs without an order": broken(runs=[*good().runs, run(9, 6)]),
    "D2 called runs without an order": broken(calls=[*good().calls, call(9, 6)]),
    "D2 runs of rolled-back transactions": broken(rolled_back=["run-1"]),
    "D3 3 rows were left in backlog": broken(left={"backlog": 3, "live_runs": 0}),
    "D4 run-1 was called again, but its attempt 2": broken(attempts=[]),
    "D4 run-1 was called under 2 after 2": with_calls(lambda each: change(each, token=2)),
    "D4 run-1 was settled under 4, but called last under 5": with_calls(
        lambda each: change(each, token=5) if each.token == 4 else each
    ),
    "D4 run-1 was called under two idempotency keys": with_calls(
        lambda each: change(each, key="another") if each.token == 4 else each
    ),
    "D4 runs that succeeded without a call": broken(calls=good().calls[:-1]),
    "D5 run-2 had not ended when run-4 took its key": broken(runs=[run(1, 6, 4), run(2, 3.5), *good().runs[2:]]),
    "D5 the order o3 was answered with the run 'run-8'": with_orders(
        lambda each: each if each.created else change(each, run_id="run-8")
    ),
    "D5 the order o3 was answered with a run of another key": with_orders(
        lambda each: each if each.created else change(each, run_id="run-1")
    ),
    "D5 the order o3 was answered with a run that was committed after it": with_orders(
        lambda each: each if each.created else change(each, committed=T + 1)
    ),
    "D5 the order o3 was answered with a run that had ended": with_orders(
        lambda each: each if each.created else change(each, asked=T + 9, committed=T + 9.1)
    ),
    "D6 2 calls at once of solo c1, where 1 are allowed": with_calls(
        lambda each: change(each, at=T + 4.7) if each.run_id == "run-6" else each
    ),
    "D7 calls before their time": with_calls(
        lambda each: change(each, scheduled_at=T + 6) if each.run_id == "run-6" else each
    ),
    "D8 calls with the payload of another order": with_calls(
        lambda each: change(each, body='{"order": "o6", "customer": "c1"}') if each.run_id == "run-5" else each
    ),
    "log primary": broken(logs={"primary": "2026-01-01 ERROR:  deadlock detected"}),
    "n2.1 ended although the test did not end it": broken(gone=["n2.1"]),
    "detent audit ended with code 1: missing": broken(audit=Audit(1, "missing")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_kind_of_fault_is_found(fault: str) -> None:
    assert any(line.startswith(fault) for line in check(FAULTS[fault]).violations), check(FAULTS[fault]).violations


@pytest.mark.parametrize(
    ("missing", "book"),
    [
        ("kills of nodes", broken(kills=[Kill("e1", T)])),
        ("kills of enqueuers", broken(kills=[Kill("n1", T)])),
        ("runs of rolled-back transactions", broken(rolled_back=[])),
        ("transactions that were repeated", broken(repeated=[])),
        ("repeated calls", broken(calls=[each for each in good().calls if each.token == 2])),
        ("runs that a unique key was answered with", broken(orders=[each for each in good().orders if each.created])),
    ],
)
def test_a_record_in_which_something_never_happened_proves_nothing(missing: str, book: OrderBook) -> None:
    assert f"proves nothing: there were no {missing}" in check(book).untested
