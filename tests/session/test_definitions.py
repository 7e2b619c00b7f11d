"""Definitions in a worker's memory: read once, read ahead, and never more than there is room for."""

from __future__ import annotations

from typing import Any

import pytest

import factories
from detent.model import Claim
from detent.store import Store
from detent.worker import definitions
from detent.worker.definitions import Definitions


def claim(job: int) -> Claim:
    return Claim(job, 0, factories.LONG_AGO, 0, 1, 1)


def keys(*jobs: int) -> list[tuple[int, int]]:
    return [(job, 1) for job in jobs]


@pytest.fixture
async def jobs(look: Any) -> list[int]:
    return [await factories.add_job(look) for _ in range(5)]


async def test_what_was_read_ahead_is_known_when_its_run_comes(store: Store, jobs: list[int]) -> None:
    known = Definitions(store)
    await known.read_ahead([*keys(*jobs), (jobs[0], 99), (12345, 1)])
    assert all(known.get(claim(job)) is not None for job in jobs)
    assert known.get(claim(12345)) is None


async def test_the_definitions_that_were_used_last_stay(
    store: Store, jobs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "KEPT", 3)
    known = Definitions(store)
    await known.read(keys(*jobs[:3]))
    assert known.get(claim(jobs[0])) is not None
    await known.read(keys(*jobs[3:4]))
    assert [known.get(claim(job)) is not None for job in jobs[:4]] == [True, False, True, True]


async def test_large_definitions_leave_room_for_fewer(
    store: Store, jobs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Definitions(store)
    (size,) = {found.size for found in (await known.read(keys(*jobs))).values()}
    monkeypatch.setattr(definitions, "MOST_CHARACTERS", 2 * size)
    known = Definitions(store)
    found = await known.read(keys(*jobs))
    assert len(found) == 5
    assert [known.get(claim(job)) is not None for job in jobs] == [False, False, False, True, True]


async def test_jobs_with_the_same_definition_share_it(store: Store, jobs: list[int]) -> None:
    found = await Definitions(store).read(keys(*jobs))
    assert len({id(definition.spec) for definition in found.values()}) == 1
    assert len({definition.job_id for definition in found.values()}) == 5
