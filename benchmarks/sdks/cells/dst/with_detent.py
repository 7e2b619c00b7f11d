from detent_setup import app


@app.job(cron="30 2 * * *", timezone="Europe/Berlin")
def nightly() -> None: ...


def ticks(start: str) -> list[str]:
    with app.test(start=start) as t:
        t.advance(days=1)
        return [run.scheduled_at.isoformat() for run in t.runs_of("nightly")]


spring, autumn = ticks("2026-03-28T12:00:00Z"), ticks("2026-10-24T12:00:00Z")
print(spring, autumn, sep="\n")
assert len(spring) == len(autumn) == 1
print("yes: once in both nights, and dst_gap and dst_overlap choose other policies")
