from datetime import UTC, datetime

from dbos import DBOS
from dbos_setup import configure, worker

configure()
seen = []


@DBOS.workflow()
def nightly(at: datetime, context: object) -> None:
    seen.append(at.isoformat())


with worker():
    DBOS.create_schedule(
        schedule_name="nightly", workflow_fn=nightly, schedule="30 2 * * *", cron_timezone="Europe/Berlin"
    )
    handles = DBOS.backfill_schedule(
        "nightly", datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 3, 30, 12, tzinfo=UTC)
    )
    for handle in handles:
        handle.get_result()
print(seen)
print(
    "partly: a backfill of the period runs its ticks; there is no clock, so retries, delays and overlap stay untested"
)
