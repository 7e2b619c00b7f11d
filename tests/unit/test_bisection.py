"""A bad item of a batch fails without the others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from detent.runtime.bisection import halve_until_alone


class Sender:
    def __init__(self, bad: set[int]) -> None:
        self.bad = bad
        self.sent: list[int] = []
        self.failed: list[int] = []

    async def send(self, batch: Sequence[int]) -> int:
        if 99 in batch:
            raise OSError("the connection is gone")
        if self.bad & set(batch):
            raise ValueError("one of them is bad")
        self.sent += batch
        return len(batch)

    async def alone(self, item: int, _error: Exception) -> int:
        self.failed.append(item)
        return 0


@pytest.mark.parametrize("bad", [set(), {0}, {6}, {2, 3}, set(range(7))])
async def test_only_bad_items_fail(bad: set[int]) -> None:
    sender = Sender(bad)
    results = await halve_until_alone(range(7), sender.send, sender.alone, (ValueError,))
    assert sum(results) == 7 - len(bad)
    assert sender.sent == [item for item in range(7) if item not in bad]
    assert sender.failed == sorted(bad)


async def test_an_unexpected_error_is_raised_after_the_other_half_was_sent() -> None:
    sender = Sender({1})
    with pytest.raises(OSError, match="gone"):
        await halve_until_alone([99, 1, 2, 3], sender.send, sender.alone, (ValueError, KeyError))
    sender.sent.clear()

    async def send(batch: Sequence[int]) -> int:
        if len(batch) == 4:
            raise ValueError("one of them is bad")
        return await sender.send(batch)

    with pytest.raises(OSError, match="gone"):
        await halve_until_alone([99, 0, 2, 3], send, sender.alone, (ValueError,))
    assert sender.sent == [2, 3]
