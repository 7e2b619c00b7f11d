import asyncio
import time
from pathlib import Path

from dbos import DBOS
from dbos_setup import configure, worker

configure()


@DBOS.step(preemptible=True)
async def wait() -> None:
    Path("started").touch()
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        Path("cancelled").touch()
        raise


@DBOS.workflow()
async def run() -> None:
    await wait()


with worker():
    DBOS.register_queue("mail")
    handle = DBOS.enqueue_workflow("mail", run)
    while not Path("started").exists():
        time.sleep(0.1)
    DBOS.cancel_workflow(handle.get_workflow_id())
    began = time.monotonic()
    while not Path("cancelled").exists() and time.monotonic() - began < 30:
        time.sleep(0.1)
    print(handle.get_status().status, Path("cancelled").exists())
    word = "yes" if Path("cancelled").exists() else "partly"
print(f"{word}: preemptible=True lets a cancel end a coroutine of a step; others end at their next step")
