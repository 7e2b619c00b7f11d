from dataclasses import dataclass
from datetime import UTC, datetime

from celery_setup import app, worker
from pydantic import BaseModel


@dataclass
class Address:
    city: str


class Order(BaseModel):
    number: int


@app.task(pydantic=True)
def ship(at: datetime, order: Order) -> list[str]:
    return [type(at).__name__, type(order).__name__]


@app.task
def ship_to(to: Address) -> None: ...


sent = ship.delay(at=datetime.now(UTC), order=Order(number=17).model_dump())
with worker():
    print(got := sent.get(timeout=20))
assert got == ["datetime", "Order"]
try:
    ship_to.delay(to=Address("Paris"))
except Exception as error:
    print(type(error).__name__, error)
print("partly: dates, and models with pydantic=True, which the caller dumps; no dataclasses")
