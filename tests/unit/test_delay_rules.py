"""What is shown as the next tick of a job whose delay counts from the end of the run before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.domain.delay_rules import earliest_tick
from detent.domain.job import HttpTarget, JobSpec

LAST = datetime(2026, 12, 20, 12, tzinfo=UTC)
LOOK = LAST + timedelta(minutes=3)
HTTP = HttpTarget(url="http://127.0.0.1:9/")


@pytest.mark.parametrize(
    ("schedule", "shown"),
    [
        ({"every": "10m", "after": "finish"}, LAST + timedelta(minutes=10)),
        ({"every": "1m", "after": "finish"}, LOOK),
        ({"every": "10m", "after": None}, LOOK),
        ({"every": "10m"}, LOOK),
        ("every 10m", LOOK),
    ],
)
def test_only_a_delay_has_a_look_before_its_tick(schedule: Any, shown: datetime) -> None:
    assert earliest_tick(JobSpec(schedule=schedule, target=HTTP), LOOK, LAST) == shown
