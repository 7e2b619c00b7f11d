"""Many jobs in one call, as JSON and as NDJSON: all or none, and every error with its position."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from detent.api import batch
from tests.api.api_client import HTTP, ApiClient
from tests.api.api_server import Readiness, serving

PATH = "/api/v1/jobs/batch"
NDJSON = {"Content-Type": "application/x-ndjson"}
JSON = {"Content-Type": "application/json"}


def job(name: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"schedule": "every 1h", "target": HTTP, **({"name": name} if name else {}), **fields}


def lines(jobs: list[Any]) -> bytes:
    return b"".join(msgspec.json.encode(each) + b"\n" for each in jobs)


@pytest.mark.parametrize("form", ["array", "object", "lines"])
async def test_a_batch_is_registered_in_any_form(api: ApiClient, form: str) -> None:
    jobs = [job(f"n{number}", payload={"n": number}) for number in range(60)] + [job()]
    bodies: dict[str, dict[str, Any]] = {
        "array": {"json": jobs},
        "object": {"json": {"jobs": jobs}},
        "lines": {"data": b"\n" + lines(jobs) + b" \r\n", "headers": NDJSON},
    }
    answer = await api.good("POST", PATH, **bodies[form])
    assert (answer["created"], answer["updated"], answer["unchanged"]) == (61, 0, 0)
    assert [item["name"] for item in answer["items"][:60]] == [f"n{number}" for number in range(60)]
    assert answer["items"][0].keys() == {"id", "name", "change", "revision"}
    last = await api.good("GET", f"/api/v1/jobs/{answer['items'][60]['id']}")
    assert last["name"] == answer["items"][60]["name"]
    assert last["name"].startswith("job-")
    assert (await api.good("GET", "/api/v1/jobs/n7"))["payload"] == {"n": 7}


async def test_an_upsert_says_what_it_did_and_the_second_time_nothing(api: ApiClient) -> None:
    await api.create(name="n1", priority=1)
    jobs = [job(f"n{number}") for number in range(3)]
    first = await api.good("POST", f"{PATH}?mode=upsert", json=jobs)
    assert [item["change"] for item in first["items"]] == ["created", "updated", "created"]
    assert [item["revision"] for item in first["items"]] == [1, 2, 1]
    before = await api.good("GET", "/api/v1/jobs")
    second = await api.good("POST", f"{PATH}?mode=upsert", json=jobs)
    assert (second["created"], second["updated"], second["unchanged"]) == (0, 0, 3)
    assert await api.good("GET", "/api/v1/jobs") == before


async def test_warnings_come_with_the_item_they_are_about(api: ApiClient) -> None:
    answer = await api.good("POST", PATH, json=[job("a"), job("b", idempotency_key_template="{{job}}")])
    assert "warnings" not in answer["items"][0]
    assert "every tick has the same key" in answer["items"][1]["warnings"][0]


async def test_every_wrong_item_is_reported_and_none_is_registered(api: ApiClient, sql: Any) -> None:
    jobs: list[Any] = [
        job("a"),
        job("b", schedule="61 * * * *"),
        job("c", prioritty=1),
        7,
        job("a"),
        job("d", payload="\0"),
    ]
    problem = await api.problem("POST", PATH, 422, json=jobs)
    assert problem["type"] == "/problems/many-faults"
    assert [error["pointer"] for error in problem["errors"]] == [
        "/1/schedule",
        "/2/prioritty",
        "/3",
        "/4/name",
        "/5/payload",
    ]
    assert "minute" in problem["errors"][0]["detail"]
    assert "did you mean priority?" in problem["errors"][1]["detail"]
    assert problem["pointer"] == "/1/schedule"
    assert await sql.fetchval("SELECT count(*) FROM jobs") == 0


async def test_a_line_that_is_no_json_is_reported_with_the_others(api: ApiClient) -> None:
    body = lines([job("a")]) + b'{"schedule": \n' + b'"\xff"\n' + lines([job("b", priority=101)])
    problem = await api.problem("POST", PATH, 422, data=body, headers=NDJSON)
    assert [error["pointer"] for error in problem["errors"]] == ["/1", "/2", "/3/priority"]
    assert "not JSON" in problem["errors"][0]["detail"]


async def test_names_that_are_taken_are_a_conflict_that_points_at_each(api: ApiClient) -> None:
    await api.create(name="n2")
    await api.create(name="n5")
    jobs = [job(f"n{number}") for number in range(60)]
    problem = await api.problem("POST", PATH, 409, json=jobs)
    assert [error["pointer"] for error in problem["errors"]] == ["/2/name", "/5/name"]
    assert (await api.good("GET", "/api/v1/jobs?prefix=n"))["items"][-1]["name"] == "n5"


BAD: dict[str, tuple[Any, dict[str, str], int, str]] = {
    # what is sent, its headers, the status, part of the sentence
    "no job": ([], JSON, 422, "The batch has no job"),
    "no jobs in the object": ({"jobs": []}, JSON, 422, "The batch has no job"),
    "no lines": (b"\n \n", NDJSON, 422, "The batch has no job"),
    "an unknown field beside the jobs": ({"jobs": [job()], "mode": "upsert"}, JSON, 422, "no field"),
    "jobs that are not a list": ({"jobs": job()}, JSON, 422, "jobs is"),
    "no jobs at all": ({}, JSON, 422, "jobs is missing"),
    "a text": ("jobs", JSON, 422, "not a list of jobs"),
    "nothing": (b"", JSON, 400, "not JSON"),
    "half an array": (b"[{", JSON, 400, "not JSON"),
    "two documents": (b"[] []", JSON, 400, "not JSON"),
    "a form": (b"jobs=1", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "application/x-ndjson"),
    "nesting without end": (b"[" * 500_000, JSON, 422, "64 levels"),
    "nesting without end in an item": (
        b'[{"payload": ' + b"[" * 500_000 + b"]" * 500_000 + b"}]",
        JSON,
        422,
        "64 levels",
    ),
}


@pytest.mark.parametrize("what", BAD)
async def test_what_is_no_batch_is_refused(api: ApiClient, what: str) -> None:
    sent, headers, status, words = BAD[what]
    data = sent if isinstance(sent, bytes) else json.dumps(sent)
    problem = await api.problem("POST", PATH, status, data=data, headers=headers)
    assert words in problem["detail"]


async def test_a_batch_may_have_ten_thousand_jobs_and_not_one_more(api: ApiClient, sql: Any) -> None:
    body = lines([job()]) * batch.MAX_JOBS
    answer = await api.good("POST", PATH, data=body, headers=NDJSON)
    assert (answer["created"], len(answer["items"])) == (10_000, 10_000)
    problem = await api.problem("POST", PATH, 422, data=body + lines([job()]), headers=NDJSON)
    assert "10001 jobs" in problem["detail"]
    assert await sql.fetchval("SELECT count(*) FROM jobs") == 10_000
    assert await sql.fetchval("SELECT count(*) FROM cursors") == 10_000
    assert await sql.fetchval("SELECT count(*) FROM schedules") == 1


async def test_a_batch_has_a_limit_of_its_own(
    database_url: str, readiness: Readiness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch.BatchBody, "max_bytes", 5_000)
    async with serving(database_url, readiness, max_payload_bytes=100) as api:
        problem = await api.problem("POST", PATH, 413, data=b" " * 5_001, headers=JSON)
        assert "5000 bytes" in problem["detail"]
        problem = await api.problem("POST", PATH, 422, json=[job(), job(payload="x" * 99)])
        assert (problem["pointer"], "100" in problem["errors"][0]["detail"]) == ("/1/payload", True)


async def test_an_unknown_mode_is_refused(api: ApiClient) -> None:
    problem = await api.problem("POST", f"{PATH}?mode=merge", 422, json=[job()])
    assert problem["pointer"] == "/mode"


async def test_a_job_may_be_named_like_the_path_of_batches(api: ApiClient) -> None:
    created = await api.create(name="batch")
    assert await api.good("GET", PATH) == created
