"""A node inside of a web application: FastAPI, Starlette, Litestar, and any other that speaks ASGI.

from detent.contrib.asgi import EmbeddedNode

node = EmbeddedNode(jobs)                      # jobs = Detent()
web = FastAPI(lifespan=node.lifespan)          # a worker and a scheduler in this process
web.mount("/detent", node.dashboard)           # the dashboard and the API
"""

from __future__ import annotations

from detent.contrib.asgi.embedded_node import EmbeddedNode
from detent.contrib.asgi.lifespans import combine

__all__ = ["EmbeddedNode", "combine"]
