"""Weighted rounds: who gets how much, and in which order."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as some

from detent.worker.queues.rounds import FairLine, Rounds


def test_one_tenant_alone_gets_everything() -> None:
    assert Rounds().shares(70, {1: 3}) == {1: 70}


def test_tenants_of_equal_weight_get_equal_shares_and_heavier_ones_more() -> None:
    assert Rounds().shares(100, {1: 1, 2: 1}) == {1: 50, 2: 50}
    assert Rounds().shares(100, {1: 1, 2: 3}) == {1: 25, 2: 75}


def test_when_there_is_room_for_one_tenants_take_turns() -> None:
    rounds = Rounds()
    turns = [next(who for who, share in rounds.shares(1, {1: 1, 2: 1, 3: 2}).items() if share) for _ in range(400)]
    assert Counter(turns) == {1: 100, 2: 100, 3: 200}


def test_what_was_not_wanted_is_not_held_against_a_tenant() -> None:
    rounds = Rounds()
    for _ in range(50):
        shares = rounds.shares(10, {1: 1, 2: 1})
        rounds.give_back(2, shares[2], 1)
    assert rounds.shares(10, {1: 1, 2: 1}) == {1: 5, 2: 5}


def test_no_tenant_saves_up_turns_by_staying_away() -> None:
    rounds = Rounds()
    rounds.shares(10, {1: 1, 2: 1, 3: 1})
    for _ in range(100):
        rounds.shares(10, {1: 1, 2: 1})
    shares = rounds.shares(30, {1: 1, 2: 1, 3: 1})
    assert max(shares.values()) - min(shares.values()) <= 1


@given(
    some.dictionaries(some.integers(1, 20), some.integers(1, 10), min_size=2, max_size=8),
    some.lists(some.integers(0, 50), min_size=1, max_size=20),
)
def test_shares_add_up_and_follow_the_weights_over_time(weights: dict[int, int], rooms: list[int]) -> None:
    rounds = Rounds()
    got: Counter[int] = Counter()
    for room in rooms:
        shares = rounds.shares(room, weights)
        assert sum(shares.values()) == room
        got.update(shares)
    turns = [got[tenant] / weight for tenant, weight in weights.items()]
    assert max(turns) - min(turns) <= 1 + 1e-6


def line(*waiting: tuple[int, str]) -> FairLine[str]:
    made: FairLine[str] = FairLine({1: 1, 2: 1, 3: 2}.__getitem__)
    for tenant, item in waiting:
        made.append(tenant, item)
    return made


def emptied(waiting: FairLine[str]) -> str:
    return "".join(waiting.popleft() for _ in range(len(waiting)))


def test_a_line_of_one_tenant_is_in_the_order_of_arrival() -> None:
    assert emptied(line((1, "a"), (1, "b"), (1, "c"))) == "abc"


def test_a_line_goes_from_tenant_to_tenant_however_long_one_of_them_is() -> None:
    waiting = line(*((1, "a") for _ in range(6)), *((2, "b") for _ in range(2)))
    order = emptied(waiting)
    assert order.count("a") == 6 and "b" in order[:2] and "b" in order[2:4]


def test_a_heavier_tenant_goes_more_often() -> None:
    order = emptied(line(*((1, "a") for _ in range(20)), *((3, "c") for _ in range(20))))
    assert order[:15].count("c") == 10


def test_a_late_arrival_does_not_wait_for_a_backlog() -> None:
    waiting = line(*((1, "a") for _ in range(1000)))
    for _ in range(500):
        waiting.popleft()
    waiting.append(2, "b")
    assert "b" in (waiting.popleft(), waiting.popleft())
    assert len(waiting) == 499


def test_one_that_returns_immediately_gets_no_more_than_its_turn() -> None:
    waiting = line(*((2, "b") for _ in range(100)))
    order = ""
    for _ in range(20):
        waiting.append(1, "a")
        order += waiting.popleft() + waiting.popleft()
    assert order.count("a") == 20 and order.count("b") == 20


@given(some.lists(some.tuples(some.integers(1, 3), some.integers(0, 3)), max_size=100))
def test_nothing_is_lost_or_doubled_and_each_tenants_own_order_stays(steps: list[tuple[int, int]]) -> None:
    waiting: FairLine[tuple[int, int]] = FairLine({1: 1, 2: 1, 3: 2}.__getitem__)
    added, taken = [], []
    for number, (tenant, pops) in enumerate(steps):
        waiting.append(tenant, (tenant, number))
        added.append((tenant, number))
        taken += [waiting.popleft() for _ in range(min(pops, len(waiting)))]
    taken += [waiting.popleft() for _ in range(len(waiting))]
    assert sorted(taken) == sorted(added) and not waiting
    for tenant in (1, 2, 3):
        assert [each for each in taken if each[0] == tenant] == [each for each in added if each[0] == tenant]


def test_an_empty_line_says_so_and_a_cleared_one_begins_anew() -> None:
    waiting = line((1, "a"), (2, "b"))
    assert list(waiting) == ["a", "b"]
    waiting.clear()
    assert not waiting
    with pytest.raises(IndexError):
        waiting.popleft()


def test_in_a_line_the_higher_priority_goes_first_and_among_equals_who_came_first() -> None:
    line: FairLine[str] = FairLine(lambda _: 1)
    for name, priority in (("a", 5), ("b", 9), ("c", 5), ("d", 9), ("e", 0)):
        line.append(1, name, priority)
    assert line.first() == "b"
    assert line.popleft(lowest_first=True) == "e"
    assert [line.popleft() for _ in range(len(line))] == ["b", "d", "a", "c"]


def test_only_tenants_that_are_allowed_go_and_the_others_save_up_no_turns() -> None:
    waiting = line(*((1, "a") for _ in range(50)), *((2, "b") for _ in range(50)))
    assert "".join(waiting.pop_where(lambda tenant: tenant == 2) or "-" for _ in range(20)) == "b" * 20
    assert waiting.pop_where(lambda _: False) is None
    assert len(waiting) == 80
    order = "".join(waiting.pop_where(lambda _: True) or "-" for _ in range(20))
    assert 9 <= order.count("a") <= 11


def test_of_some_tenants_only_the_others_neither_go_nor_save_up_turns() -> None:
    waiting = line(*((1, "a") for _ in range(50)), *((2, "b") for _ in range(25)))
    with waiting.only({2, 3}):
        taken = ""
        while waiting:
            taken += waiting.popleft()
        waiting.append(3, "c")
        assert waiting.popleft() == "c"
    assert taken == "b" * 25 and len(waiting) == 50
    for _ in range(20):
        waiting.append(2, "b")
    order = "".join(waiting.popleft() for _ in range(20))
    assert 9 <= order.count("a") <= 11


def test_many_items_of_some_tenants_pass_over_the_others_once() -> None:
    asked: list[object] = []

    class Counted(set[int]):
        def __contains__(self, tenant: object) -> bool:
            asked.append(tenant)
            return super().__contains__(tenant)

    waiting: FairLine[str] = FairLine(lambda _tenant: 1)
    for tenant in range(100):
        waiting.append(tenant, "a")
    waiting.extend(100, ["b"] * 50)
    with waiting.only(Counted({100})):
        assert "".join(waiting.popleft() for _ in range(50)) == "b" * 50
    assert len(asked) <= 2 * 101


def test_where_no_tenant_has_a_turn_nothing_is_taken() -> None:
    waiting = line((1, "a"))
    with waiting.only({2}):
        assert not waiting
    assert waiting.popleft() == "a" and not waiting


@given(
    some.lists(some.tuples(some.integers(1, 3), some.integers(0, 2)), max_size=60),
    some.integers(1, 70),
    some.integers(2, 9),
    some.booleans(),
)
def test_items_that_are_taken_together_are_those_that_would_have_gone_one_by_one(
    waiting: list[tuple[int, int]], most: int, newest_every: int, lowest_first: bool
) -> None:
    together, alone = line(), line()
    for number, (tenant, priority) in enumerate(waiting):
        together.append(tenant, str(number), priority)
        alone.append(tenant, str(number), priority)
    taken = together.take(most, lowest_first, newest_every)
    one_by_one = [
        alone.popleft(lowest_first, place % newest_every == newest_every - 1) for place in range(min(most, len(alone)))
    ]
    assert sorted(taken) == sorted(one_by_one) and len(together) == len(alone)
    assert list(together) == list(alone)


def test_of_some_tenants_only_nothing_is_taken_of_the_others() -> None:
    waiting = line((1, "a"))
    with waiting.only({2}):
        assert waiting.take(10, False, 8) == []
    assert waiting.take(10, False, 8) == ["a"]
