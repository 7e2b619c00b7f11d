import contextlib
import time

from dbos import DBOS
from dbos_setup import configure, worker
from fastapi import FastAPI
from fastapi.testclient import TestClient

configure()
started, done = [], []


@DBOS.workflow()
def slow() -> None:
    started.append(1)
    time.sleep(1)
    done.append("slow")


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI):
    with worker():
        await DBOS.register_queue_async("mail", polling_interval_sec=0.1)
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/slow")
def start() -> str:
    return DBOS.enqueue_workflow("mail", slow).get_workflow_id()


with TestClient(app) as client:
    print(client.post("/slow").json())
    while not started:
        time.sleep(0.05)
print(done)
word = "yes" if done else "partly"
print(
    f"{word}: it works in the process by design; a run under way ended: {bool(done)}, others recover at the next start"
)
