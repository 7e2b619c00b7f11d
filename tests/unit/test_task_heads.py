"""What a worker remembers of where on-demand runs wait, after a claim took some, none, or only put some off."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from detent.store.db import PoolName
from detent.store.tasks import TaskHead
from detent.worker.heads import TaskHeads

HEAD = TaskHead(1, 2, True, 5, datetime(2026, 1, 1, tzinfo=UTC), False)
PLACE = (HEAD.job, HEAD.queue)


@pytest.fixture
def heads() -> TaskHeads:
    no_store: Any = None
    found = TaskHeads(no_store, PoolName.WORK)
    found._keep([HEAD], 0.0)
    return found


def test_a_head_that_gave_all_it_was_asked_for_is_ready_again(heads: TaskHeads) -> None:
    heads.claimed([HEAD], Counter({PLACE: 3}), 3, full=True)
    assert heads.ready() == [HEAD]


def test_a_head_that_gave_nothing_is_read_before_it_is_claimed_again(heads: TaskHeads) -> None:
    heads.claimed([HEAD], Counter(), 3, full=False)
    assert (heads.ready(), heads.stale) == ([], {HEAD.job})


def test_a_head_whose_runs_were_put_off_is_claimed_again_at_once(heads: TaskHeads) -> None:
    heads.claimed([HEAD], Counter(), 3, put_off={PLACE}, full=False)
    assert (heads.ready(), heads.stale) == ([HEAD], set())


def test_the_same_holds_for_a_release(heads: TaskHeads) -> None:
    heads.released([HEAD], Counter(), 3, put_off={PLACE})
    assert (heads.ready(), heads.stale) == ([HEAD], set())
    heads.released([HEAD], Counter(), 3)
    assert (heads.ready(), heads.stale) == ([], {HEAD.job})
