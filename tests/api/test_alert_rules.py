"""Alert rules over the API: what they may be, what is refused and where, and who may change them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from detent.runtime.envelope import generate_master_key
from tests.api.api_client import ApiClient
from tests.api.api_server import Readiness, serving

RULES = "/api/v1/alert-rules"
WEBHOOK = {"type": "webhook", "url": "https://hooks.example.com/detent"}
EMAIL = {"type": "email", "host": "smtp.example.com", "sender": "detent@example.com", "to": ["ops@example.com"]}


@pytest.fixture
async def api(database_url: str, readiness: Readiness) -> AsyncIterator[ApiClient]:
    async with serving(database_url, readiness, secret_key=generate_master_key()) as client:
        yield client


def rule(**fields: Any) -> dict[str, Any]:
    return {"name": "ops", "events": ["dead"], "receiver": WEBHOOK, **fields}


async def test_a_rule_is_created_listed_changed_tested_and_deleted(api: ApiClient, sql: Any) -> None:
    made = await api.good("POST", RULES, 201, json=rule(quiet_hours={"start": "22:00", "end": "07:00"}))
    assert (made["name"], made["min_severity"], made["group_seconds"], made["enabled"]) == ("ops", "info", 30, True)
    changed = await api.good("PATCH", f"{RULES}/ops", json={"events": ["deadline"], "quiet_hours": None})
    assert (changed["events"], changed["quiet_hours"], changed["receiver"]) == (["deadline"], None, WEBHOOK)
    assert await api.good("GET", f"{RULES}/ops") == changed
    assert [one["name"] for one in (await api.good("GET", RULES))["items"]] == ["ops"]
    message = await api.good("POST", f"{RULES}/ops/test", 202)
    assert (message["event"], message["status"], message["alert"]) == ("test", "waiting", None)
    assert (await api.good("GET", f"{RULES}/ops/messages"))["items"] == [message]
    await api.good("DELETE", f"{RULES}/ops", 204)
    assert (
        await sql.fetchval("SELECT count(*) FROM notices") + await sql.fetchval("SELECT count(*) FROM alert_rules") == 0
    )


async def test_a_disabled_rule_asks_the_database_for_no_events(api: ApiClient, sql: Any) -> None:
    await api.good("POST", RULES, 201, json=rule())
    await api.good("PATCH", f"{RULES}/ops", json={"enabled": False})
    assert await sql.fetchval("SELECT events FROM alert_rules") == []


@pytest.mark.parametrize(
    ("body", "pointer", "part"),
    [
        (rule(events=["dead", "burning"]), "/events/1", "burning"),
        (rule(events=[]), "/events", ""),
        (rule(receiver={"type": "pigeon"}), "/receiver/type", "webhook"),
        (rule(receiver={"type": "webhook", "url": "ftp://example.com/"}), "/receiver/url", "http"),
        (rule(receiver={**EMAIL, "to": ["ops@example.com", "ops"]}), "/receiver/to/1", "ops@example.com"),
        (rule(receiver={**EMAIL, "sender": "a@b\r\nBcc: x@y.z"}), "/receiver/sender", "address"),
        (rule(receiver={**EMAIL, "host": "smtp.example.com:25"}), "/receiver/host", "receiver.port"),
        (rule(receiver={**EMAIL, "username": "detent"}), "/receiver/password", "neither"),
        (
            rule(receiver={**EMAIL, "tls": "none", "username": "a", "password": {"secret": "env:X"}}),
            "/receiver/tls",
            "without TLS",
        ),
        (rule(receiver={**EMAIL, "password": "in plain text", "username": "a"}), "/receiver/password", "secret"),
        (
            rule(quiet_hours={"start": "22:00", "end": "07:00", "timezone": "Europe/Berln"}),
            "/quiet_hours/timezone",
            "Berlin",
        ),
        (rule(quiet_hours={"start": "25:00", "end": "07:00"}), "/quiet_hours/start", "22:00"),
        (rule(quiet_hours={"start": "07:00", "end": "07:00"}), "/quiet_hours/end", "different"),
        (rule(min_severity="dreadful"), "/min_severity", "critical"),
        (rule(name="a rule"), "/name", "such as payments"),
        (rule(evnts=["dead"]), "/evnts", "events"),
        (rule(group_seconds=-1), "/group_seconds", ""),
        (
            rule(receiver={"type": "pagerduty", "routing_key": {"secret": "nowhere"}}),
            "/receiver/routing_key",
            "detent secret set nowhere",
        ),
    ],
)
async def test_what_cannot_be_a_rule_is_refused_at_its_place_and_changes_nothing(
    api: ApiClient, sql: Any, body: dict[str, Any], pointer: str, part: str
) -> None:
    problem = await api.problem("POST", RULES, 422, json=body)
    assert problem["pointer"] == pointer and part in problem["detail"], problem
    assert await sql.fetchval("SELECT count(*) FROM alert_rules") == 0


async def test_a_change_is_checked_as_a_whole(api: ApiClient) -> None:
    await api.good("POST", RULES, 201, json=rule())
    answer = await api.ask("PATCH", f"{RULES}/ops", json={"receiver": {**EMAIL, "password": {"secret": "no"}}})
    assert answer.document["pointer"] == "/receiver/username"
    answer = await api.ask("PATCH", f"{RULES}/ops", json={"receiver": {"type": "slack", "url": {"secret": "no"}}})
    assert answer.document["pointer"] == "/receiver/url"
    assert (await api.good("GET", f"{RULES}/ops"))["receiver"] == WEBHOOK


async def test_a_name_is_taken_once_and_unknown_rules_are_not_found(api: ApiClient) -> None:
    await api.good("POST", RULES, 201, json=rule())
    assert (await api.ask("POST", RULES, json=rule())).status == 409
    for method, path in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/test"), ("GET", "/messages")):
        body = {"json": {"enabled": False}} if method == "PATCH" else {}
        assert (await api.ask(method, f"{RULES}/other{path}", **body)).status == 404, (method, path)


async def test_a_rule_of_a_newer_version_is_named_as_that_and_does_not_hide_others(api: ApiClient, sql: Any) -> None:
    for name in ("new", "ops"):
        await api.good("POST", RULES, 201, json=rule(name=name))
    await sql.execute("UPDATE alert_rules SET definition = definition || '{\"of_tomorrow\": 1}' WHERE name = 'new'")
    for method, options in (("GET", {}), ("PATCH", {"json": {"enabled": False}})):
        problem = await api.problem(method, f"{RULES}/new", 409, **options)
        assert "'new' was written by a newer version of detent" in problem["detail"]
    assert [one["name"] for one in (await api.good("GET", RULES))["items"]] == ["ops"]
    assert await sql.fetchval("SELECT count(*) FROM alert_rules WHERE events = '{}'") == 0
    await api.good("DELETE", f"{RULES}/new", 204)


async def test_a_secret_that_a_rule_refers_to_is_not_deleted(api: ApiClient) -> None:
    await api.good("PUT", "/api/v1/secrets/slack-url", json={"value": "https://hooks.example.com/T0/B0"})
    await api.good("POST", RULES, 201, json=rule(receiver={"type": "slack", "url": {"secret": "slack-url"}}))
    refused = await api.ask("DELETE", "/api/v1/secrets/slack-url")
    assert refused.status == 409 and "the alert rule ops refers to it" in refused.document["detail"]
    await api.good("DELETE", f"{RULES}/ops", 204)
    await api.good("DELETE", "/api/v1/secrets/slack-url", 204)
