from datetime import UTC, datetime, timedelta

from taskiq.cli.scheduler.run import is_cron_task_now


def ticks(now: datetime, hours: int) -> list[str]:
    """What the scheduler does: it asks every minute."""
    found, last = [], None
    for _ in range(hours * 60):
        now += timedelta(minutes=1)
        if is_cron_task_now("30 2 * * *", now, offset="Europe/Berlin", last_run=last):
            last = now
            found.append(now.isoformat())
    return found


spring = ticks(datetime(2026, 3, 28, 12, tzinfo=UTC), 36 - 12)
autumn = ticks(datetime(2026, 10, 24, 12, tzinfo=UTC), 36 - 12)
print(spring, autumn, sep="\n")
print(f"no: runs in the night without 02:30: {len(spring)}, with two: {len(autumn)}")
assert (len(spring), len(autumn)) == (0, 2)
