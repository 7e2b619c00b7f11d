import asyncio

from detent_setup import app, worker


@app.task
async def send_mail(to: str) -> None: ...


async def main() -> None:
    async with worker():
        print(len(await send_mail.enqueue_many(send_mail.call(to=str(number)) for number in range(1000))))


asyncio.run(main())
print("yes: one statement, all or none; each call is typed")
