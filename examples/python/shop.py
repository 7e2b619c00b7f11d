"""Three jobs and a task of a shop, in code. Run them with: detent serve --app shop:app"""

from collections.abc import AsyncIterator, Iterator
from time import monotonic

from detent import Depends, Detent, Retry, Run

app = Detent("shop")


class Supplier:
    """Stands for a client of the supplier, who does nothing twice for the same key."""

    async def orders(self, key: str) -> list[str]:
        return [f"order for {key}"]

    async def close(self) -> None: ...


async def supplier() -> AsyncIterator[Supplier]:
    """One connection for all runs of a worker."""
    client = Supplier()
    yield client
    await client.close()


@app.middleware
def timing(run: Run) -> Iterator[None]:
    start = monotonic()
    yield
    run.log.info("took %.3f s", monotonic() - start)


@app.job(cron="30 2 * * *", timezone="America/New_York", payload={"kind": "daily"})
def nightly_report(run: Run, kind: str) -> str:
    """Runs at 02:30 local time; on the night that has no 02:30, at the first moment after it."""
    return f"{kind} report for {run.scheduled_at:%Y-%m-%d}"


@app.job(every="15m", max_retries=2, retry_base_seconds=10)
async def import_orders(run: Run, supplier: Supplier = Depends(supplier, scope="worker")) -> int:
    """Fails and is tried again while the supplier is away. Each order gets one mail, however often it is imported."""
    orders = await supplier.orders(run.idempotency_key)
    for order in orders:
        await send_mail.options(unique_key=order, unique_for=86_400).enqueue(to="ada@example.com", subject=order)
    return len(orders)


@app.task(max_retries=5, retry_on=(OSError,))
def send_mail(run: Run, to: str, subject: str = "Your order") -> str:
    """Is called by `import_orders`, and by whoever enqueues it."""
    if to.endswith("@slow.example") and run.attempt == 1:
        raise Retry("greylisted", after=300)
    return f"{subject} → {to}"


@app.job(cron="0 9 * * MON", timezone="America/New_York")
async def weekly_invoice(run: Run) -> None:
    """The invoice and the success of the run commit together, or neither does."""
    async with run.transaction() as connection:
        await connection.execute("INSERT INTO invoices (key) VALUES ($1)", run.idempotency_key)
