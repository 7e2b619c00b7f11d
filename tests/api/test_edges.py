"""Instants and durations at the edge of what can be written, in every field that takes one: never a 500."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.api.api_client import ApiClient
from tests.api.test_route_matrix import TRACE, Call, _bodies, _name, bodies
from tests.api.two_tenants import JOB, World

INSTANTS = (
    "0001-01-01T00:00:00+14:00",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00.000001-14:00",
    "1969-12-31T23:59:59.999Z",
    "1970-01-01T00:00:00+14:00",
    "1970-01-01T00:00:00Z",
    "1971-01-01T00:00:00+14:00",
    "9000-12-31T23:59:59-14:00",
    "9000-12-31T23:59:59.999999Z",
    "9989-12-31T23:59:59Z",
    "9999-12-31T23:59:59-14:00",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59+23:59",
)
NUMBERS = (0, 1, 2**31 - 1, 2**31, 10**10, 2**53, 2**63 - 1, 2**63, 10**30, 1e308, 0.0000001, -1)
SCHEDULES: tuple[Any, ...] = (
    *INSTANTS,
    *({"at": instant} for instant in INSTANTS),
    *(f"every {seconds}s" for seconds in (10**9 - 1, 10**10, 10**30)),
    *("every 3660d", "every 3661d", "every 999999999w", "PT999999999999S", "P9999999999999999W"),
    *({"every": number} for number in NUMBERS),
    *({"every": "1h", "anchor": instant} for instant in INSTANTS),
    *(f"DTSTART:{year}0101T000000Z\nRRULE:FREQ=YEARLY" for year in ("0001", "1970", "8999", "9999")),
    *(f"DTSTART:20300101T000000Z\nRRULE:FREQ=DAILY;UNTIL={year}1231T235959Z" for year in ("0001", "1970", "9999")),
    *("RRULE:FREQ=YEARLY;INTERVAL=999999999", "RRULE:FREQ=SECONDLY;INTERVAL=999999999999", "RRULE:FREQ=DAILY;COUNT=1"),
    *("0 0 29 2 *", "0 0 0 1 1 ? 2099", "0 0 0 1 1 ? 9999"),
)
ZONES = ("UTC", "Pacific/Kiritimati", "Etc/GMT+12", "Africa/Monrovia")


class Own(NamedTuple):
    """What the caller has: a job, and a run of it."""

    job: str
    run: str


@pytest.fixture
async def own(api: ApiClient) -> Own:
    job = await api.good("POST", "/api/v1/jobs", 201, json=JOB | {"name": "own"})
    run = await api.good("POST", f"/api/v1/jobs/{job['id']}/trigger", 202)
    return Own(job["id"], run["id"])


def fields_of(document: Any, operation: Any) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Where in the request, its name, and values to try."""
    for parameter in operation["parameters"]:
        values = values_for(document, parameter["schema"])
        if values:
            yield parameter["in"], parameter["name"], values
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    schema = content["schema"] if content else {}
    if name := _name(schema):
        schema = document["components"]["schemas"][name]
    for name, field in schema.get("properties", {}).items():
        values = SCHEDULES if name == "schedule" else values_for(document, field)
        if values:
            yield "body", name, values


def values_for(document: Any, schema: Any) -> tuple[Any, ...]:
    found: tuple[Any, ...] = ()
    for each in (schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())):
        if each.get("format") == "date-time":
            found += INSTANTS
        if each.get("type") in ("number", "integer"):
            found += NUMBERS
    return found


def every_try(document: Any, own: Own, world: World, most: int) -> Iterator[tuple[Call, dict[str, str]]]:
    """The cases, with at most `most` random values for a field; the seed makes them the same every time."""
    chance = random.Random(16)
    for template, operations in document["paths"].items():
        path = template.replace("{id}", own.run if "/runs/" in template else own.job)
        path = path.replace("{name}", "default").replace("{queue}", "empty").replace("{revision}", "1")
        for method, operation in operations.items():
            body = _bodies(document, operation, bodies(world))[0]
            for where, name, values in fields_of(document, operation):
                for value in chance.sample(values, min(most, len(values))):
                    if name == "wait_seconds" and 0 < value < 1000:
                        continue  # that is how long it would take
                    changed = {**body, name: value} if where == "body" else body
                    query = {name: str(value)} if where == "query" else {}
                    yield Call(method.upper(), template, path, changed, ""), query


@pytest.mark.parametrize("most", [6, pytest.param(1000, marks=pytest.mark.long)], ids=["some", "all"])
async def test_no_field_of_any_request_fails_on_an_instant_or_a_number_at_the_edge(
    api: ApiClient, own: Own, most: int
) -> None:
    world = World(job=own.job, run=own.run, dead_run=own.run)
    tries = list(every_try(await api.good("GET", "/openapi.json"), own, world, most))
    assert len(tries) > 300
    at_once, failed, refused = asyncio.Semaphore(10), [], []

    async def ask(call: Call, query: dict[str, str]) -> None:
        options = {} if call.body is None else {"json": call.body}
        async with at_once:
            answer = await api.ask(
                call.method, call.path, headers={**TRACE, "Connection": "close"}, params=query, **options
            )
        if answer.status >= 500:
            failed.append((call.method, call.template, query, call.body, answer.status))
        if answer.status == 422:
            refused.append(answer.document)

    await asyncio.gather(*(ask(*each) for each in tries))
    assert failed == []
    assert [problem for problem in refused if problem.get("pointer") is None] == []
    assert any("of the years 1970 to 9000" in problem["detail"] for problem in refused)


@pytest.mark.parametrize("jobs", [50, pytest.param(150, marks=pytest.mark.long)])
async def test_no_job_with_any_schedule_and_bounds_at_the_edge_fails_whatever_is_asked_of_it(
    api: ApiClient, jobs: int
) -> None:
    chance = random.Random(20261116)
    failed = []
    for number in range(jobs):
        document = JOB | {
            "name": f"job-{number}",
            "schedule": chance.choice(SCHEDULES),
            "timezone": chance.choice(ZONES),
        }
        for name in ("starts_at", "ends_at"):
            if chance.random() < 0.3:
                document[name] = chance.choice(INSTANTS)
        document["allow_past"] = chance.random() < 0.5
        answers = [await api.ask("POST", "/api/v1/schedules/preview", json=preview_of(document, chance))]
        answers.append(await api.ask("POST", "/api/v1/jobs", json=document))
        if answers[-1].status == 201:
            job = f"/api/v1/jobs/{answers[-1].document['id']}"
            since, until = sorted(chance.choices(INSTANTS, k=2))
            answers += [
                await api.ask("GET", f"{job}/ticks", params={"from": since, "to": until}),
                await api.ask("POST", f"{job}/backfill", json={"from": since, "to": until}),
                await api.ask("POST", f"{job}/pause", json={"until": chance.choice(INSTANTS)}),
                await api.ask("POST", f"{job}/resume"),
                await api.ask("GET", job),
            ]
        failed += [(document, answer.status, answer.document) for answer in answers if answer.status >= 500]
    assert failed == []


def preview_of(document: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    asked = {name: document[name] for name in ("schedule", "timezone", "starts_at", "ends_at") if name in document}
    return asked | ({"from": chance.choice(INSTANTS)} if chance.random() < 0.5 else {})
