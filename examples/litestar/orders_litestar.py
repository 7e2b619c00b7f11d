"""Litestar with a worker and the dashboard in the same process. Start it with `uvicorn orders_litestar:web`."""

from dataclasses import dataclass
from uuid import UUID

from litestar import Litestar, asgi, get, post

from detent import Detent
from detent.contrib.asgi import EmbeddedNode

jobs = Detent("orders")
node = EmbeddedNode(jobs)


@dataclass
class Order:
    number: int
    item: str


@jobs.task(max_retries=5)
async def prepare(order: Order) -> str:
    return f"{order.number}: {order.item}"


@post("/orders", status_code=202)
async def place_order(data: Order) -> dict[str, str]:
    handle = await prepare.enqueue(data)
    return {"run": handle.id}


@get("/orders/{run:uuid}")
async def order_progress(run: UUID) -> dict[str, str | None]:
    handle = prepare.handle(run)
    status = await handle.status()
    return {"status": status, "receipt": await handle.result() if status == "succeeded" else None}


dashboard = asgi("/detent", is_mount=True, copy_scope=True)(node.dashboard)

web = Litestar([place_order, order_progress, dashboard], lifespan=[node.lifespan])
