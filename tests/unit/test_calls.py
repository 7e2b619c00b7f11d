"""What a target receives: texts that are computed once for the runs of a tick are those of each run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from detent.domain.idempotency import idempotency_key
from detent.domain.identity import EPOCH, MAX_JOB, RunKey
from detent.domain.job import Definition, HttpTarget, JobSpec
from detent.domain.run import Claim
from detent.worker.execute import call_of

TICK = datetime(2026, 3, 1, 12, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


@pytest.mark.parametrize("template", [None, "{job_id}:{scheduled_at:%Y}"])
def test_every_call_has_the_id_and_the_key_of_its_own_run(template: str | None) -> None:
    spec = JobSpec(schedule="every 1h", target=HttpTarget(url="http://x/"), idempotency_key_template=template)
    definition = Definition(uuid4(), "report", spec)
    ticks = [EPOCH, EPOCH, TICK, TICK, TICK + MILLISECOND, TICK, TICK - timedelta(hours=1), EPOCH]
    for job, tick in enumerate(ticks, 1):
        for key in (RunKey(job, tick), RunKey(MAX_JOB, tick), RunKey(job, tick, 3)):
            call = call_of(Claim(key.job, 0, tick, key.serial, 1, 1), definition)
            assert call.run_id == str(Claim(key.job, 0, tick, key.serial, 1, 1).run_id)
            assert call.idempotency_key == idempotency_key(definition.job_id, "report", spec, key)
            assert (call.job_id, call.scheduled_at) == (str(definition.job_id), tick)
