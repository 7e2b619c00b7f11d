import asyncio

from procrastinate_setup import app, prepare


@app.task
async def count(of: str) -> int:
    return len(of)


async def main() -> int:
    async with app.open_async():
        await prepare()
        await count.defer_async(of="abc")
    return 0


asyncio.run(main())
with app.open():
    job = count.defer(of="abcd")
    print(job, app.job_manager.get_job_status(job))
print("partly: both enqueue and read the status; the result is not kept")
