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


@broker.task
async def nothing() -> None: ...


async def work() -> None:
    await broker.startup()
    await run_receiver_task(broker)


async def send(task) -> None:
    await broker.startup()
    await task.kiq()
    await broker.shutdown()


def main() -> None:
    asyncio.run(send(slow))
    first = subprocess.Popen([sys.executable, __file__, "work"])
    while not STARTS.exists():
        time.sleep(0.1)
    first.kill()
    began, second = time.monotonic(), subprocess.Popen([sys.executable, __file__, "work"])
    time.sleep(25)
    print("starts after 25 s in which nothing else was sent:", STARTS.read_text())
    asyncio.run(send(nothing))  # the worker looks for messages of others after it has received one
    while STARTS.read_text() == "x" and time.monotonic() - began < 60:
        time.sleep(0.1)
    second.kill()
    print("after another message:", STARTS.read_text())
    assert STARTS.read_text() == "xx"
    print("partly: after idle_timeout (10 min) and another message; no longer task must reach it: it would run twice")


if sys.argv[1:]:
    asyncio.run(work())
else:
    main()
