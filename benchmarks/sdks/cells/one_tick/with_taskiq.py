import os
import subprocess
import sys
import time
from pathlib import Path

import redis
from taskiq import TaskiqScheduler
from taskiq.schedule_sources import LabelScheduleSource
from taskiq_setup import broker


@broker.task(schedule=[{"interval": 2}])
async def tick() -> None: ...


scheduler = TaskiqScheduler(broker, [LabelScheduleSource(broker)])

if __name__ == "__main__":
    path = f"{Path(__file__).parent}{os.pathsep}{os.environ['PYTHONPATH']}"
    command = [sys.executable, "-m", "taskiq", "scheduler", "with_taskiq:scheduler"]
    both = [
        subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.DEVNULL) for _ in range(2)
    ]
    time.sleep(12)
    for one in both:
        one.terminate()
        one.wait()
    sent = redis.Redis.from_url(os.environ["REDIS_URL"]).xlen("taskiq")
    print(sent, "messages in 12 s, every 2 s")
    assert sent > 7
    print("no: every scheduler sends every tick; the manual asks for one instance")
