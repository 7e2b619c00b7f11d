import os
import subprocess
import sys
import time
from pathlib import Path

from celery_setup import app


@app.task(name="wait")
def wait() -> None:
    Path("started").touch()
    time.sleep(60)


if __name__ == "__main__":
    path = f"{Path(__file__).parent}{os.pathsep}{os.environ['PYTHONPATH']}"
    command = [sys.executable, "-m", "celery", "-A", "with_celery", "worker", "-c", "1", "-l", "ERROR"]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL)
    sent = wait.delay()
    while not Path("started").exists():
        time.sleep(0.1)
    sent.revoke(terminate=True)
    sent.get(timeout=20, propagate=False)
    print(sent.state)
    assert sent.state == "REVOKED"
    process.terminate()
    process.wait()
    print("partly: revoke(terminate=True) kills the process of the pool; in thread and event pools it cannot")
