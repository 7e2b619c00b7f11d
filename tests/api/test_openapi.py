"""The committed description of the API is the one that the code gives, and a change that breaks clients is noticed."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from schemathesis.specs.openapi import definitions

import detent.api
from detent.api import problem_pages
from tests.api.api_client import ApiClient
from tests.api.openapi_file import OPENAPI, PROBLEMS, breaking, committed, generated, text_of

SOURCES = Path(detent.api.__file__).parent


def test_the_committed_description_is_the_one_that_the_code_gives() -> None:
    described, known = generated(), committed()
    broken = breaking(known, described)
    assert not broken, f"these changes break clients: {'; '.join(broken)}. If they are meant, run `make openapi`."
    assert described == known, "The API has changed: run `make openapi` and look at the difference."
    assert OPENAPI.read_text("utf-8") == text_of(described)


def test_the_description_is_valid_openapi() -> None:
    jsonschema_rs.validator_for(definitions.OPENAPI_31).validate(committed())


async def test_the_server_gives_out_the_committed_description(api: ApiClient) -> None:
    assert await api.good("GET", "/openapi.json") == committed()


def without(*steps: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for step in steps[:-1]:
            document = document[step]
        if isinstance(document, list):
            document.remove(steps[-1])
        else:
            del document[steps[-1]]

    return change


def with_value(value: Any, *steps: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for step in steps[:-1]:
            document = document[step]
        if isinstance(document, list):
            document.append(value)
        else:
            document[steps[-1]] = value

    return change


PATHS, SCHEMAS = "paths", ("components", "schemas")
JOBS = (PATHS, "/api/v1/jobs")
NEEDED = {"name": "why", "in": "query", "required": True, "schema": {"type": "string"}}
BREAKING: dict[str, tuple[Callable[[Any], None], str]] = {
    "a path": (without(PATHS, "/api/v1/runs"), "the path /api/v1/runs is gone"),
    "a method": (without(*JOBS, "post"), "POST /api/v1/jobs is gone"),
    "a parameter": (
        lambda d: d["paths"]["/api/v1/jobs"]["get"]["parameters"].pop(0),
        "no longer takes the query parameter",
    ),
    "a needed parameter": (with_value(NEEDED, *JOBS, "get", "parameters", -1), "now needs the query parameter why"),
    "a status": (without(*JOBS, "post", "responses", "201"), "POST /api/v1/jobs no longer answers 201"),
    "a media type": (
        without(PATHS, "/api/v1/jobs/batch", "post", "requestBody", "content", "application/x-ndjson"),
        "no longer takes application/x-ndjson",
    ),
    "a field of an answer": (
        without(*SCHEMAS, "Job", "properties", "next_run_at"),
        "Job no longer has the field next_run_at",
    ),
    "a field of a request": (
        without(*SCHEMAS, "JobSpec", "properties", "tags"),
        "JobSpec no longer has the field tags",
    ),
    "a needed field": (with_value("name", *SCHEMAS, "JobSpec", "required", -1), "JobSpec now needs the field name"),
    "a value": (
        without(*SCHEMAS, "Job", "properties", "delivery", "enum", "at_most_once"),
        "Job.delivery no longer takes or gives 'at_most_once'",
    ),
    "a value of a parameter": (
        without(PATHS, "/api/v1/jobs/batch", "post", "parameters", 0, "schema", "anyOf", 0, "enum", "upsert"),
        "parameter mode no longer may be its alternative 1",
    ),
    "a type": (with_value("string", *SCHEMAS, "Run", "properties", "job", "type"), ""),
    "another type": (with_value("integer", *SCHEMAS, "Run", "properties", "job", "type"), "Run.job has another type"),
    "an alternative": (
        lambda d: d["components"]["schemas"]["Run"]["properties"]["reason"]["anyOf"].pop(),
        "Run.reason no longer may be its alternative",
    ),
    "a schema": (without(*SCHEMAS, "Attempt"), "the schema Attempt is gone"),
    "a new field that may be left out": (
        with_value({"type": "string"}, *SCHEMAS, "JobSpec", "properties", "color"),
        "",
    ),
    "a new path": (with_value({}, PATHS, "/api/v1/new"), ""),
    "a new field of an answer": (with_value("color", *SCHEMAS, "Job", "required", -1), ""),
}


@pytest.mark.parametrize("what", BREAKING)
def test_what_a_client_may_stumble_over_is_reported(what: str) -> None:
    change, sentence = BREAKING[what]
    changed = copy.deepcopy(committed())
    change(changed)
    found = breaking(committed(), changed)
    if sentence:
        assert any(sentence in each for each in found), found
    else:
        assert found == []


def test_every_problem_has_its_page_and_every_page_its_problem() -> None:
    files = [*SOURCES.glob("*.py"), SOURCES.parent / "node" / "protocol.py"]
    source = "\n".join(file.read_text("utf-8") for file in files if file.name != "problem_pages.py")
    kinds = re.findall(r'(?:Kind|Refusal)\(\s*(\d{3}),\s*"([a-z-]+)"', source)
    slugs = set(re.findall(r'"((?:bad|invalid)[a-z-]*)"', source.partition("def _slug_for")[2].partition("\n\n")[0]))
    used = {(int(status), slug) for status, slug in kinds} | {(422, slug) for slug in slugs}
    assert used == {(status, slug) for slug, (status, _) in problem_pages.TEXTS.items()}


def test_the_manual_has_the_same_pages() -> None:
    assert PROBLEMS.read_text("utf-8") == problem_pages.manual(), "The pages have changed: run `make openapi`."


async def test_the_type_of_a_problem_leads_to_its_page(api: ApiClient) -> None:
    problem = await api.problem("GET", "/api/v1/jobs/nobody", 404)
    async with api.session.get(api.url + problem["type"]) as response:
        assert (response.status, response.content_type) == (200, "text/markdown")
        assert (await response.text()) == problem_pages.page("not-found")
    async with api.session.get(api.url + "/problems") as response:
        assert "`/problems/bad-schedule`, status 422" in await response.text()
    await api.problem("GET", "/problems/nothing", 404)


def test_every_operation_says_what_it_needs_and_what_it_answers() -> None:
    for methods in generated()["paths"].values():
        for operation in methods.values():
            assert operation["summary"].endswith(".")
            assert operation["responses"]["default"]["content"].keys() == {"application/problem+json"}
    assert json.loads(text_of(generated())) == generated()
