import asyncio

from procrastinate_setup import app, prepare


@app.periodic(cron="* * * * * */2")
@app.task
async def tick(timestamp: int) -> None: ...


async def main() -> None:
    async with app.open_async():
        await prepare()
        workers = [asyncio.create_task(app.run_worker_async(install_signal_handlers=False)) for _ in range(2)]
        await asyncio.sleep(9)
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
        ticks = [job.task_kwargs["timestamp"] for job in await app.job_manager.list_jobs_async()]
    print(len(ticks), len(set(ticks)))
    print("yes: a unique key in the database lets one of the workers enqueue a tick")


asyncio.run(main())
