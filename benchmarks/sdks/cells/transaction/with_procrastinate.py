import asyncio
import os

import psycopg
from procrastinate_setup import app, prepare


@app.task
async def send_mail(to: str) -> None: ...


async def main() -> None:
    async with app.open_async(), await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"]) as connection:
        await prepare()
        await send_mail.configure(connection=connection).defer_async(to="rolled back")
        await connection.rollback()
        await send_mail.configure(connection=connection).defer_async(to="committed")
        await connection.commit()
        jobs = await app.job_manager.list_jobs_async()
        print([job.task_kwargs for job in jobs])
    print("partly: on psycopg connections (and psycopg2 under SQLAlchemy), not on those of asyncpg")


asyncio.run(main())
