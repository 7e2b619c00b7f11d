"""One is not written with a plural."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from detent.domain.counts import plural
from detent.errors import JobQuotaReached
from detent.store.alerts import AlertNotice
from detent.upkeep.alert_messages import headline


def test_a_count_is_written_with_its_noun() -> None:
    assert [plural(count, "job") for count in (0, 1, 2, 1000)] == ["0 jobs", "1 job", "2 jobs", "1,000 jobs"]
    assert [plural(count, "retry", "retries") for count in (1, 2)] == ["1 retry", "2 retries"]


def test_a_quota_of_one_job_is_said_in_the_singular() -> None:
    assert str(JobQuotaReached(1, used=1, limit=1, tenant="a")).startswith("The tenant 'a' has 1 job and may have 1,")
    assert str(JobQuotaReached(2, used=9, limit=9, tenant="a")).startswith("The tenant 'a' has 9 jobs and may have 9,")


def test_one_event_of_jobs_that_a_message_does_not_name() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    content = {"counts": [], "jobs": [], "events_of_other_jobs": 1, "opened_at": at.isoformat()}
    assert headline(AlertNotice(1, "opened", 0, timedelta(0), at, 1, content, "r", None, "a", 1)) == (
        "1 event of other jobs."
    )
