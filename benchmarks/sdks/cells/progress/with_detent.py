import asyncio

from detent_setup import app, worker

from detent import Run


@app.task
async def import_orders(run: Run) -> None:
    run.progress(0.4, "importing")
    await asyncio.sleep(2)


async def main() -> None:
    async with worker():
        handle = await import_orders.enqueue()
        while (seen := (await handle.run()).progress) is None:
            await asyncio.sleep(0.05)
        print(seen.fraction, seen.message, await handle.status())
        assert (seen.fraction, seen.message) == (0.4, "importing")
        await handle.result(timeout=20)


asyncio.run(main())
print("yes: run.progress(0.4, …), in API, command line and dashboard")
