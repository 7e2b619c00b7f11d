"""How many slots a tenant may take where several have jobs."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as some

from detent.domain.shares import TenantShares, fair_share, headroom_slots, reserve_fairly, slots_for


@pytest.mark.parametrize(
    ("total", "part", "headroom"),
    [(100, 0.2, 20), (10, 0.2, 2), (100, 0.0, 0), (1, 0.2, 1), (2, 0.2, 1), (3, 0.01, 1), (100, 0.29, 29)],
)
def test_the_headroom_is_a_part_of_the_slots_and_at_least_one(total: int, part: float, headroom: int) -> None:
    assert headroom_slots(total, part) == headroom


@pytest.mark.parametrize(
    ("total", "weight", "weights", "share"),
    [(100, 1, 1, 100), (100, 1, 2, 50), (100, 3, 4, 75), (10, 1, 3, 4), (1, 1, 5, 1), (10, 1, 100, 1)],
)
def test_a_fair_share_follows_the_weights_and_is_at_least_one_slot(
    total: int, weight: int, weights: int, share: int
) -> None:
    assert fair_share(total, weight, weights) == share


@pytest.mark.parametrize(
    ("free", "held", "fair", "others_hold_none", "slots"),
    [
        # Alone with runs, while another has jobs: all but the headroom.
        (100, 0, 100, True, 80),
        (50, 50, 100, True, 30),
        (20, 80, 100, True, 0),
        # Beyond its fair share, whichever tenants hold the others.
        (30, 60, 50, False, 10),
        (20, 60, 50, False, 0),
        (0, 60, 50, False, 0),
        # Below it, and another still holds none: half of what is left of the headroom.
        (20, 0, 50, True, 10),
        (10, 10, 50, True, 0),
        (10, 0, 33, True, 5),
        (1, 0, 33, True, 1),
        (1, 1, 33, True, 0),
        # Below it, and all hold some: whatever is free, up to the fair share.
        (20, 0, 50, False, 20),
        (20, 45, 50, False, 5),
        (60, 0, 50, False, 50),
        (90, 0, 50, False, 70),
        # More run than there are slots: a suspect that is tried.
        (-1, 3, 50, False, 0),
    ],
)
def test_slots_of_a_worker_with_a_hundred_and_a_headroom_of_twenty(
    free: int, held: int, fair: int, others_hold_none: bool, slots: int
) -> None:
    assert slots_for(free, headroom=20, held=held, fair=fair, others_hold_none=others_hold_none) == slots


def sharing(slots: int, *tenants: int, headroom: float = 0.2) -> TenantShares:
    made = TenantShares(slots, headroom)
    made.among(dict.fromkeys(tenants, 1), [], [])
    return made


def start_all(shares: TenantShares, tenant: int) -> int:
    """Start as many runs as possible, which never end; returns how many."""
    count = 0
    while shares.startable(tenant):
        shares.came(tenant)
        shares.began(tenant)
        count += 1
    return count


def test_each_tenant_that_hangs_leaves_some_for_those_that_come_later() -> None:
    shares = sharing(100, *range(1, 11))
    assert [start_all(shares, tenant) for tenant in range(1, 8)] == [80, 10, 5, 3, 1, 1, 0]


def test_when_all_tenants_hold_slots_none_is_left_unused() -> None:
    shares = sharing(100, 1, 2, 3)
    for tenant in (1, 2, 3):
        shares.came(tenant)
        shares.began(tenant)
    assert sum(start_all(shares, tenant) for tenant in (1, 2, 3)) == 97


def test_a_worker_of_one_slot_still_runs_something() -> None:
    assert start_all(sharing(1, 1, 2), 1) == 1


def test_two_slots_are_for_two_tenants() -> None:
    shares = sharing(2, 1, 2)
    assert (start_all(shares, 1), start_all(shares, 2)) == (1, 1)


def test_nothing_is_counted_for_one_tenant_or_without_headroom() -> None:
    assert sharing(10, 1).alone and sharing(10, 1, 2, headroom=0.0).alone and not sharing(10, 1, 2).alone


def test_runs_that_wait_here_already_take_the_slots_that_are_open() -> None:
    shares = sharing(10, 1, 2)
    assert shares.open_to(1) == 8
    for _ in range(3):
        shares.came(1)
    assert shares.open_to(1) == 5
    assert shares.any_open([1]) and not shares.held_back([1])


@given(
    some.integers(1, 30),
    some.dictionaries(some.integers(1, 6), some.integers(1, 5), min_size=2),
    some.lists(some.tuples(some.sampled_from(["came", "began", "ended"]), some.integers(0, 6)), max_size=120),
)
def test_counting_each_step_gives_the_same_as_a_recount(
    slots: int, weights: dict[int, int], steps: list[tuple[str, int]]
) -> None:
    """Also for tenants that the worker does not know; and a slot that is free is open to a tenant that holds none."""
    shares, recounted = TenantShares(slots, 0.2), TenantShares(slots, 0.2)
    shares.among(weights, [], [])
    waiting: Counter[int] = Counter()
    running: Counter[int] = Counter()
    for step, tenant in steps:
        if step == "came":
            shares.came(tenant)
            waiting[tenant] += 1
        elif step == "began" and waiting[tenant] and shares.startable(tenant):
            shares.began(tenant)
            waiting[tenant] -= 1
            running[tenant] += 1
        elif step == "ended" and running[tenant]:
            shares.ended(tenant)
            running[tenant] -= 1
    recounted.among(weights, running.elements(), waiting.elements())
    assert running.total() <= slots
    for tenant in range(7):
        assert shares.startable(tenant) == recounted.startable(tenant)
        assert shares.open_to(tenant) == recounted.open_to(tenant)
        if not running[tenant] and running.total() < slots:
            assert shares.startable(tenant) > 0


def test_a_tenant_takes_in_what_its_slots_are_open_to_whatever_the_others_hold() -> None:
    open_to = {1: 0, 2: 2}.__getitem__
    assert reserve_fairly([1, 2, 2, 2, None], 0, open_to) == [False, True, True, False, False]
    assert reserve_fairly([1, 1, 2, 2, 1], 2, open_to) == [True, True, True, True, False]
    assert reserve_fairly([], 2, open_to) == []
