import time

from detent_setup import app, served


@app.job(every="2s")
def tick() -> None: ...


if __name__ == "__main__":
    with served(__file__) as client, served(__file__):
        time.sleep(12)
        ticks = [run.scheduled_at for run in client.list_runs(job="tick")]
    print(len(ticks), len(set(ticks)))
    assert len(ticks) >= 5 and len(ticks) == len(set(ticks))
    print("yes: one statement in the database makes the run of a tick, whichever node sends it")
