"""PATCH, ETag, If-Match and If-None-Match: a change is made to what was seen, or not at all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from detent.domain.job import JobSpec
from tests.api.api_client import HTTP, ApiClient

JOB = {"schedule": "every 1h", "target": HTTP}


async def test_the_tag_of_a_job_is_its_revision_in_every_answer(api: ApiClient) -> None:
    created = await api.ask("POST", "/api/v1/jobs", json={**JOB, "name": "a"})
    read = await api.ask("GET", "/api/v1/jobs/a")
    put = await api.ask("PUT", "/api/v1/jobs/by-name/a", json={**JOB, "priority": 1})
    patched = await api.ask("PATCH", "/api/v1/jobs/a", json={"priority": 2})
    paused = await api.ask("POST", "/api/v1/jobs/a/pause")
    tags = [answer.headers["ETag"] for answer in (created, read, put, patched, paused)]
    assert tags == ['"1"', '"1"', '"2"', '"3"', '"3"']


async def test_a_patch_changes_the_fields_it_names_and_no_other(api: ApiClient) -> None:
    document = {"payload": {"a": 1}, "tags": ["x"], "priority": 3, "timezone": "Asia/Tokyo", "max_retries": 9}
    job = await api.create(name="a", schedule="0 9 * * *", **document)
    answer = await api.ask("PATCH", f"/api/v1/jobs/{job['id']}", json={"priority": 7, "payload": {"b": 2}})
    assert (answer.status, answer.headers["Detent-Change"]) == (200, "updated")
    changed = {"priority": 7, "payload": {"b": 2}, "revision": 2, "updated_at": answer.document["updated_at"]}
    assert answer.document == {**job, **changed}
    same = await api.ask("PATCH", "/api/v1/jobs/a", json={"priority": 7})
    assert (same.headers["Detent-Change"], same.document["revision"]) == ("unchanged", 2)
    nothing = await api.ask("PATCH", "/api/v1/jobs/a", json={})
    assert nothing.headers["Detent-Change"] == "unchanged"


async def test_null_puts_a_field_back_to_its_default(api: ApiClient) -> None:
    fields = {"payload": 1, "tags": ["x"], "priority": 3, "timezone": "Asia/Tokyo", "max_runs": 4, "queue": "q"}
    await api.create(name="a", schedule="0 9 * * *", **fields)
    job = await api.good("PATCH", "/api/v1/jobs/a", json=dict.fromkeys(fields))
    assert {field: job[field] for field in fields} == {
        "payload": None,
        "tags": [],
        "priority": 5,
        "timezone": "UTC",
        "max_runs": None,
        "queue": "default",
    }
    problem = await api.problem("PATCH", "/api/v1/jobs/a", 422, json={"target": None})
    assert (problem["pointer"], "no default" in problem["detail"]) == ("/target", True)


async def test_every_field_of_a_job_can_be_patched(api: ApiClient) -> None:
    described = await api.good("GET", "/openapi.json")
    assert described["components"]["schemas"]["JobPatch"]["properties"].keys() == set(JobSpec.__struct_fields__)
    await api.create(name="a")
    defaults = msgspec.to_builtins(JobSpec(name="a", schedule="every 1h", target=HTTP))  # type: ignore[arg-type]
    assert (await api.ask("PATCH", "/api/v1/jobs/a", json=defaults)).headers["Detent-Change"] == "unchanged"


async def test_an_edit_never_fires_and_only_a_new_schedule_moves_the_next_tick(api: ApiClient, sql: Any) -> None:
    job = await api.create(name="a")
    kept = await api.good("PATCH", "/api/v1/jobs/a", json={"priority": 9, "timeout_seconds": 1})
    assert kept["next_run_at"] == job["next_run_at"]
    moved = await api.good("PATCH", "/api/v1/jobs/a", json={"schedule": "every 2h"})
    assert moved["next_run_at"] > job["next_run_at"]
    assert (
        await sql.fetchval("SELECT count(*) FROM live_runs") + await sql.fetchval("SELECT count(*) FROM run_history")
        == 0
    )


async def test_a_zone_inside_the_old_schedule_does_not_stay_behind(api: ApiClient) -> None:
    await api.create(name="inside", schedule="CRON_TZ=Asia/Tokyo 0 9 * * *")
    job = await api.good("PATCH", "/api/v1/jobs/inside", json={"schedule": "CRON_TZ=Europe/Berlin 0 9 * * *"})
    assert job["timezone"] == "Europe/Berlin"
    await api.create(name="beside", schedule="0 9 * * *", timezone="Asia/Tokyo")
    assert (await api.good("PATCH", "/api/v1/jobs/beside", json={"schedule": "0 8 * * *"}))["timezone"] == "Asia/Tokyo"


async def test_a_job_is_renamed_unless_the_name_is_taken(api: ApiClient) -> None:
    job = await api.create(name="a")
    await api.create(name="b")
    problem = await api.problem("PATCH", "/api/v1/jobs/a", 409, json={"name": "b"})
    assert "job named 'b' already exists" in problem["detail"]
    renamed = await api.good("PATCH", "/api/v1/jobs/a", json={"name": "c"})
    assert (renamed["id"], renamed["name"]) == (job["id"], "c")
    await api.problem("GET", "/api/v1/jobs/a", 404)
    assert (await api.good("GET", "/api/v1/jobs/c"))["id"] == job["id"]
    assert (await api.create(name="a"))["id"] != job["id"]


BAD_PATCHES: dict[str, tuple[Any, str]] = {
    "unknown field": ({"prioritty": 1}, "/prioritty"),
    "wrong type": ({"priority": "high"}, "/priority"),
    "out of bounds": ({"priority": 101}, "/priority"),
    "bad schedule": ({"schedule": "61 * * * *"}, "/schedule"),
    "bad target": ({"target": {"type": "http", "url": "ftp://x"}}, "/target/url"),
    "NUL": ({"payload": {"a": "\0"}}, "/payload/a"),
    "a field that is not the user's": ({"status": "paused"}, "/status"),
    "no object": ([], ""),
    "bad name": ({"name": " a"}, "/name"),
    "past end": ({"ends_at": "2001-01-01T00:00:00Z"}, "/ends_at"),
}


@pytest.mark.parametrize("what", BAD_PATCHES)
async def test_a_bad_patch_is_refused_where_it_is_wrong(api: ApiClient, what: str) -> None:
    body, pointer = BAD_PATCHES[what]
    before = await api.create(name="a")
    problem = await api.problem("PATCH", "/api/v1/jobs/a", 422, json=body)
    assert problem["pointer"] == pointer
    assert await api.good("GET", "/api/v1/jobs/a") == before


async def test_a_change_to_another_revision_is_refused_with_the_one_there_is(api: ApiClient) -> None:
    await api.create(name="a")
    await api.good("PATCH", "/api/v1/jobs/a", json={"priority": 1}, headers={"If-Match": '"1"'})
    changes: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("PATCH", "/api/v1/jobs/a", {"json": {"priority": 2}}),
        ("PUT", "/api/v1/jobs/by-name/a", {"json": JOB}),
        ("DELETE", "/api/v1/jobs/a", {}),
    )
    for tag in ('"1"', '"3", "9"', 'W/"2"', '"02"', '"x"'):
        for method, path, options in changes:
            answer = await api.ask(method, path, headers={"If-Match": tag}, **options)
            assert answer.status == 412
            assert (answer.document["revision"], answer.headers["ETag"]) == (2, '"2"')
            assert answer.document["type"] == "/problems/revision-mismatch"
            assert "revision 2" in answer.document["detail"]
    job = await api.good("GET", "/api/v1/jobs/a")
    assert (job["revision"], job["priority"]) == (2, 1)
    for tag in ('"2"', '"1", "2"', "*"):
        await api.good("PUT", "/api/v1/jobs/by-name/a", json={**JOB, "priority": 1}, headers={"If-Match": tag})
    await api.good("DELETE", "/api/v1/jobs/a", 204, headers={"If-Match": '"2"'})


async def test_a_put_may_ask_for_a_job_that_is_there_or_for_none(api: ApiClient) -> None:
    path = "/api/v1/jobs/by-name/a"
    problem = await api.problem("PUT", path, 412, json=JOB, headers={"If-Match": "*"})
    assert "no such job" in problem["detail"]
    await api.good("PUT", path, 201, json=JOB, headers={"If-None-Match": "*"})
    problem = await api.problem("PUT", path, 412, json=JOB, headers={"If-None-Match": "*"})
    assert problem["revision"] == 1
    await api.problem("PUT", path, 400, json=JOB, headers={"If-None-Match": '"1"'})


@pytest.mark.parametrize("tag", ["3", "'3'", '"3', "", '"1" "2"', '"1",, "2"'])
async def test_a_tag_that_cannot_be_read_is_refused(api: ApiClient, tag: str) -> None:
    await api.create(name="a")
    problem = await api.problem("DELETE", "/api/v1/jobs/a", 400, headers={"If-Match": tag})
    assert "If-Match" in problem["detail"]


async def test_an_unchanged_job_need_not_be_sent_again(api: ApiClient) -> None:
    await api.create(name="a")
    for tag in ('"1"', 'W/"1"', '"7", "1"', "*"):
        answer = await api.ask("GET", "/api/v1/jobs/a", headers={"If-None-Match": tag})
        assert (answer.status, answer.document, answer.headers["ETag"]) == (304, None, '"1"')
    await api.good("GET", "/api/v1/jobs/a", headers={"If-None-Match": '"2"'})
    await api.problem("GET", "/api/v1/jobs/b", 404, headers={"If-None-Match": "*"})


async def test_of_two_changes_at_once_to_one_revision_one_is_made(api: ApiClient) -> None:
    import asyncio

    await api.create(name="a")
    answers = await asyncio.gather(
        *(api.ask("PATCH", "/api/v1/jobs/a", json={"priority": n}, headers={"If-Match": '"1"'}) for n in range(5))
    )
    unchanged = 1  # one of them asks for the priority that the job has
    assert sorted(answer.status for answer in answers)[: 1 + unchanged].count(200) >= 1
    assert (await api.good("GET", "/api/v1/jobs/a"))["revision"] == 2
