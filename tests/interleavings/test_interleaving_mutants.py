"""The harness must find what is wrong with a protocol that lacks one of its rules, or its silence means nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.interleavings import scenarios, task_scenarios
from tests.interleavings.harness import Stage, explore
from tests.interleavings.mutants import MUTANTS, Mutant, changed
from tests.interleavings.task_mutants import TASK_MUTANTS, with_function


@pytest.mark.parametrize("mutant", (*MUTANTS, *TASK_MUTANTS), ids=lambda mutant: mutant.name.replace(" ", "_"))
async def test_a_protocol_without_one_of_its_rules_is_found_out(
    stage: Stage, mutant: Mutant, record_property: Callable[[str, Any], None]
) -> None:
    mutated = await explore(stage, mutant.play, to_the_end=False)
    record_property("schedules", mutated.schedules)
    print(f"{mutant.name}: {mutated}")  # noqa: T201 - the counts are the evidence
    assert mutated.violated, f"{mutant.name}: {mutated.schedules} schedules and nothing was found"
    if mutant.sound not in (*scenarios.SMALL, *task_scenarios.SMALL):  # those are explored by test_interleavings
        sound = await explore(stage, mutant.sound)
        assert not sound.violated, str(sound)


def test_a_mutant_whose_passage_is_gone_from_the_text_is_an_error() -> None:
    with pytest.raises(AssertionError, match="no longer says"):
        changed("cursor/fire", ("this passage is not in the fire", ""))
    with pytest.raises(AssertionError, match="no longer says"):
        with_function(task_scenarios.TWO_CLAIMS, "this passage is not in the function", "")
