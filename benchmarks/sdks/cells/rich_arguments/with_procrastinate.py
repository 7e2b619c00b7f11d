import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from procrastinate_setup import app, prepare
from pydantic import BaseModel


@dataclass
class Address:
    city: str


class Order(BaseModel):
    number: int


@app.task
async def ship(at: datetime, to: Address, order: Order) -> None: ...


async def main() -> None:
    async with app.open_async():
        await prepare()
        try:
            await ship.defer_async(at=datetime.now(UTC), to=Address("Paris"), order=Order(number=17))
        except Exception as error:
            print(type(error).__name__, error)
    print("no: arguments are JSON; you encode with json_dumps=, and decode in the function")


asyncio.run(main())
