"""Callbacks in every order with the answer 202, the end of the lease, a take-over and a cancellation."""

from __future__ import annotations

import pytest

from tests.interleavings.callbacks import CALLBACK_MUTANTS, CALLBACKS
from tests.interleavings.harness import Stage, explore, explore_with_kills, sample
from tests.interleavings.mutants import Mutant
from tests.interleavings.scenarios import Scenario

KILLS_SAMPLED = 6


@pytest.mark.parametrize("scenario", CALLBACKS, ids=lambda each: each.name.replace(" ", "_"))
async def test_every_order_ends_each_run_once(stage: Stage, scenario: Scenario) -> None:
    report = await explore(stage, scenario)
    report.include(await sample(stage, scenario, report.steps, KILLS_SAMPLED))
    print(f"{scenario.name}: {report}")  # noqa: T201 - the counts are the evidence
    assert not report.violated, str(report)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scenario", CALLBACKS, ids=lambda each: each.name.replace(" ", "_"))
async def test_every_order_with_every_kill_ends_each_run_once(stage: Stage, scenario: Scenario) -> None:
    report = await explore_with_kills(stage, scenario)
    assert not report.violated, str(report)


@pytest.mark.parametrize("mutant", CALLBACK_MUTANTS, ids=lambda each: each.name.replace(" ", "_"))
async def test_a_protocol_without_one_of_its_fences_is_found_out(stage: Stage, mutant: Mutant) -> None:
    mutated = await explore(stage, mutant.play, to_the_end=False)
    print(f"{mutant.name}: {mutated}")  # noqa: T201 - the counts are the evidence
    assert mutated.violated, f"{mutant.name}: {mutated.schedules} schedules and nothing was found"
