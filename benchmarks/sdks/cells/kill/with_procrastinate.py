import asyncio
import subprocess
import sys
import time
from pathlib import Path

from procrastinate_setup import app, prepare

STARTS = Path("starts")


@app.task
async def slow() -> None:
    with STARTS.open("a") as file:
        file.write("x")
    await asyncio.sleep(5)


async def main() -> None:
    async with app.open_async():
        await prepare()
        await slow.defer_async()
        first = subprocess.Popen([sys.executable, __file__, "work"])
        while not STARTS.exists():
            await asyncio.sleep(0.1)
        first.kill()
        second = subprocess.Popen([sys.executable, __file__, "work"])
        await asyncio.sleep(40)
        print("starts after 40 s:", STARTS.read_text())
        assert STARTS.read_text() == "x"
        began = time.monotonic()
        for job in await app.job_manager.get_stalled_jobs():  # a periodic task of yours calls this
            await app.job_manager.retry_job(job)
        while STARTS.read_text() != "xx":
            await asyncio.sleep(0.1)
        print(f"again {time.monotonic() - began:.1f} s after your task found it")
        second.kill()
    print("partly: not by itself; a periodic task of yours looks for stalled jobs (30 s) and retries them")


async def serve() -> None:
    async with app.open_async():
        await app.run_worker_async()


asyncio.run(serve() if sys.argv[1:] else main())
