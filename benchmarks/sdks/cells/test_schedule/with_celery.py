from datetime import UTC, datetime

from celery.schedules import crontab
from celery_setup import app

app.conf.timezone = "Europe/Berlin"
at = datetime(2026, 3, 29, 0, 0, tzinfo=UTC)
schedule = crontab(minute="30", hour="2", nowfun=lambda: at, app=app)
print(schedule.remaining_estimate(datetime(2026, 3, 28, 1, 30, tzinfo=UTC)))
print("no: a test can ask one schedule with a nowfun; beat has no clock that a test moves")
