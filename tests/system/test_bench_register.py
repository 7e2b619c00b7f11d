"""`detent bench register` measures what it says: every job is registered by a server of its own."""

from __future__ import annotations

import pytest

from detent.devtools.bench import register


async def test_every_job_is_registered_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register, "BATCH", 1000)
    told: list[int] = []
    result = await register.bench_register(2500, 2, told.append)
    assert (result.jobs, sorted(told)[-1], len(told)) == (2500, 2500, 3)
    assert result.jobs_per_second == pytest.approx(2500 / result.seconds)
    assert dict(register.as_table(result))["jobs registered"] == "2,500"
