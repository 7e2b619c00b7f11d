import os
import subprocess
import sys
import time
from pathlib import Path

from celery_setup import app

app.conf.broker_transport_options = {"visibility_timeout": 10}  # an hour unless set
STARTS = Path("starts")


def slow() -> None:
    with STARTS.open("a") as file:
        file.write("x")
    time.sleep(5)


early = app.task(name="early")(slow)
late = app.task(name="late", acks_late=True, reject_on_worker_lost=True)(slow)


def worker() -> subprocess.Popen[bytes]:
    path = f"{Path(__file__).parent}{os.pathsep}{os.environ['PYTHONPATH']}"
    command = [sys.executable, "-m", "celery", "-A", "with_celery", "worker", "-P", "solo", "-l", "ERROR"]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL)


def starts_after_kill(task, seconds: float) -> tuple[int, float]:
    STARTS.unlink(missing_ok=True)
    task.delay()
    first = worker()
    while not STARTS.exists():
        time.sleep(0.1)
    first.kill()
    began, second = time.monotonic(), worker()
    while time.monotonic() - began < seconds and STARTS.read_text() == "x":
        time.sleep(0.1)
    second.kill()
    time.sleep(1)  # until Redis has noticed
    return len(STARTS.read_text()), time.monotonic() - began


if __name__ == "__main__":
    by_default, _ = starts_after_kill(early, 15)
    with_late, seconds = starts_after_kill(late, 150)
    print(
        f"default: {by_default} start; acks_late with a visibility timeout of 10 s: {with_late}, after {seconds:.0f} s"
    )
    assert (by_default, with_late) == (1, 2)
    print(
        "partly: lost by default; with acks_late 100 s after the visibility timeout (1 h), which no longer task must reach"
    )
