import asyncio
import logging

from procrastinate_setup import app, prepare, work


@app.task
async def import_orders() -> None:
    logging.getLogger("shop").warning("asking the supplier")


async def main() -> None:
    async with app.open_async():
        await prepare()
        await import_orders.defer_async()
        await work()
        columns = await app.connector.execute_query_all_async(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_name ^@ 'procrastinate'"
        )
        print(sorted({column["column_name"] for column in columns}))
    print("no: lines go where the worker's loggers write; none is stored with the job")


asyncio.run(main())
