"""Fire, take-over, claim, settle, rescue, cancel, edit, trigger and enqueue against each other, in every order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.interleavings import scenarios, task_scenarios
from tests.interleavings.harness import Report, Stage, explore, explore_with_kills, sample
from tests.interleavings.scenarios import Scenario

KILLS_SAMPLED = 6
SMALL = (*scenarios.SMALL, *task_scenarios.SMALL)
LARGE = (*scenarios.LARGE, *task_scenarios.LARGE)


def name_of(scenario: Scenario) -> str:
    return scenario.name.replace(" ", "_")


def tell(record: Callable[[str, Any], None], scenario: Scenario, report: Report) -> None:
    record("schedules", report.schedules)
    print(f"{scenario.name}: {report}")  # noqa: T201 - the counts are the evidence


@pytest.mark.parametrize("scenario", SMALL, ids=name_of)
async def test_every_order_is_clean_and_so_are_some_with_a_kill(
    stage: Stage, scenario: Scenario, record_property: Callable[[str, Any], None]
) -> None:
    report = await explore(stage, scenario)
    report.include(await sample(stage, scenario, report.steps, KILLS_SAMPLED))
    tell(record_property, scenario, report)
    assert not report.violated, str(report)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scenario", [*SMALL, *LARGE], ids=name_of)
async def test_every_order_with_every_kill_is_clean(
    stage: Stage, scenario: Scenario, record_property: Callable[[str, Any], None]
) -> None:
    report = await explore_with_kills(stage, scenario)
    tell(record_property, scenario, report)
    assert not report.violated, str(report)


async def test_a_statement_that_waits_goes_on_when_it_is_free(stage: Stage) -> None:
    """The harness itself: the second fire of the same tick is sent while the first is open, and answers after it."""
    performance = await stage.perform(scenarios.TWO_FIRES, (0, 1, 0, 1))
    assert performance.order.startswith("old1 new1 old2 new2")
    assert performance.choices[2].enabled == (0,), "the second fire was not blocked by the first"
    assert not performance.diverged
    assert not performance.violations


async def test_orders_are_played_once_each(stage: Stage) -> None:
    seen: list[str] = []
    perform = stage.perform

    async def remember(*arguments: Any) -> Any:
        performance = await perform(*arguments)
        seen.append(performance.order)
        return performance

    stage.perform = remember  # type: ignore[assignment, method-assign]  # to look over its shoulder
    report = await explore(stage, scenarios.SETTLE_AND_CANCEL)
    assert len(set(seen)) == len(seen) == report.schedules == 4
