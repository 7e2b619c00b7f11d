"""Definitions in a worker's memory: read once, read ahead, and never more than there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from detent.domain.run import Claim, HeldRun
from detent.store import Store
from detent.worker import definitions
from detent.worker.definitions import DefinitionLoader, Definitions
from tests.support import factories
from tests.support.waiting import until


def claim(job: int) -> Claim:
    return Claim(job, 0, factories.LONG_AGO, 0, 1, 1)


def keys(*jobs: int) -> list[tuple[int, int]]:
    return [(job, 1) for job in jobs]


@pytest.fixture
async def jobs(look: Any) -> list[int]:
    return [await factories.add_job(look) for _ in range(5)]


async def test_a_prefetched_definition_is_known_when_its_run_comes(store: Store, jobs: list[int]) -> None:
    loader = DefinitionLoader(store, lambda _held: None, nobody_fails)
    loader.prefetch([*keys(*jobs[:3]), (jobs[0], 99), (12345, 1)])
    loader.prefetch(keys(*jobs))  # while the first are being read
    held = [HeldRun(claim(job), 0.0) for job in jobs]
    await until(lambda: not loader.fill(held))
    assert loader.fill([HeldRun(claim(12345), 0.0)])
    await loader.stop()


async def nobody_fails(held: Sequence[HeldRun]) -> None:
    raise AssertionError(f"{len(held)} could not be read")


def knows(known: Definitions, job: int) -> bool:
    return not known.fill([HeldRun(claim(job), 0.0)])


async def test_the_definitions_that_were_read_last_stay(
    store: Store, jobs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Definitions(store)
    await known.read(keys(*jobs[:3]))
    monkeypatch.setattr(definitions, "MAX_BYTES", known.bytes)
    assert knows(known, jobs[0])
    await known.read(keys(*jobs[3:4]))
    assert [knows(known, job) for job in jobs[:4]] == [False, True, True, True]


async def test_large_definitions_leave_room_for_fewer(
    store: Store, look: Any, jobs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    alike = Definitions(store)
    await alike.read(keys(*jobs))
    longer = "UPDATE jobs SET definition = definition || jsonb_build_object('payload', repeat('x', 1000) || job)"
    await look.execute(longer)
    monkeypatch.setattr(definitions, "MAX_BYTES", alike.bytes * 3)
    known = Definitions(store)
    found = await known.read(keys(*jobs))
    assert len(found) == 5
    kept = [knows(known, job) for job in jobs]
    assert kept == sorted(kept)
    assert 0 < sum(kept) < 5


async def test_jobs_with_the_same_definition_share_it(store: Store, jobs: list[int]) -> None:
    found = await Definitions(store).read(keys(*jobs))
    assert len({id(definition.spec) for definition in found.values()}) == 1
    assert len({definition.job_id for definition in found.values()}) == 5
