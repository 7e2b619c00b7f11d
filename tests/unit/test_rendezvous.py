"""Sharing partitions by hash: all nodes agree, and few partitions move."""

from __future__ import annotations

import random

import pytest

from detent.cluster.rendezvous import share
from detent.domain.identity import PARTITIONS

SEEDS = range(20)


def some_nodes(seed: int, count: int) -> list[int]:
    return random.Random(seed).sample(range(1, 1 << 62), count)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_partition_belongs_to_exactly_one_node_in_whatever_order_they_are_listed(seed: int) -> None:
    nodes = some_nodes(seed, 5)
    shares = [share(node, random.Random(seed + 1).sample(nodes, len(nodes))) for node in nodes]
    assert sorted(partition for one in shares for partition in one) == list(range(PARTITIONS))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_joins_takes_from_the_others_and_nothing_moves_between_them(seed: int) -> None:
    *before, joining = some_nodes(seed, 4)
    after = [*before, joining]
    for node in before:
        assert share(node, after) <= share(node, before)
    gained = share(joining, after)
    assert PARTITIONS / 8 < len(gained) < PARTITIONS / 2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_goes_gives_its_share_to_all_of_the_others(seed: int) -> None:
    going, *left = some_nodes(seed, 4)
    for node in left:
        assert share(node, [going, *left]) < share(node, left)


def test_a_node_that_is_not_in_the_list_has_no_share() -> None:
    assert share(1, [2, 3]) == set()
    assert share(1, [1]) == set(range(PARTITIONS))
