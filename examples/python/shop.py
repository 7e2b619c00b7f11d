"""Jobs and a task of a shop, in code. Run them with: detent serve --app shop:app"""

from detent import Detent, Discard, Run

app = Detent("shop")


@app.job(cron="30 2 * * *", timezone="America/New_York", payload={"kind": "daily"})
def nightly_report(run: Run, kind: str) -> str:
    """Runs at 02:30 local time; on the night that has no 02:30, at the first moment after it."""
    return f"{kind} report for {run.scheduled_at:%Y-%m-%d}"


@app.job(every="15m", max_retries=2, retry_base_seconds=10)
async def import_orders(run: Run) -> int:
    """Fails and is tried again while the supplier is away."""
    return len(await fetch_orders(run.idempotency_key))


@app.job(cron="0 9 * * MON", timezone="America/New_York")
async def weekly_invoice(run: Run) -> None:
    """The invoice and the success of the run commit together, or neither does."""
    async with run.transaction() as connection:
        await connection.execute("INSERT INTO invoices (key) VALUES ($1)", run.idempotency_key)


@app.task(retry_on=(OSError,), retry_delays={ConnectionRefusedError: 60})
async def send_mail(to: str, subject: str = "Welcome") -> int:
    """Enqueued by `send_mail.enqueue(to="ada@example.com")`; retried only while the mail server is away."""
    if "@" not in to:
        raise Discard(f"{to} is no address")
    return len(subject)


async def fetch_orders(key: str) -> list[str]:
    """Stands for a call to the supplier, who does nothing twice for the same key."""
    return [f"order for {key}"]
