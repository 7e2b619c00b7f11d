"""An order in steps, and an invoice that exists once. Run it with: detent serve --app fulfilment:app"""

from dataclasses import dataclass

from detent import Detent, Run

app = Detent("fulfilment")


@dataclass
class Charge:
    id: str
    cents: int


class Bank:
    """Stands for a payment provider, who does nothing twice for the same key."""

    def __init__(self) -> None:
        self.charges: dict[str, Charge] = {}
        self.calls = 0

    async def charge(self, cents: int, key: str) -> Charge:
        self.calls += 1
        return self.charges.setdefault(key, Charge(f"ch-{len(self.charges) + 1}", cents))


bank = Bank()
parcels: list[str] = []


def ship(charge: Charge) -> str:
    parcels.append(charge.id)
    if len(parcels) == 1:
        raise ConnectionError("the carrier is away")
    return f"parcel {len(parcels)}"


async def announce(parcel: str) -> None:
    print(f"{parcel} is on its way")


@app.task(max_retries=5, retry_base_seconds=10)
async def fulfil(run: Run, order: int, cents: int) -> str:
    """A retry continues behind the last stored step: the card is not charged again because the carrier was away. The
    key is for the one case that no ledger covers: a crash after the charge and before it was stored."""
    charge = await run.step("charge", bank.charge, cents, key=run.idempotency_key)
    parcel = await run.step("ship", ship, charge)
    await run.once(f"announce-{order}").do(announce, parcel)
    return parcel
