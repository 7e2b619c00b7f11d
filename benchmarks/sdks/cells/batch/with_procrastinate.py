import asyncio

from procrastinate_setup import app, prepare


@app.task
async def send_mail(to: str) -> None: ...


async def main() -> None:
    async with app.open_async():
        await prepare()
        await send_mail.batch_defer_async(*({"to": str(number)} for number in range(1000)))
        print(len(list(await app.job_manager.list_jobs_async())))
    print("partly: one statement, all or none; the arguments are dicts that no type checker reads")


asyncio.run(main())
