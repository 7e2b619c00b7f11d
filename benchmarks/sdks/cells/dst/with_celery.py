from datetime import UTC, datetime, timedelta

from celery.schedules import crontab
from celery_setup import app

app.conf.timezone = "Europe/Berlin"


def ticks(start: datetime, hours: int) -> list[str]:
    """What beat does: it asks whether the entry is due, every minute here."""
    found, last, now = [], start, start
    for _ in range(hours * 60):
        now += timedelta(minutes=1)
        if crontab(minute="30", hour="2", nowfun=lambda: now, app=app).is_due(last).is_due:
            last = now
            found.append(now.isoformat())
    return found


spring = ticks(datetime(2026, 3, 28, 12, tzinfo=UTC), 36)
autumn = ticks(datetime(2026, 10, 24, 12, tzinfo=UTC), 36)
print(spring, autumn, sep="\n")
once = len(spring) == 1 and len(autumn) == 1
print(
    f"{'yes' if once else 'partly'}: runs in the night without 02:30: {len(spring)}, with two: {len(autumn)}; no choice of policy"
)
