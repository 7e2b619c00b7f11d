import asyncio

from procrastinate import JobContext, RetryDecision
from procrastinate.exceptions import JobAborted, JobRetry
from procrastinate_setup import app, prepare, work


@app.task
async def busy() -> None:
    raise JobRetry(RetryDecision(retry_in={"seconds": 30}))


@app.task(pass_context=True)
async def pointless(context: JobContext) -> None:
    raise JobAborted


async def main() -> None:
    async with app.open_async():
        await prepare()
        await busy.defer_async()
        await pointless.defer_async()
        await work()
        ended = {job.task_name.rpartition(".")[2]: job.status for job in await app.job_manager.list_jobs_async()}
    print(ended)
    assert ended == {"busy": "failed", "pointless": "aborted"}


asyncio.run(main())
print("partly: JobAborted ends a job quietly, without a reason; only a strategy class can ask for a retry")
