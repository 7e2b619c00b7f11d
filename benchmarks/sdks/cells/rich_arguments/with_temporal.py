import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import BaseModel
from temporalio.contrib.pydantic import pydantic_data_converter


@dataclass
class Address:
    city: str


class Order(BaseModel):
    number: int


async def main() -> None:
    sent = await pydantic_data_converter.encode([datetime.now(UTC), Address("Paris"), Order(number=17)])
    got = await pydantic_data_converter.decode(sent, [datetime, Address, Order])
    print([type(value).__name__ for value in got])
    assert [type(value) for value in got] == [datetime, Address, Order]


asyncio.run(main())
print("yes: with pydantic_data_converter; the converter was run, the server was not")
