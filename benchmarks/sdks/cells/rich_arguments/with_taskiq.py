import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import BaseModel
from taskiq_setup import broker, worker


@dataclass
class Address:
    city: str


class Order(BaseModel):
    number: int


@broker.task
async def ship(at: datetime, to: Address, order: Order) -> list[str]:
    return [type(at).__name__, type(to).__name__, type(order).__name__]


async def main() -> None:
    async with worker():
        sent = await ship.kiq(at=datetime.now(UTC), to=Address("Paris"), order=Order(number=17))
        print(got := (await sent.wait_result(timeout=20)).return_value)
    assert got == ["datetime", "Address", "Order"]


asyncio.run(main())
print("yes: encoded at enqueue, and parsed by the annotations on the worker")
