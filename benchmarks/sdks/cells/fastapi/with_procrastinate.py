import asyncio
import contextlib
import time

from fastapi import FastAPI
from fastapi.testclient import TestClient
from procrastinate_setup import app as tasks
from procrastinate_setup import prepare

started, done = [], []


@tasks.task
async def slow() -> None:
    started.append(1)
    await asyncio.sleep(1)
    done.append("slow")


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI):
    async with tasks.open_async():
        await prepare()
        worker = asyncio.create_task(tasks.run_worker_async(install_signal_handlers=False))
        yield
        worker.cancel()  # asks it to stop, and lets the jobs under way end
        await asyncio.wait([worker])


app = FastAPI(lifespan=lifespan)


@app.post("/slow")
async def start() -> int:
    return await slow.defer_async()


with TestClient(app) as client:
    print(client.post("/slow").json())
    while not started:
        time.sleep(0.05)
print(done)
assert done == ["slow"]
print("yes: a lifespan of ten lines; jobs under way end before the process does")
