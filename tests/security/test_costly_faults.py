"""What is wrong with a request is said in a sentence that costs little: the loop that fires ticks waits for it."""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from detent.jobs.batches import MOST_FAULTS
from tests.api.api_client import HTTP, ApiClient
from tests.api.api_server import Readiness, serving

JOBS, BATCH = "/api/v1/jobs", "/api/v1/jobs/batch"
JOB = {"schedule": "@daily", "target": HTTP}
LONG = "Europe/Berlim" * 8_000
# A comparison costs about ten microseconds with each known name of this length.
MOST_CHARACTERS = MOST_KNOWN = 100


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[ApiClient]:
    async with serving(database_url, Readiness({})) as client:
        yield client


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """For each comparison of a stranger's name with known ones: how long it is, and how many those are."""
    counted: list[tuple[int, int]] = []
    really = difflib.get_close_matches

    def count(word: str, possibilities: Any, *arguments: Any, **options: Any) -> list[str]:
        known = list(possibilities)
        counted.append((len(word), len(known)))
        return really(word, known, *arguments, **options)

    monkeypatch.setattr(difflib, "get_close_matches", count)
    return counted


def assert_cheap(compared: list[tuple[int, int]], most: int) -> None:
    assert len(compared) <= most
    assert max((size for size, _ in compared), default=0) <= MOST_CHARACTERS
    assert max((known for _, known in compared), default=0) <= MOST_KNOWN


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ({"timezone": "Europe/Berlim"}, "did you mean 'Europe/Berlin'"),
        ({"timezone": "Eurpe/berlin"}, "did you mean 'Europe/Berlin'"),
        ({"timezone": "new york"}, "did you mean 'America/New_York'"),
        ({"timezone": LONG}, "give an IANA name"),
        ({"schedule": f"CRON_TZ={LONG} 0 9 * * *"}, ""),
        ({"prioritty": 1}, "did you mean priority?"),
        ({LONG: 1}, "known are schedule"),
    ],
    ids=["zone", "region", "city", "long zone", "zone in a schedule", "field", "long field"],
)
async def test_a_name_that_is_not_known_is_compared_with_few_others(
    api: ApiClient, compared: list[tuple[int, int]], wrong: dict[str, Any], advice: str
) -> None:
    problem = await api.problem("POST", JOBS, 422, json={**JOB, **wrong})
    assert advice in problem["detail"]
    assert len(problem["detail"]) < 2_000
    assert_cheap(compared, 1)


@pytest.mark.parametrize("wrong", [{"timezone": "Europe/Berlim"}, {"prioritty": 1}], ids=["zone", "field"])
async def test_a_batch_is_refused_after_a_hundred_faults_and_the_rest_is_not_examined(
    api: ApiClient, compared: list[tuple[int, int]], wrong: dict[str, Any]
) -> None:
    problem = await api.problem("POST", BATCH, 422, json=[{**JOB, **wrong}] * 1_000)
    assert problem["detail"].startswith(f"More than {MOST_FAULTS} of the jobs are wrong, so none was registered; at ")
    assert len(problem["errors"]) == MOST_FAULTS
    assert_cheap(compared, MOST_FAULTS + 1)
