import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from detent_setup import app, worker
from pydantic import BaseModel


@dataclass
class Address:
    city: str


class Order(BaseModel):
    number: int


@app.task
async def ship(at: datetime, to: Address, order: Order) -> list[str]:
    return [type(at).__name__, type(to).__name__, type(order).__name__]


async def main() -> None:
    async with worker():
        handle = await ship.enqueue(at=datetime.now(UTC), to=Address("Paris"), order=Order(number=17))
        print(got := await handle.result(timeout=20))
    assert got == ["datetime", "Address", "Order"]


asyncio.run(main())
print("yes: as JSON that every language can send, read by the annotations")
