from celery_setup import app as tasks
from celery_setup import worker
from fastapi import FastAPI
from fastapi.testclient import TestClient

app = FastAPI()


@tasks.task
def count(of: str) -> int:
    return len(of)


@app.post("/count")
def start(of: str) -> str:  # not a coroutine: the client blocks
    return count.delay(of).id


with TestClient(app) as client:
    sent = client.post("/count", params={"of": "abc"}).json()
with worker():  # another process: `celery worker`; in this process only the helper for tests does it
    print(tasks.AsyncResult(sent).get(timeout=20))
print("partly: enqueue from plain routes; the worker is another process")
