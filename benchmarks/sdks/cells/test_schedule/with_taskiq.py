from datetime import UTC, datetime, timedelta

from taskiq.cli.scheduler.run import is_cron_task_now

now, found = datetime(2026, 3, 28, 12, tzinfo=UTC), []
for _ in range(36 * 60):
    now += timedelta(minutes=1)
    if is_cron_task_now("30 2 * * *", now, offset="Europe/Berlin"):
        found.append(now.isoformat())
print(found)
print("no: the loop of the scheduler has no clock to move; this asks a function inside it minute by minute")
