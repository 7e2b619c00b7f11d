import asyncio
import logging

from taskiq_setup import broker, worker


@broker.task
async def import_orders() -> None:
    logging.getLogger("shop").warning("asking the supplier")
    print("page 1")


async def main() -> None:
    async with worker():
        sent = await import_orders.kiq()
        await sent.wait_result(timeout=20)
        result = await sent.get_result(with_logs=True)
        print("stored:", repr(result.log))
        assert not result.log


asyncio.run(main())
print("no: results have a field for a log, and workers do not fill it")
