"""The rows for a job that a user writes; without a database or a clock."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.domain.documents import MAX_DEPTH, check_text
from detent.domain.idempotency import idempotency_key
from detent.domain.identity import MANUAL, RunKey, partition_of, run_id
from detent.domain.job import HttpTarget, JobSpec, PythonTarget, ShellTarget, needs_of
from detent.domain.names import is_job_id
from detent.domain.refusal import refused
from detent.domain.registration import CursorPlace, PreparedJob, next_tick, place, prepare
from detent.errors import UsageError

NOW = datetime(2026, 11, 15, 9, 30, 0, 123_456, tzinfo=UTC)
WHOLE = NOW.replace(microsecond=123_000)
JOB_ID = UUID("01980a3e-7c3f-7000-8000-00000000002a")
HTTP = HttpTarget(url="https://example.org/hook")


def job(**fields: Any) -> PreparedJob:
    number, tenant = fields.pop("number", 42), fields.pop("tenant", 1)
    return prepare(JobSpec(**{"schedule": "every 1h", "target": HTTP, **fields}), JOB_ID, number, NOW, tenant=tenant)


def refusal(**fields: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        place(job(**fields), NOW)
    return caught.value


def test_an_interval_counts_from_the_creation_of_its_job() -> None:
    made = job(schedule="every 5m")
    assert place(made, NOW) == CursorPlace(WHOLE + timedelta(minutes=5), WHOLE + timedelta(minutes=5), -1)
    later = NOW + timedelta(hours=7, seconds=1)
    assert next_tick(made.schedule, later, None) == WHOLE + timedelta(hours=7, minutes=5)


def test_the_next_tick_is_never_one_that_was_accounted_for() -> None:
    made = job(schedule="* * * * *")
    fired = NOW + timedelta(hours=2)
    assert place(made, NOW, fired).next_tick == datetime(2026, 11, 15, 11, 31, tzinfo=UTC)


def test_a_job_becomes_the_columns_of_its_rows() -> None:
    made = job(
        name="mail",
        queue="bulk",
        target=PythonTarget(function="shop:send"),
        concurrent_policy="ALLOW",
        max_concurrent=4,
        delivery="at_most_once",
        misfire_grace_seconds=90,
    )
    assert (made.name, made.target, made.needs, made.partition) == (
        "mail",
        "python",
        "python:shop:send",
        partition_of(JOB_ID),
    )
    assert (made.lanes, made.grace, made.once) == (4, 90, True)
    assert msgspec.json.decode(made.definition, type=JobSpec) == made.spec
    assert made.digest == hashlib.sha256(made.stored.encode()).digest()
    assert job(target=ShellTarget(command="true")).needs == "shell"
    assert (job().lanes, job(concurrent_policy="ALLOW", max_concurrent=1).lanes) == (1, 1)


def test_a_job_without_a_name_is_named_after_its_id() -> None:
    assert job().name == "job-800000000000002a" == job().spec.name


def test_equal_schedules_of_different_jobs_have_one_digest() -> None:
    assert job(schedule="0 9 * * MON").digest == job(schedule={"cron": "0  9 * * mon"}, number=7).digest
    assert job(jitter_seconds=30).digest == job(jitter_seconds=30.0).digest
    assert job(schedule="every 60m").digest == job(schedule="every 1h", number=7).digest


def test_h_is_hashed_from_the_name_and_the_tenant_and_from_nothing_else() -> None:
    first = job(name="mail", schedule="H H * * *")
    assert job(name="mail", schedule="H H * * *", number=7).stored == first.stored
    others = {job(name=f"mail {number}", schedule="H H * * *").stored for number in range(50)}
    assert first.stored not in others and len(others) > 40
    assert job(name="mail", schedule="H H * * *", tenant=2).stored != first.stored
    # Stable across releases: a change of the hash would move every job.
    assert msgspec.json.decode(first.stored)["cron"] == "25 17 * * *"


def test_jitter_moves_the_fire_and_not_the_tick() -> None:
    where = place(job(schedule="0 * * * *", jitter_seconds=600), NOW)
    assert where.next_tick == datetime(2026, 11, 15, 10, tzinfo=UTC)
    assert where.fire_at is not None
    assert timedelta(0) < where.fire_at - where.next_tick <= timedelta(seconds=600)


def test_the_zone_inside_a_schedule_is_the_zone_of_the_job() -> None:
    assert job(schedule="CRON_TZ=Europe/Berlin 0 9 * * *").spec.timezone == "Europe/Berlin"


def test_bounds_are_kept_in_utc() -> None:
    start = datetime(2027, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    made = job(starts_at=start)
    assert msgspec.json.decode(made.definition)["starts_at"] == "2027-01-01T07:00:00Z"
    first = place(made, NOW).next_tick
    assert first is not None
    assert first >= start


def test_a_one_off_in_the_past_keeps_its_own_tick_and_gets_grace_from_now() -> None:
    at = NOW.replace(microsecond=0) - timedelta(days=400)
    where = place(job(schedule=at.isoformat(), allow_past=True), NOW)
    assert where.next_tick == where.fire_at == at
    assert where.grace >= timedelta(days=400).total_seconds() + 3600
    assert place(job(schedule="1971-01-01T00:00:00Z", allow_past=True), NOW).grace < 2**31


def test_a_one_off_that_fired_already_runs_again_now() -> None:
    at = NOW - timedelta(days=1)
    where = place(job(schedule=at.isoformat(timespec="seconds"), allow_past=True), NOW, at)
    assert where.next_tick == WHOLE


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"schedule": "nonsense"}, "/schedule"),
        ({"schedule": "2020-01-01T00:00:00Z"}, "/schedule"),
        ({"schedule": {"at": "2020-01-01T00:00:00Z"}}, "/schedule/at"),
        ({"schedule": "@daily", "timezone": "Nowhere"}, "/timezone"),
        ({"schedule": "0 0 1 1 * 2020"}, "/schedule"),
        ({"ends_at": NOW}, "/ends_at"),
        ({"ends_at": NOW + timedelta(minutes=1)}, "/ends_at"),
        ({"ends_at": datetime(2030, 1, 1)}, "/ends_at"),
        ({"starts_at": datetime(9999, 12, 31, tzinfo=timezone(-timedelta(hours=5)))}, "/starts_at"),
        ({"schedule": "*/2 * * * * *", "jitter_seconds": 2}, "/jitter_seconds"),
        ({"schedule": "0 9,10 * * *", "jitter_seconds": 3600}, "/jitter_seconds"),
        ({"tags": ["a", "a"]}, "/tags/1"),
        ({"tags": [" a"]}, "/tags/0"),
        ({"name": JOB_ID.hex[:8] + "-" + "-".join(["aaaa"] * 3) + "-" + "b" * 12}, "/name"),
        ({"name": ".."}, "/name"),
        ({"queue": "a,b"}, "/queue"),
        ({"priority": 101}, "/priority"),
        ({"priority": True}, "/priority"),
        ({"max_concurrent": 0}, "/max_concurrent"),
        ({"timeout_seconds": float("inf")}, "/timeout_seconds"),
        ({"payload": {"a": float("nan")}}, "/payload/a"),
        ({"payload": 10**2000}, "/payload"),
        ({"payload": ["ok", "\ud800"]}, "/payload/1"),
        ({"payload": {"\udfff": 1}}, "/payload"),
        ({"payload": object()}, ""),
        ({"target": HttpTarget(url="example.org")}, "/target/url"),
        ({"target": HttpTarget(url="http://x/", headers={"a": "\0"})}, "/target/headers/a"),
        ({"idempotency_key_template": "{{nope}}"}, "/idempotency_key_template"),
    ],
)
def test_what_is_wrong_is_refused_where_it_is(fields: dict[str, Any], pointer: str) -> None:
    error = refusal(**fields)
    assert error.pointer == pointer
    assert error.message.endswith((".", "?"))


def test_a_payload_may_be_as_large_as_the_limit_and_no_larger() -> None:
    spec = JobSpec(schedule="@daily", target=HTTP, payload="x" * 98)
    assert prepare(spec, JOB_ID, 1, NOW, max_payload_bytes=100)
    with pytest.raises(UsageError, match="100 bytes of JSON and 99 are allowed"):
        prepare(spec, JOB_ID, 1, NOW, max_payload_bytes=99)


def test_nesting_may_be_as_deep_as_the_limit_and_no_deeper() -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH):
        value = {"a": value}
    assert job(payload=value)
    assert refusal(payload=[value]).pointer == "/payload"


def test_the_key_of_a_tick_is_its_time_and_that_of_a_manual_run_its_id() -> None:
    spec = JobSpec(schedule="@daily", target=HTTP)
    tick = RunKey(42, datetime(2026, 11, 15, 9, tzinfo=UTC))
    assert idempotency_key(JOB_ID, "n", spec, tick) == f"{JOB_ID}:1794733200"
    fine = tick._replace(scheduled_at=tick.scheduled_at + timedelta(milliseconds=7))
    assert idempotency_key(JOB_ID, "n", spec, fine) == f"{JOB_ID}:1794733200.007"
    assert idempotency_key(JOB_ID, "n", spec, tick._replace(serial=3)) == f"{JOB_ID}:1794733200:3"
    manual = tick._replace(serial=MANUAL)
    assert idempotency_key(JOB_ID, "n", spec, manual) == f"{JOB_ID}:{run_id(manual)}"
    assert idempotency_key(JOB_ID, "n", spec, tick._replace(serial=MANUAL + 2)) == f"{JOB_ID}:{run_id(manual)}:2"
    berlin = JobSpec(schedule="@daily", target=HTTP, timezone="Asia/Tokyo", idempotency_key_template="{{job}}-{{hour}}")
    assert idempotency_key(JOB_ID, "n", berlin, tick) == "n-2026-11-15T18"
    assert idempotency_key(JOB_ID, "n", berlin, manual) == f"{JOB_ID}:{run_id(manual)}"


def test_only_the_usual_form_of_an_id_is_an_id() -> None:
    assert is_job_id(str(JOB_ID))
    assert is_job_id(str(JOB_ID).upper())
    assert not is_job_id(JOB_ID.hex)
    assert not is_job_id(f"{{{JOB_ID}}}")


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | FLOATS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ("schedule", "target", "priority", "tags", "name", "starts_at", "max_runs", "day_match", "x`y")


@given(values)
def test_a_payload_is_either_refused_or_comes_back_as_it_was_sent(payload: Any) -> None:
    try:
        made = job(payload=payload)
    except UsageError as error:
        assert error.pointer.startswith("/payload")
        assert "\0" in repr(payload) or "\\x00" in repr(payload)
    else:
        assert msgspec.json.decode(made.definition)["payload"] == payload
        assert "\\u0000" not in made.definition.replace("\\\\", "")


@given(st.dictionaries(st.text(max_size=3), values, max_size=3))
def test_checking_text_never_fails_otherwise_than_by_a_refusal(document: dict[str, Any]) -> None:
    try:
        check_text(document)
    except UsageError as error:
        assert "NUL" in error.message


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, values)))
def test_every_refusal_of_the_decoder_has_a_pointer_that_resolves(document: dict[str, Any]) -> None:
    try:
        msgspec.convert(document, JobSpec)
    except msgspec.ValidationError as error:
        said = refused(error, document, JobSpec)
        steps = [step.replace("~1", "/").replace("~0", "~") for step in said.pointer.split("/")[1:]]
        value: Any = document
        for step in steps[:-1]:
            value = value[int(step)] if isinstance(value, list) else value[step]
        assert said.message.endswith((".", "?"))


def test_a_function_in_a_process_is_left_to_workers_that_know_processes() -> None:
    """A version before cannot read such a job, and reads all others as they were."""
    isolated = PythonTarget("shop:charge", isolate="process")
    assert (needs_of(PythonTarget("shop:charge")), needs_of(isolated)) == ("python:shop:charge", "process:shop:charge")
    assert msgspec.to_builtins(PythonTarget("shop:charge")) == {"type": "python", "function": "shop:charge"}
    assert msgspec.to_builtins(isolated)["isolate"] == "process"


@pytest.mark.parametrize(
    ("fields", "pointer", "words"),
    [
        ({"schedule": "every 5s"}, "/release", "ticks come 5 s apart: leave release out."),
        ({"jitter_seconds": 5}, "/release", "keep one of them."),
        ({"expect_start_within": 6}, "/expect_start_within", "give more than 6."),
        ({"schedule": None}, "/release", "a task has no ticks"),
    ],
)
def test_a_staggered_release_that_cannot_be_kept_is_refused(fields: dict[str, Any], pointer: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        job(**{"schedule": "@daily", "release": "staggered", **fields})
    assert caught.value.pointer == pointer
    assert words in caught.value.message


def test_the_priority_of_a_staggered_job_is_a_part_of_its_schedule_and_defaults_are_not_stored() -> None:
    low, high, exact = (
        job(schedule="@daily", priority=priority, release=release)
        for priority, release in ((0, "staggered"), (9, "staggered"), (9, "exact"))
    )
    assert (msgspec.json.decode(low.stored)["stagger_ms"], msgspec.json.decode(high.stored)["stagger_ms"]) == (
        3000,
        300,
    )
    assert "stagger_ms" not in exact.stored and "release" not in exact.definition
    where = place(high, NOW)
    assert where.next_tick is not None and where.fire_at is not None
    assert timedelta(milliseconds=300) <= where.fire_at - where.next_tick < timedelta(milliseconds=3300)
