import asyncio

import asyncpg
import psycopg
from detent_setup import app, url, worker


@app.task
async def send_mail(to: str) -> None: ...


async def main() -> None:
    async with worker():
        connection = await asyncpg.connect(url)
        for name, end in (("rolled back", "ROLLBACK"), ("asyncpg", "COMMIT")):
            await connection.execute("BEGIN")
            await send_mail.options(connection=connection).enqueue(to=name)
            await connection.execute(end)
        await connection.close()
        with psycopg.connect(url) as blocking:
            handle = send_mail.options(connection=blocking).enqueue_sync(to="psycopg")
            blocking.rollback()
        try:
            await asyncio.to_thread(handle.status)
        except Exception as error:
            print(type(error).__name__, error)
        else:
            raise AssertionError


asyncio.run(main())
print("yes: asyncpg, psycopg, SQLAlchemy (blocking and async) and Django; typed")
