from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from procrastinate_setup import app


@app.periodic(cron="30 2 * * *")
@app.task
async def nightly(timestamp: int) -> None: ...


(entry,) = app.periodic_registry.periodic_tasks.values()
since = datetime(2026, 3, 27, 12, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
print(
    [
        datetime.fromtimestamp(float(at), UTC).isoformat()
        for _, at in zip(range(4), entry.croniter.all_next(float, since))
    ]
)
print("no: cron expressions have no time zone; 02:30 is UTC all year")
