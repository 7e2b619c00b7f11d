"""Large jobs, and sentences about wrong ones: the loop that fires ticks does not wait for long."""

from __future__ import annotations

import difflib
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from detent.domain import registration
from detent.domain.job import HttpTarget, JobSpec
from detent.domain.registration_cost import is_large
from detent.jobs.batches import MAX_FAULTS
from tests.api.api_client import HTTP, ApiClient
from tests.api.api_server import Readiness, serving

JOBS, BATCH = "/api/v1/jobs", "/api/v1/jobs/batch"
JOB: dict[str, Any] = {"schedule": "@daily", "target": HTTP}
LONG = "Europe/Berlim" * 8_000
# A comparison costs about ten microseconds with each known name of this length.
MAX_CHARACTERS = MAX_KNOWN = 100


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
    assert max((size for size, _ in compared), default=0) <= MAX_CHARACTERS
    assert max((known for _, known in compared), default=0) <= MAX_KNOWN


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
    assert problem["detail"].startswith(f"More than {MAX_FAULTS} of the jobs are wrong, so none was registered; at ")
    assert len(problem["errors"]) == MAX_FAULTS
    assert_cheap(compared, MAX_FAULTS + 1)


NESTED: dict[str, Any] = {"a": {"b": [{"c": [[number] for number in range(50)]} for _ in range(40)]}}


@pytest.mark.parametrize(
    ("payload", "large"),
    [
        (None, False),
        ({"order": 7, "lines": ["a"] * 500}, False),
        ("a" * 50_000, False),
        ("a" * 200_000, True),
        ({"a" * 200_000: 1}, True),
        ([1] * 5_000, True),
        (NESTED, True),
    ],
    ids=["none", "usual", "text", "long text", "long key", "list", "nested"],
)
def test_a_payload_that_takes_long_to_check_is_recognised(payload: Any, large: bool) -> None:
    assert is_large(JobSpec(schedule="@daily", target=HttpTarget(url="http://127.0.0.1:9/"), payload=payload)) is large


@pytest.mark.parametrize("path", [JOBS, BATCH, f"{JOBS}/by-name/a"], ids=["one", "batch", "upsert"])
async def test_a_large_payload_is_not_checked_on_the_loop_that_fires(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    where: list[threading.Thread] = []

    def prepare(*arguments: Any, **options: Any) -> Any:
        where.append(threading.current_thread())
        return registration.prepare(*arguments, **options)

    for module in ("register", "batches"):
        monkeypatch.setattr(f"detent.jobs.{module}.prepare", prepare)
    job = {**JOB, "payload": NESTED}
    for _ in range(2):  # created, and changed
        answer = await api.ask("PUT" if "by-name" in path else "POST", path, json=[job] * 2 if path == BATCH else job)
        assert answer.status in (200, 201), answer.document
        job["priority"] = 7
    assert where
    assert threading.main_thread() not in where


async def test_a_job_of_a_batch_may_be_as_large_as_one_that_is_sent_alone(database_url: str) -> None:
    async with serving(database_url, Readiness({}), max_payload_bytes=1_000) as api:
        job = {**JOB, "payload": "a" * 70_000}
        assert (await api.problem("POST", JOBS, 413, json=job))["detail"]
        problem = await api.problem("POST", BATCH, 422, json=[JOB, job])
        assert problem["errors"][0]["pointer"] == "/1"
        assert "bytes of JSON and 66536 are allowed: make it shorter." in problem["detail"]
