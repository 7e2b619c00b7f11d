import os
import subprocess
import sys
import time
from pathlib import Path

from celery_setup import app

app.conf.beat_schedule = {"tick": {"task": "tick", "schedule": 2.0}}


@app.task(name="tick")
def tick() -> None: ...


if __name__ == "__main__":
    path = f"{Path(__file__).parent}{os.pathsep}{os.environ['PYTHONPATH']}"
    beats = [
        subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "with_celery", "beat", "-s", f"state-{number}", "--pidfile", ""],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number in range(2)
    ]
    time.sleep(12)
    for beat in beats:
        beat.terminate()
        beat.wait()
    sent = app.connection().default_channel.client.llen("celery")
    print(sent, "messages in 12 s, every 2 s")
    assert sent > 7
    print("no: every beat sends every tick; the manual asks for one beat at a time")
