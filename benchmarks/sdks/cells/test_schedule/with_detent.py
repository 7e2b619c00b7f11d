from detent_setup import app


@app.job(cron="30 2 * * *", timezone="Europe/Berlin")
def nightly() -> None: ...


with app.test(start="2026-03-28T12:00:00Z") as t:
    t.advance(days=2)
    ticks = [run.scheduled_at.isoformat() for run in t.runs_of("nightly")]
print(ticks)
assert ticks == ["2026-03-29T01:00:00+00:00", "2026-03-30T00:30:00+00:00"]
print("yes: the real schedule, missed ticks and overlap included, in milliseconds")
