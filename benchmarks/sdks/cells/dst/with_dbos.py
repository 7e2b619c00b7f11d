from datetime import UTC, datetime

from dbos import DBOS
from dbos_setup import configure, worker

configure()
seen = []


@DBOS.workflow()
def nightly(at: datetime, context: object) -> None:
    seen.append(at.astimezone(UTC).isoformat())


def ticks(start: datetime, end: datetime) -> list[str]:
    seen.clear()
    for handle in DBOS.backfill_schedule("nightly", start, end):
        handle.get_result()
    return list(seen)


with worker():
    DBOS.create_schedule(
        schedule_name="nightly", workflow_fn=nightly, schedule="30 2 * * *", cron_timezone="Europe/Berlin"
    )
    spring = ticks(datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 3, 29, 12, tzinfo=UTC))
    autumn = ticks(datetime(2026, 10, 24, 12, tzinfo=UTC), datetime(2026, 10, 25, 12, tzinfo=UTC))
print(spring, autumn, sep="\n")
word = "yes" if len(spring) == len(autumn) == 1 else "partly"
print(f"{word}: runs in the night without 02:30: {len(spring)}, with two: {len(autumn)}; no choice of policy")
