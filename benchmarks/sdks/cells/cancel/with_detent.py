import asyncio

from detent_setup import app, worker

ended = []


@app.task
async def wait() -> None:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        ended.append("cancelled")
        raise


async def main() -> None:
    async with worker():
        handle = await wait.enqueue()
        while await handle.status() != "running":
            await asyncio.sleep(0.05)
        await handle.cancel()
        while not ended:
            await asyncio.sleep(0.05)
        print(ended, await handle.status())


asyncio.run(main())
print("yes: handle.cancel() cancels the coroutine; a thread sees it at run.heartbeat(), a process is ended")
