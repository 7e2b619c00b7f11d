"""The work of the shop: what happens with an order after the customer has got an answer."""

import asyncio
import os
from pathlib import Path

from pydantic import BaseModel

from detent import Detent

jobs = Detent("orders")
RECEIPTS = Path(os.environ.get("RECEIPTS", "receipts"))


class Order(BaseModel):
    number: int
    item: str
    quantity: int = 1


class Receipt(BaseModel):
    number: int
    text: str


@jobs.task(max_retries=5)
async def prepare(order: Order) -> Receipt:
    """Takes a while, as real work does, and leaves a receipt."""
    await asyncio.sleep(0.5)
    receipt = Receipt(number=order.number, text=f"{order.quantity} x {order.item}")
    await asyncio.to_thread(write, receipt)
    return receipt


@jobs.job(cron="0 6 * * *", timezone="Europe/Berlin")
def count_receipts() -> int:
    return sum(1 for _ in RECEIPTS.glob("*.txt"))


def write(receipt: Receipt) -> None:
    RECEIPTS.mkdir(exist_ok=True)
    with (RECEIPTS / f"{receipt.number}.txt").open("a") as file:
        file.write(f"{receipt.text}\n")
