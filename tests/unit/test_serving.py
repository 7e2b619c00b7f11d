"""The sentence about runs that no worker serves: what is missing, and what to start."""

from __future__ import annotations

import pytest

from detent.domain.serving import Unserved, WaitingPlace, place_of, unserved_sentence


@pytest.mark.parametrize(
    ("lack", "sentence"),
    [
        (("default", "", False, [], []), "No worker is running: start one with `detent worker`."),
        (
            ("slow", "python:shop.jobs:report", False, [], []),
            "No worker is running, and the function 'shop.jobs:report' needs one that has it: start one with "
            "`detent worker --app shop.jobs:app --queue slow`.",
        ),
        (
            ("default", "process:resize", True, [], ["images:resize"]),
            "No worker has the function 'resize' (did you mean 'images:resize'?): start one with "
            "`detent worker --app MODULE:app`.",
        ),
        (
            ("slow", "", True, ["default"], []),
            "No worker serves the queue 'slow': start one with `detent worker --queue slow`.",
        ),
        (
            ("slow", "python:resize", True, ["default", "fast"], ["resize"]),
            "No worker serves the queue 'slow' with what the job needs (those that have it serve the queues default, "
            "fast): start one with `detent worker --app MODULE:app --queue slow`.",
        ),
        (
            ("default", "shell", True, [], []),
            "No worker runs the commands of this tenant: start one with `detent worker --allow-shell ops`.",
        ),
    ],
)
def test_the_sentence_names_what_to_start(lack: tuple[str, str, bool, list[str], list[str]], sentence: str) -> None:
    queue, needs, *rest = lack
    assert unserved_sentence(Unserved(WaitingPlace(queue, needs), *rest), tenant="ops") == sentence  # type: ignore[arg-type]


def test_the_command_reaches_the_same_database() -> None:
    lack = Unserved(WaitingPlace("default", ""), False, [], [])
    assert "`detent worker --data-dir .detent`" in unserved_sentence(lack, connect=" --data-dir .detent")


def test_on_demand_runs_need_what_ticks_need() -> None:
    assert place_of("slow", "task:python:f") == WaitingPlace("slow", "python:f")
    assert place_of("slow", "task:") == place_of("slow", "")
