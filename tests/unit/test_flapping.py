"""Partitions that come back to a node without a reason, counted by itself."""

from __future__ import annotations

from detent.cluster.flapping import WITHIN, Turns


def test_a_partition_that_is_taken_repeatedly_while_no_node_joins_or_leaves_flaps() -> None:
    turns = Turns()
    turns.saw([1, 2], 0)
    turns.took([3, 4, 5], 0)
    assert turns.flapping(1) == 0
    turns.saw([1, 2], 10)
    turns.took([3, 4], 10)
    assert turns.flapping(11) == 2
    assert turns.flapping(WITHIN + 5) == 0, "an hour later it is forgotten"


def test_who_comes_goes_or_is_drained_is_a_reason_for_one_change() -> None:
    turns = Turns()
    for now, schedulers in enumerate(([1, 2], [1], [1, 2])):
        turns.saw(schedulers, now)
        turns.took([3], now)
    assert turns.flapping(10) == 0
    turns.took([3], 11)
    assert turns.flapping(12) == 1
