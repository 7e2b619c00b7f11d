"""The mutants of the cluster tests, which only long runs start, still fit the product that they change."""

from __future__ import annotations

import pytest

from tests.support.fleet.mutants import BEHIND, MUTANTS, SOURCE, Patches


@pytest.mark.parametrize("patches", [BEHIND, *(mutant.patches for mutant in MUTANTS)])
def test_every_passage_that_a_mutant_replaces_is_in_the_product_once(patches: Patches) -> None:
    for name, replacements in patches.items():
        text = (SOURCE / "detent" / name).read_text()
        for before, _after in replacements:
            assert text.count(before) == 1, f"{name} no longer says {before!r} once: adapt the mutant to it"
