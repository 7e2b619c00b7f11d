"""Plans: what changes, shown part by part; and exports that read back as no change."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from detent.declarative import schema
from detent.declarative.export import export
from detent.declarative.jobs_file import Declared, read_files
from detent.declarative.plan import HIDDEN, Difference, make_plan, wanted_fields
from detent.domain.job import JobSpec

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
FILE = """owner: team-a
jobs:
  - name: report
    schedule: "0 9 * * MON"
    timezone: Europe/Berlin
    target:
      type: http
      url: https://example.org/report
      headers: {Authorization: secret-one, X-Kind: a}
    payload: {deep: {kind: full, parts: [1, 2]}, plain: true}
    starts_at: 2027-01-01T00:00:00+01:00
    tags: [a, b]
  - name: clean
    schedule: {every: 5m}
    target: {type: shell, command: [sh, -c, "echo on"], env: {A: "1"}}
    timeout_seconds: 60
"""


def declared(text: str = FILE) -> list[Declared]:
    found = read_files([("jobs.yaml", text)], NOW)
    assert found.faults == []
    return found.jobs


def served(jobs: list[Declared]) -> dict[str, dict[str, Any]]:
    """The jobs as the API would answer them."""
    return {
        job.name: {"name": job.name, "id": str(number), "owner": job.owner, **wanted_fields(job)}
        for number, job in enumerate(jobs)
    }


def test_what_the_server_has_not_is_created_and_what_it_has_is_left_alone() -> None:
    jobs = declared()
    assert [step.action for step in make_plan(jobs, {}).steps] == ["create", "create"]
    plan = make_plan(jobs, served(jobs))
    assert [step.action for step in plan.steps] == ["unchanged", "unchanged"] and plan.changes == 0


def test_differences_are_reported_by_field_and_secrets_are_masked() -> None:
    jobs = declared()
    current = served(jobs)
    current["report"]["target"] |= {"url": "https://old", "headers": {"Authorization": "other", "X-Kind": "a"}}
    current["report"]["payload"] = {"deep": {"kind": "full", "parts": [1]}, "plain": 1, "gone": "x"}
    current["clean"]["timeout_seconds"] = 60.0
    report, clean = make_plan(jobs, current).steps
    assert clean.action == "unchanged"
    assert report.differences == (
        Difference("target.url", "https://old", "https://example.org/report"),
        Difference("target.headers.Authorization", HIDDEN, HIDDEN),
        Difference("payload.deep.parts", [1], [1, 2]),
        Difference("payload.plain", 1, True),
        Difference("payload.gone", "x"),
    )


def test_a_target_of_another_kind_is_reported_as_one() -> None:
    jobs = declared()
    current = served(jobs)
    current["clean"]["target"] = {"type": "http", "url": "http://x", "method": "POST", "headers": {"A": "secret"}}
    (difference,) = make_plan(jobs, current).steps[1].differences
    assert difference.path == "target" and "secret" not in str(difference)
    assert difference.after["env"] == {"A": HIDDEN}


def test_an_owner_is_taken_over_and_never_taken_away() -> None:
    jobs = declared()
    current = served(jobs)
    current["report"]["owner"] = "team-b"
    step = make_plan(jobs, current).steps[0]
    assert step.differences == (Difference("owner", "team-b", "team-a"),)
    unlabelled = declared(FILE.replace("owner: team-a\n", ""))
    assert make_plan(unlabelled, current).changes == 0


def test_only_prunable_jobs_that_no_file_has_are_deleted() -> None:
    jobs = declared()
    prunable = [{"name": "old", "id": "9"}, {"name": "report", "id": "0"}]
    plan = make_plan(jobs, served(jobs), prunable)
    assert [(step.action, step.name) for step in plan.of("delete")] == [("delete", "old")]


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_an_export_reads_back_as_no_change(form: Any) -> None:
    current = served(declared())
    text = export(current.values(), "team-a", form)
    found = read_files([(f"jobs.{form}", text)], NOW)
    assert found.faults == []
    assert make_plan(found.jobs, current).changes == 0
    assert "max_retries" not in text and "POST" not in text


def test_an_export_leaves_out_every_field_that_has_its_default() -> None:
    bare = {"name": "bare", "target": {"type": "http", "url": "https://example.org/"}}
    empty = {"no_retry_on": [], "retry_on": [], "retry_delays": {}, "tags": [], "max_retries": 3}
    whole = {**bare, **empty}
    assert json.loads(export([whole], None, "json")) == {"jobs": [bare]}


def test_an_export_of_nothing_is_a_file_of_no_jobs() -> None:
    for form in ("yaml", "json"):
        found = read_files([(f"jobs.{form}", export([], None, form))], NOW)
        assert found.faults == [] and found.jobs == []


def test_the_schema_for_editors_is_that_of_the_types() -> None:
    stored = Path(__file__).parents[2] / "docs" / "jobs.schema.json"
    assert stored.read_text() == schema.written(), "run `make docs-cli`"


def test_the_schema_knows_every_field_and_refuses_others() -> None:
    document = json.loads(schema.written())
    job = document["$defs"]["JobSpec"]
    assert set(job["properties"]) == {field.name for field in msgspec.structs.fields(JobSpec)}
    assert job["additionalProperties"] is False and document["additionalProperties"] is False
    assert "name" not in document["properties"]["defaults"]["properties"]
