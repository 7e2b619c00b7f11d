"""The SQL function run_id and domain.identity.run_id give the same id, which decodes to the same key."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from detent.domain.identity import MANUAL, MAX_JOB, MAX_SERIAL, ON_DEMAND, RunKey, decode_run_id, run_id

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
JOBS = [1, 2, 1 << 31, (1 << 45) + 1, MAX_JOB - 1, MAX_JOB]
SERIALS = [0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x10000, MANUAL, ON_DEMAND - 1, ON_DEMAND, MAX_SERIAL - 1, MAX_SERIAL]
# Also those whose 48 bits begin with a one, and every millisecond where a double is exact only just.
TIMES = [
    EPOCH,
    EPOCH + timedelta(milliseconds=1),
    datetime(2001, 9, 9, 1, 46, 40, 1000, tzinfo=UTC),
    datetime(2026, 2, 3, 4, 5, 6, 789000, tzinfo=UTC),
    datetime(6429, 1, 1, 0, 0, 0, 999000, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
]


async def test_both_functions_agree_and_the_id_decodes(look: Any) -> None:
    chance = random.Random(7)
    keys = [RunKey(job, at, serial) for job in JOBS for at in TIMES for serial in SERIALS]
    keys += [
        RunKey(
            chance.randint(1, MAX_JOB),
            EPOCH + timedelta(milliseconds=chance.randint(0, 200_000_000_000_000)),
            chance.randint(0, MAX_SERIAL),
        )
        for _ in range(20_000)
    ]
    rows = await look.fetch(
        "SELECT run_id(job, at, serial) AS id FROM unnest($1::bigint[], $2::timestamptz[], $3::integer[]) AS t"
        " (job, at, serial)",
        *zip(*keys, strict=True),
    )
    assert [row["id"] for row in rows] == [run_id(key) for key in keys]
    assert [decode_run_id(row["id"]) for row in rows] == keys
    assert {row["id"].version for row in rows} == {7}


async def test_ids_of_a_job_sort_by_time(look: Any) -> None:
    rows = await look.fetch("SELECT run_id(5, at, 0) AS id FROM unnest($1::timestamptz[]) AS at", TIMES)
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
