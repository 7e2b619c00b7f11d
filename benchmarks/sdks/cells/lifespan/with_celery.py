import os
import subprocess
import sys
import time
from pathlib import Path

from celery.signals import worker_ready, worker_shutdown
from celery_setup import app  # noqa: F401

worker_ready.connect(lambda **_: Path("start").touch(), weak=False)
worker_shutdown.connect(lambda **_: Path("stop").touch(), weak=False)

if __name__ == "__main__":
    path = f"{Path(__file__).parent}{os.pathsep}{os.environ['PYTHONPATH']}"
    command = [sys.executable, "-m", "celery", "-A", "with_celery", "worker", "-c", "1", "-l", "ERROR"]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL)
    while not Path("start").exists():
        time.sleep(0.1)
    process.terminate()
    process.wait()
    print(Path("start").exists(), Path("stop").exists())
    assert Path("stop").exists()
    print("yes: signals, of the worker and of each of its processes; plain functions only")
