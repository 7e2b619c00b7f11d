import asyncio
import time

from detent_setup import app as jobs
from detent_setup import node
from fastapi import FastAPI
from fastapi.testclient import TestClient

started, done = [], []


@jobs.task
async def slow() -> None:
    started.append(1)
    await asyncio.sleep(1)
    done.append("slow")


app = FastAPI(lifespan=node.lifespan)
app.mount("/detent", node.dashboard)


@app.post("/slow")
async def start() -> str:
    return (await slow.enqueue()).id


with TestClient(app) as client:
    print(client.post("/slow").json())
    while not started:
        time.sleep(0.05)
print(done)
assert done == ["slow"]
print("yes: one line, with the dashboard mounted; runs under way end, and others wait in the database")
