"""Run ids, which are another notation of run keys; and the other values computed from identities."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from detent.domain.identity import (
    MANUAL,
    MAX_JOB,
    MAX_SERIAL,
    PARTITIONS,
    RunKey,
    decode_run_id,
    milliseconds,
    node_name,
    partition_of,
    run_id,
    run_id_text,
    token_text,
)
from detent.store.db import connect

moments = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)
run_keys = st.builds(RunKey, st.integers(1, MAX_JOB), moments, st.integers(0, MAX_SERIAL))
EDGES = [
    RunKey(1, datetime(1970, 1, 1, tzinfo=UTC), 0),
    RunKey(MAX_JOB, datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC), MAX_SERIAL),
    RunKey(1 << 45, datetime(2026, 3, 29, 1, 0, 0, 1000, tzinfo=UTC), 0xFFFF),
    RunKey(0x2AAAAAAAAAAA, datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC), 0x10000),
    RunKey(12345, datetime(2026, 11, 15, 9, 52, 0, 123000, tzinfo=UTC), MANUAL),
]


@given(run_keys)
@example(EDGES[0])
@example(EDGES[1])
def test_a_run_id_is_read_back_as_the_key_it_was_made_from(key: RunKey) -> None:
    made = run_id(key)
    assert decode_run_id(made) == key
    assert run_id_text(key.job, milliseconds(key.scheduled_at), key.serial) == str(made)
    assert (made.version, made.variant) == (7, "specified in RFC 4122")


@given(run_keys, run_keys)
def test_ids_sort_by_time(one: RunKey, other: RunKey) -> None:
    if one.scheduled_at < other.scheduled_at:
        assert run_id(one) < run_id(other)


@given(st.uuids())
def test_any_uuid_is_a_key_or_nothing(value: UUID) -> None:
    key = decode_run_id(value)
    if value.version != 7:
        assert key is None
    elif key is not None:
        assert run_id(key) == value


async def test_the_database_makes_the_same_ids(database_url: str) -> None:
    chosen = [*EDGES]
    for number in range(200):
        at = datetime(2000, 1, 1, tzinfo=UTC) + timedelta(milliseconds=7919 * 104_729 * number)
        chosen.append(RunKey(1 + (number * 0x9E3779B97F4A) % MAX_JOB, at, (number * 0x9E3779B) % MAX_SERIAL))
    connection: Any = await connect(database_url, "detent")
    rows = await connection.fetch(
        "SELECT run_id(job, at, serial) AS id"
        " FROM unnest($1::bigint[], $2::timestamptz[], $3::integer[]) WITH ORDINALITY AS v (job, at, serial, n)"
        " ORDER BY n",
        *zip(*chosen, strict=True),
    )
    await connection.close()
    assert [str(row["id"]) for row in rows] == [str(run_id(key)) for key in chosen]


def test_a_key_tells_a_tick_from_a_manual_run_and_which_re_run_it_is() -> None:
    tick = RunKey(1, datetime(2026, 1, 1, tzinfo=UTC))
    assert (tick.manual, tick.repeat, tick.first) == (False, 0, tick)
    again = tick._replace(serial=2)
    assert (again.manual, again.repeat, again.first) == (False, 2, tick)
    manual = tick._replace(serial=MANUAL + 3)
    assert (manual.manual, manual.repeat, manual.first) == (True, 3, tick._replace(serial=MANUAL))


@given(st.uuids())
def test_a_partition_is_one_of_all_and_always_the_same(job: UUID) -> None:
    assert 0 <= partition_of(job) < PARTITIONS
    assert partition_of(job) == partition_of(UUID(job.hex))


def test_partitions_are_used_evenly_and_never_change() -> None:
    counts = [0] * PARTITIONS
    for number in range(100 * PARTITIONS):
        counts[partition_of(UUID(int=number << 64 | number))] += 1
    assert min(counts) > 50
    assert max(counts) < 160
    # Stored with every job: a change of the function would not move those that are there.
    assert partition_of(UUID("0197f3a0-0000-7000-8000-000000000001")) == 127


@pytest.mark.parametrize(("token", "text"), [(1 << 22 | 1, "1.1"), (3 << 22 | 70000, "3.70000"), (1 << 22, "1.0")])
def test_a_token_is_shown_as_incarnation_and_counter(token: int, text: str) -> None:
    assert token_text(token) == text


def test_a_node_is_shown_as_sixteen_hexadecimal_digits() -> None:
    assert node_name(255) == "00000000000000ff"
    assert node_name(-1) == "ffffffffffffffff"
