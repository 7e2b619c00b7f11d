import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker(os.environ["REDIS_URL"], idle_timeout=10_000)  # 10 minutes unless set
STARTS = Path("starts")


@broker.task
async def slow() -> None:
    with STARTS.open("a") as file:
        file.write("x")
    await asyncio.sleep(5)


async def work() -> None:
    await broker.startup()
    await run_receiver_task(broker)


async def send() -> None:
    await broker.startup()
    await slow.kiq()
    await broker.shutdown()


def main() -> None:
    asyncio.run(send())
    first = subprocess.Popen([sys.executable, __file__, "work"])
    while not STARTS.exists():
        time.sleep(0.1)
    first.kill()
    began, second = time.monotonic(), subprocess.Popen([sys.executable, __file__, "work"])
    while STARTS.read_text() == "x" and time.monotonic() - began < 90:
        time.sleep(0.1)
    second.kill()
    print(STARTS.read_text(), f"after {time.monotonic() - began:.0f} s")
    assert STARTS.read_text() == "xx"
    print("partly: after idle_timeout (10 min), which no longer task must reach: it would be delivered twice")


if sys.argv[1:]:
    asyncio.run(work())
else:
    main()
