import asyncio
import contextlib
import time

from fastapi import FastAPI
from fastapi.testclient import TestClient
from taskiq_setup import broker, worker

started, done = [], []


@broker.task
async def slow() -> None:
    started.append(1)
    await asyncio.sleep(1)
    done.append("slow")


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI):
    async with worker():  # run_receiver_task; taskiq-fastapi serves workers in a process of their own
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/slow")
async def start() -> str:
    return (await slow.kiq()).task_id


with TestClient(app) as client:
    print(client.post("/slow").json())
    while not started:
        time.sleep(0.05)
print(done)
word = "yes" if done == ["slow"] else "partly"
print(f"{word}: run_receiver_task in a lifespan, FastAPI's dependencies apart; a task under way ended: {bool(done)}")
