"""Jobs without a schedule, and concurrency keys: what is stored, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest

from detent.domain.concurrency import check_key, concurrency_key_of
from detent.domain.job import HttpTarget, JobSpec
from detent.domain.registration import CursorPlace, PreparedJob, Timings, place, prepare, read_document
from detent.domain.registration_cost import is_costly
from detent.domain.secret_ref import SecretRef
from detent.errors import UsageError

NOW = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)
JOB_ID = UUID("01980a3e-7c3f-7000-8000-00000000002a")
TARGET = HttpTarget(url="https://example.org/hook")
LATER = datetime(2030, 1, 1, tzinfo=UTC)


def task(**fields: Any) -> PreparedJob:
    return prepare(JobSpec(**{"target": TARGET, **fields}), JOB_ID, 42, NOW)


def refusal(**fields: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        task(**fields)
    return caught.value


def test_a_job_without_a_schedule_is_a_task_without_a_next_tick() -> None:
    made = task()
    assert place(made, NOW) == CursorPlace(None, None, -1) == Timings().place(made, NOW)
    assert made.schedule.describe() == "On demand"
    assert (made.stored, made.warnings) == ('{"kind":"never"}', [])
    assert not is_costly(made.spec)
    assert read_document({"target": {"type": "http", "url": "https://example.org/"}, "schedule": None}).schedule is None


@pytest.mark.parametrize(
    "fields",
    [
        {"missed_window": "SKIP"},
        {"max_missed": 7},
        {"misfire_grace_seconds": 60},
        {"concurrent_policy": "QUEUE"},
        {"max_concurrent": 2},
        {"jitter_seconds": 1.5},
        {"dst_gap": "skip"},
        {"dst_overlap": "both"},
        {"day_match": "or"},
        {"dialect": "quartz"},
        {"starts_at": LATER},
        {"ends_at": LATER},
        {"max_runs": 3},
        {"allow_past": True},
        {"expect_start_within": 60},
        {"expect_finish_within": 60},
        {"idempotency_key_template": "{{job}}-{{date}}"},
    ],
)
def test_a_field_about_ticks_is_refused_for_a_task(fields: dict[str, Any]) -> None:
    (name,) = fields
    error = refusal(**fields)
    assert error.pointer == f"/{name}"
    assert error.message.startswith(f"{name} is ") and "so it is a task" in error.message
    assert error.message.endswith(f"remove {name}, or give the job a schedule.")


def test_the_defaults_of_fields_about_ticks_are_allowed_for_a_task() -> None:
    assert task(missed_window="RUN_ONCE", max_missed=100, jitter_seconds=0, concurrent_policy="SKIP").lanes == 1


@pytest.mark.parametrize(
    "fields", [{"auto_pause_after": 3}, {"timezone": "Europe/Berlin"}, {"delivery": "at_most_once"}]
)
def test_what_is_about_runs_is_allowed_for_a_task(fields: dict[str, Any]) -> None:
    assert task(**fields).spec.schedule is None


def test_a_job_with_a_schedule_is_stored_as_versions_without_the_new_fields_read_it() -> None:
    stored = msgspec.json.decode(task(schedule="@daily").definition)
    assert stored["schedule"] == "@daily"
    assert not {"signing", "concurrency_key", "concurrency_limit", "concurrency_rate", "concurrency_scope"} & set(
        stored
    )
    signed = msgspec.json.decode(task(schedule="@daily", signing=SecretRef("key")).definition)
    assert signed["signing"] == {"secret": "key"} and "concurrency_key" not in signed


def test_limits_are_stored_and_read_back() -> None:
    made = task(
        concurrency_key="c-{{payload.a}}", concurrency_limit=2, concurrency_rate=0.5, concurrency_scope="tenant"
    )
    assert msgspec.json.decode(made.definition, type=JobSpec) == made.spec
    assert task(priority=-100).spec.priority == -100 and task(priority=100).spec.priority == 100


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"priority": -101}, "/priority"),
        ({"priority": 101}, "/priority"),
        ({"concurrency_limit": 0}, "/concurrency_limit"),
        ({"concurrency_limit": 1001}, "/concurrency_limit"),
        ({"concurrency_rate": 0}, "/concurrency_rate"),
        ({"concurrency_rate": 10_001}, "/concurrency_rate"),
        ({"concurrency_limit": 1, "concurrency_scope": "cluster"}, "/concurrency_scope"),
        ({"concurrency_key": "k"}, "/concurrency_key"),
        ({"concurrency_scope": "tenant"}, "/concurrency_scope"),
        ({"concurrency_limit": 1, "concurrency_key": ""}, "/concurrency_key"),
        ({"concurrency_limit": 1, "concurrency_key": "   "}, "/concurrency_key"),
        ({"concurrency_limit": 1, "concurrency_key": "a\tb"}, "/concurrency_key"),
        ({"concurrency_limit": 1, "concurrency_key": "a\0b"}, "/concurrency_key"),
        ({"concurrency_limit": 1, "concurrency_key": "x" * 201}, "/concurrency_key"),
        ({"concurrency_limit": 1, "concurrency_key": "{{payload}}"}, "/concurrency_key"),
        ({"concurrency_limit": 1, "concurrency_key": "{{customer}}"}, "/concurrency_key"),
        ({"concurrency_limit": 1, "concurrency_key": "{{payload.0}}"}, "/concurrency_key"),
        ({"concurrency_limit": 1, "concurrency_key": "{{payload.a..b}}"}, "/concurrency_key"),
        ({"concurrency_limit": 1, "concurrency_key": "{{payload.a b}}"}, "/concurrency_key"),
        ({"concurrency_limit": 1, "concurrency_key": "{{payload.a"}, "/concurrency_key"),
        ({"concurrency_limit": 1, "concurrency_key": "{{}}"}, "/concurrency_key"),
        ({"concurrency_limit": 1, "concurrency_key": "{{payload.a}}", "payload": {"a": [1]}}, "/payload/a"),
        ({"concurrency_limit": 1, "concurrency_key": "{{payload.a}}", "payload": {"a": "x" * 201}}, "/concurrency_key"),
        ({"concurrency_limit": 1, "concurrency_key": "{{job}}{{job}}", "name": "n" * 101}, "/concurrency_key"),
    ],
)
def test_limits_that_cannot_be_used_are_refused_where_they_are(fields: dict[str, Any], pointer: str) -> None:
    assert refusal(**fields).pointer == pointer
    assert refusal(schedule="@daily", **fields).pointer == pointer


@pytest.mark.parametrize(
    ("template", "payload", "key"),
    [
        ("fixed", None, "fixed"),
        ("{{job}}", None, "mail"),
        ("customer-{{payload.customer}}", {"customer": "é 7"}, "customer-é 7"),
        ("{{ payload.a.b }}/{{job}}", {"a": {"b": True}}, "true/mail"),
        ("{{payload.n}}", {"n": 12}, "12"),
        ("{{payload.n}}", {"n": 12.50}, "12.5"),
        ("{{payload.n}}", {"n": 1.0}, "1"),
        ("{{payload.n}}", {"n": 1e22}, "10000000000000000000000"),
        ("{{payload.n}}", {"n": 1e-7}, "0.0000001"),
        ("c-{{payload.missing}}", {}, "c-"),
        ("c-{{payload.a.b}}", {"a": "text"}, "c-"),
        ("c-{{payload.a}}", {"a": None}, "c-"),
        ("c-{{payload.a}}", ["a"], "c-"),
        ("{{payload.missing}}", {}, None),
        (None, {"a": 1}, None),
    ],
)
def test_a_key_is_made_of_the_jobs_name_and_values_of_the_payload(template: Any, payload: Any, key: Any) -> None:
    spec = JobSpec(target=TARGET, concurrency_key=template, concurrency_limit=1)
    assert concurrency_key_of(spec, "mail", payload) == key


def test_what_a_payload_brings_into_a_template_is_not_read_as_a_template() -> None:
    spec = JobSpec(target=TARGET, concurrency_key="{{payload.a}}", concurrency_limit=1)
    assert concurrency_key_of(spec, "mail", {"a": "{{job}}"}) == "{{job}}"


def test_a_key_with_a_nul_or_of_too_many_characters_is_refused() -> None:
    with pytest.raises(UsageError, match="NUL") as caught:
        check_key("a\0", "/runs/3/concurrency_key")
    assert caught.value.pointer == "/runs/3/concurrency_key"
    with pytest.raises(UsageError, match="201 characters and 200 are allowed"):
        check_key("x" * 201)
