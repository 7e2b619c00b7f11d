import asyncio
from datetime import UTC, datetime, timedelta

from procrastinate.exceptions import AlreadyEnqueued
from procrastinate_setup import app, prepare


@app.task
async def send_mail(to: str) -> None: ...


async def main() -> None:
    async with app.open_async():
        await prepare()
        await send_mail.configure(schedule_in={"minutes": 5}).defer_async(to="a")
        await send_mail.configure(schedule_at=datetime.now(UTC) + timedelta(days=1)).defer_async(to="b")
        await send_mail.configure(priority=5).defer_async(to="c")
        await send_mail.configure(queueing_lock="welcome-d").defer_async(to="d")
        try:
            await send_mail.configure(queueing_lock="welcome-d").defer_async(to="d")
        except AlreadyEnqueued as error:
            print(type(error).__name__, error)
        print([(job.priority, job.queueing_lock, job.scheduled_at) for job in await app.job_manager.list_jobs_async()])
    print("partly: all four; the unique key holds only while the job waits, and has no time of its own")


asyncio.run(main())
