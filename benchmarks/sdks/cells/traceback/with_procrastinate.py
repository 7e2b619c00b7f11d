import asyncio

from procrastinate_setup import app, prepare, work


@app.task
async def fail() -> None:
    try:
        {}["missing"]
    except KeyError as cause:
        raise ValueError("no such order") from cause


async def main() -> None:
    async with app.open_async():
        await prepare()
        await fail.defer_async()
        await work()
        (job,) = await app.job_manager.list_jobs_async()
        rows = await app.connector.execute_query_all_async("SELECT * FROM procrastinate_events ORDER BY id")
        print(job.status, [sorted(row) for row in rows][0], [row["type"] for row in rows])
    print("no: jobs and events keep the status; the exception is only in the log of the worker")


asyncio.run(main())
