import time

from dbos import DBOS

calls = []
DBOS(config={"name": "cell", "system_database_url": "sqlite:///cell.sqlite", "log_level": "CRITICAL"})


@DBOS.step(retries_allowed=True, interval_seconds=2, max_attempts=2)
def fail_once() -> None:
    calls.append(time.monotonic())
    if len(calls) == 1:
        raise TimeoutError


@DBOS.workflow()
def run() -> None:
    fail_once()


DBOS.launch()
run()
DBOS.destroy()
print(f"waited {calls[1] - calls[0]:.1f} s")
assert calls[1] - calls[0] > 1.5
print("partly: SQLite needs no service; delays pass in real time, or the test patches them")
