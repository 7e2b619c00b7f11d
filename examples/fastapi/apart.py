"""The same application without a worker. `detent serve --app orders_jobs:jobs` does the work, in its own processes.

Start it with `uvicorn apart:web`.
"""

from fastapi import FastAPI
from orders_jobs import jobs
from orders_routes import router

from detent.contrib.asgi import EmbeddedNode

node = EmbeddedNode(jobs, worker=False, scheduler=False)

web = FastAPI(lifespan=node.lifespan)
web.include_router(router)
web.mount("/detent", node.dashboard)
