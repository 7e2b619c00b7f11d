import asyncio

from procrastinate_setup import app, prepare, work


@app.task
async def send_mail(to: str, copies: int = 1) -> None: ...


async def main() -> None:
    async with app.open_async():
        await prepare()
        stored = []
        for wrong in ({"too": "ada"}, {"to": "ada", "copies": "two"}):
            stored.append(await send_mail.defer_async(**wrong))
        await work()
        jobs = {job.id: job for job in await app.job_manager.list_jobs_async()}
        print([(jobs[number].task_kwargs, jobs[number].status) for number in stored])
    print("no: both wrong calls are stored; one fails on the worker, the wrong type is not noticed at all")


asyncio.run(main())
