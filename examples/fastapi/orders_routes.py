"""The routes of the shop. They are the same, wherever the work is done."""

from uuid import UUID

from fastapi import APIRouter
from orders_jobs import Order, Receipt, prepare
from pydantic import BaseModel

from detent.errors import RunNotFound

router = APIRouter()


class Progress(BaseModel):
    status: str
    receipt: Receipt | None = None


@router.post("/orders", status_code=202)
async def place_order(order: Order) -> dict[str, str]:
    handle = await prepare.enqueue(order)  # mypy and your editor know the parameters
    return {"run": handle.id}


@router.get("/orders/{run}")
async def order_progress(run: UUID) -> Progress:
    handle = prepare.handle(run)
    try:
        status = await handle.status()
    except RunNotFound:
        return Progress(status="unknown")
    receipt = await handle.result() if status == "succeeded" else None  # a Receipt
    return Progress(status=status, receipt=receipt)
