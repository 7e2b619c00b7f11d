"""Messages of topic targets while workers are killed, in short; `python -m chaos.topics` does it with every broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.deliveries.checker import GIVEN_UP, Delivery, check
from tests.support.deliveries.driver import perform
from tests.support.orders.driver import Scale

QUICK = {"fsync": "off", "full_page_writes": "off"}
SCALE = Scale(0, ("n1", "n2"), (), 1.5, (2.0, 4.0), server_options=QUICK)


@pytest.mark.parametrize(
    ("brokers", "runs"),
    [
        pytest.param(("redis", "nats"), 400, id="short"),
        pytest.param(("redis", "nats", "rabbitmq", "sqs-fifo"), 2000, id="longer", marks=pytest.mark.long),
    ],
)
async def test_no_run_is_without_its_message_and_brokers_that_deduplicate_have_one(
    folder: Path, brokers: tuple[str, ...], runs: int
) -> None:
    record = await perform(folder, brokers, runs, SCALE, 0)
    verdict = check(record.deliveries, record.kills, record.lost_attempts)
    assert verdict.violations == []
    assert verdict.untested == []


RUNS = {"a": "succeeded", "b": "succeeded"}


@pytest.mark.parametrize(
    ("delivery", "fault"),
    [
        (Delivery("x", True, "ab", RUNS, "ab"), ""),
        (Delivery("x", False, "ab", RUNS, "aab"), ""),
        (Delivery("x", True, "ab", RUNS, "aab"), "x: 1 runs have more than one message: a"),
        (Delivery("x", False, "ab", RUNS, "b"), "x: 1 runs have no message: a"),
        (Delivery("x", False, "ab", RUNS, "abc"), "x: 1 runs have a message and are not in the history: c"),
        (Delivery("x", False, "abc", RUNS, "ab"), "x: 1 runs were enqueued and are not in the history: c"),
        (Delivery("x", False, "ab", RUNS | {"b": GIVEN_UP}, "a"), ""),
        (Delivery("x", False, "ab", RUNS | {"b": "dead"}, "ab"), "x: 1 runs did not succeed: b"),
    ],
)
def test_the_verdict_names_what_is_wrong(delivery: Delivery, fault: str) -> None:
    assert list(check([delivery], 1, 1).violations) == [fault] * bool(fault)


def test_without_a_kill_that_met_a_run_nothing_was_tested() -> None:
    good = Delivery("x", True, "ab", RUNS, "ab")
    assert check([good], 1, 1).word == "ok"
    assert check([good], 0, 1).word == check([good], 1, 0).word == "untested"
