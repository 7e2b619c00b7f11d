"""Jobs that are registered together share what they have in common, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from detent.domain.documents import MAX_DEPTH, check_text, looks_sound
from detent.domain.job import HttpTarget, JobSpec
from detent.domain.registration import PreparedJob, Timings, place, prepare
from detent.domain.target_url import TargetError, check_url, parse_url
from detent.errors import UsageError

NOW = datetime(2026, 11, 15, 9, 30, 0, 123_456, tzinfo=UTC)
JOB_ID = UUID("01980a3e-7c3f-7000-8000-00000000002a")
HTTP = HttpTarget(url="https://example.org/hook")

SCHEDULES: list[Any] = [
    *("0 9 * * MON", "H 3 * * *", "H(0-29) * * * *", "@daily", "every 1h", "every 90s", "2031-01-01T00:00:00Z"),
    *("CRON_TZ=Asia/Tokyo 0 9 * * *", "RRULE:FREQ=WEEKLY;BYDAY=MO", "0 9 * * MON"),
    *(
        {"cron": "H 4 * * *"},
        {"every": "1h", "anchor": "2026-01-01T00:00:00Z"},
        {"every": "1h"},
        {"cron": "0 9 * * MON"},
    ),
]
OTHERWISE: list[dict[str, Any]] = [
    {},
    {"jitter_seconds": 30},
    {"ends_at": datetime(2040, 1, 1, tzinfo=UTC)},
    {"misfire_grace_seconds": 5},
    {"idempotency_key_template": "{{job}}-{{month}}"},
]


def prepared(number: int, timings: Timings | None, created_at: datetime, **fields: Any) -> PreparedJob:
    spec = JobSpec(**{"schedule": "every 1h", "target": HTTP, "name": f"n{number}", **fields})
    return prepare(spec, JOB_ID, number, created_at, timings=timings)


def test_a_job_is_the_same_whether_it_is_registered_alone_or_among_others() -> None:
    timings = Timings()
    number = 0
    for _ in range(2):
        for schedule in SCHEDULES:
            for fields in OTHERWISE:
                for created_at in (NOW, NOW + timedelta(minutes=7)):
                    number += 1
                    alone = prepared(number, None, created_at, schedule=schedule, **fields)
                    among = prepared(number, timings, created_at, schedule=schedule, **fields)
                    assert among == alone
                    assert timings.place(among, NOW) == place(alone, NOW)


def test_a_schedule_without_an_end_is_refused_each_time() -> None:
    timings = Timings()
    for number in range(2):
        with pytest.raises(UsageError, match="past"):
            timings.place(prepared(number, timings, NOW, ends_at=NOW - timedelta(days=1)), NOW)


PARTS = st.sampled_from(["\\u0000", "\\\\u0000", "\0", "[", "{", "9" * 700, "x", '"', "\ud7ff"])
texts = st.lists(PARTS, max_size=4).map("".join)
documents = st.recursive(
    texts | st.integers() | st.just(10**1233) | st.just(2**4096),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@given(documents)
@example(nested(MAX_DEPTH - 1))
@example(nested(MAX_DEPTH))
@example(nested(MAX_DEPTH + 3))
@example(2**4096 - 1)
def test_what_the_quick_check_accepts_the_full_check_accepts(value: Any) -> None:
    document = {"payload": value}
    if looks_sound(msgspec.json.encode(document)):
        check_text(document)


PIECES = (
    "http https HTTP ftp :// : // / a.example 127.0.0.1 [::1] 1 :80 :0 :99999 @ # ? % %2F %zz .. \\ ü ~ x=1 & 0x7f ."
)


@given(st.lists(st.sampled_from([*PIECES.split(), " ", "\n"]), max_size=9).map("".join))
@example("http://a.example/b?c=%zz&d=[]")
def test_a_url_is_checked_at_registration_as_it_is_before_a_call(url: str) -> None:
    def fault(check: Any) -> str | None:
        try:
            check(url)
        except TargetError as error:
            return error.message
        return None

    assert fault(check_url) == fault(parse_url)
