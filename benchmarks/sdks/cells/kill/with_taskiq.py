import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

url = os.environ["REDIS_URL"]
broker = RedisStreamBroker(url, idle_timeout=10_000).with_result_backend(
    RedisAsyncResultBackend(url)
)  # 10 min unless set
STARTS = Path("starts")


@broker.task
async def slow() -> None:
    with STARTS.open("a") as file:
        file.write("x")
    await asyncio.sleep(5)


def worker() -> subprocess.Popen[bytes]:
    path = f"{Path(__file__).parent}{os.pathsep}{os.environ['PYTHONPATH']}"
    command = [sys.executable, "-m", "taskiq", "worker", "with_taskiq:broker", "-w", "1"]
    return subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.DEVNULL, start_new_session=True
    )


async def send() -> None:
    await broker.startup()
    await slow.kiq()
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(send())
    first = worker()
    while not STARTS.exists():
        time.sleep(0.1)
    os.killpg(first.pid, 9)
    began, second = time.monotonic(), worker()
    while STARTS.read_text() == "x" and time.monotonic() - began < 90:
        time.sleep(0.1)
    print(STARTS.read_text(), f"after {time.monotonic() - began:.0f} s")
    os.killpg(second.pid, 9)
    assert STARTS.read_text() == "xx"
    print("partly: after idle_timeout (10 min), which longer tasks must not reach: they would be delivered twice")
