"""Clusters of real processes under faults, in short; `make chaos` does it for longer, and with the promised bounds.

What is checked here is that every tick has one run and every run one effect, never how long anything took.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fleet.checker import Promise, check
from tests.support.fleet.driver import Shape, perform
from tests.support.fleet.mutants import overlay
from tests.support.fleet.plans import Fault, Plan

TTL = 1.5
HOLD = 2 * TTL
QUICK = {"fsync": "off", "full_page_writes": "off"}
ALIKE = Shape(("n1", "n2", "n3"), ("n4",), jobs=20, ttl=TTL, server_options=QUICK)
APART = Shape(("s1", "s2", "w1", "w2", "api"), jobs=20, ttl=TTL, server_options=QUICK)
BROKEN = (
    # One is killed, one stops inside the transaction that fires, and a fourth one joins.
    pytest.param(
        ALIKE,
        Promise(takeovers=1),
        (
            Fault(1.0, "kill", "n1", 0.5),
            Fault(3.0, "stop-at", "n2", HOLD, "S4=stop@2"),
            Fault(6.0, "join", "n4"),
        ),
        id="alike",
    ),
    # Workers stop between a call and its result; the way to the database is cut, and the database itself crashes.
    pytest.param(
        APART._replace(linked=True),
        Promise(rescues=1, refused=1),
        (
            Fault(1.0, "stop-at", "w1", HOLD, "W4=stop@5"),
            Fault(3.0, "cut", "s1", HOLD, "replies hold"),
            Fault(8.0, "cut", "w2", HOLD, "requests swallow"),
            Fault(12.0, "restart-database", detail="immediate"),
        ),
        id="apart",
        marks=pytest.mark.long,
    ),
)


@pytest.mark.parametrize(("shape", "promise", "faults"), BROKEN)
async def test_every_tick_of_a_cluster_under_faults_has_one_run(
    folder: Path, shape: Shape, promise: Promise, faults: tuple[Fault, ...]
) -> None:
    last = max(fault.at + fault.seconds for fault in faults)
    record = await perform(Plan("short", 0, last + TTL, faults), shape, folder)
    verdict = check(record, promise)
    assert verdict.violations == []
    assert verdict.untested == []


def test_a_mutant_whose_passage_is_gone_from_the_product_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no longer says"):
        overlay(tmp_path, {"store/sql/cursor/fire.sql": [("this passage is not in the fire", "")]})
