"""A function that nobody has is named with those that may be meant."""

from __future__ import annotations

import pytest

from detent.domain.functions import did_you_mean, near_functions

KNOWN = ["images:resize", "images:rotate", "mail:send", "shop.orders:import_orders", "old:resize"]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("resize", ["images:resize", "old:resize"]),
        ("images.resize", ["images:resize", "old:resize", "images:rotate"]),
        ("resise", ["old:resize", "images:resize"]),
        ("orders:import_orders", ["shop.orders:import_orders"]),
        ("images:rotated", ["images:rotate", "images:resize"]),
        ("mail:send", []),
        ("entirely-different", []),
        ("x" * 10_000, []),
    ],
)
def test_near_functions(name: str, near: list[str]) -> None:
    assert near_functions(name, KNOWN) == near


def test_the_question_is_part_of_a_sentence() -> None:
    assert did_you_mean("resize", KNOWN) == " (did you mean 'images:resize' or 'old:resize'?)"
    assert did_you_mean("anything", []) == ""
