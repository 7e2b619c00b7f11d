"""Which offsets of a partition may be committed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from detent.transports.kafka_positions import PartitionPositions


def test_the_position_moves_over_what_is_finished_from_the_beginning() -> None:
    positions = PartitionPositions()
    for offset in (5, 6, 9):  # an offset may be missing: of a transaction, or compacted
        positions.delivered(offset)
    positions.finished(6)
    assert positions.advance() is None
    positions.finished(5)
    assert positions.advance() == 7
    assert positions.advance() is None
    positions.finished(5)
    positions.finished(9)
    assert positions.advance() == 10
    positions.finished(9)
    assert positions.advance() is None


@given(st.integers(1, 40).flatmap(lambda count: st.tuples(st.just(count), st.permutations(range(count)))))
def test_no_order_of_finishing_commits_what_is_not_finished(drawn: tuple[int, list[int]]) -> None:
    count, order = drawn
    positions = PartitionPositions()
    for offset in range(count):
        positions.delivered(offset)
    finished: set[int] = set()
    position = 0
    for offset in order:
        positions.finished(offset)
        finished.add(offset)
        position = positions.advance() or position
        assert set(range(position)) <= finished
        assert position not in finished
    assert position == count
