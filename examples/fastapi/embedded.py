"""One process for everything: requests, scheduler, worker and dashboard. Start it with `uvicorn embedded:web`."""

from fastapi import FastAPI
from orders_jobs import jobs
from orders_routes import router

from detent.contrib.asgi import EmbeddedNode

node = EmbeddedNode(jobs)

web = FastAPI(lifespan=node.lifespan)
web.include_router(router)
web.mount("/detent", node.dashboard)
