import asyncio
from datetime import UTC, datetime, timedelta

from detent_setup import app, worker


@app.task
async def send_mail(to: str) -> None: ...


async def main() -> None:
    async with worker():
        await send_mail.options(delay=timedelta(minutes=5)).enqueue(to="a")
        await send_mail.options(at=datetime.now(UTC) + timedelta(days=1)).enqueue(to="b")
        await send_mail.options(priority=50).enqueue(to="c")
        first = await send_mail.options(unique_key="welcome-d", unique_for=3600).enqueue(to="d")
        second = await send_mail.options(unique_key="welcome-d", unique_for=3600).enqueue(to="d")
        print(first.created, second.created, first.id == second.id)
        assert first.created and not second.created and first.id == second.id


asyncio.run(main())
print("yes: all four; the key holds until the run has ended, or for a time, and returns the run that has it")
