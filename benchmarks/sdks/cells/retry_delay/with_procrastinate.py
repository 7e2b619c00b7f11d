import asyncio
from datetime import UTC, datetime

from procrastinate import BaseRetryStrategy, RetryDecision
from procrastinate_setup import app, prepare, work


class ByException(BaseRetryStrategy):
    def get_retry_decision(self, *, exception, job):
        return RetryDecision(retry_in={"seconds": 60 if isinstance(exception, ConnectionError) else 5})


@app.task(retry=ByException())
async def fail() -> None:
    raise ConnectionError


async def main() -> None:
    async with app.open_async():
        await prepare()
        await fail.defer_async()
        await work()
        (job,) = await app.job_manager.list_jobs_async()
        print(round((job.scheduled_at - datetime.now(UTC)).total_seconds(), -1))
    print("partly: a class of your own decides; no declaration")


asyncio.run(main())
