from dataclasses import dataclass
from datetime import UTC, datetime

from dbos import DBOS
from dbos_setup import configure, worker
from pydantic import BaseModel

configure()


@dataclass
class Address:
    city: str


class Order(BaseModel):
    number: int


@DBOS.workflow()
def ship(at: datetime, to: Address, order: Order) -> list[str]:
    return [type(at).__name__, type(to).__name__, type(order).__name__]


with worker():
    DBOS.register_queue("mail")
    handle = DBOS.enqueue_workflow("mail", ship, datetime.now(UTC), Address("Paris"), Order(number=17))
    print(got := handle.get_result())
assert got == ["datetime", "Address", "Order"]
print("partly: through pickle: anything goes, and waiting runs break when a class moves or changes")
